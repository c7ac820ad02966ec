"""Findings about a submission: errors, for which it is refused; warnings; and notes on what was done with it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pcgeval.core.untrusted import printable_name

Severity = Literal["error", "warning", "note"]
_SHOWN_PLACES = 5  # of those with the same text
_MAX_TEXT = 1000  # characters


@dataclass(frozen=True)
class SubmissionFinding:
    """One finding.

    Attributes:
        severity: An error refuses the submission, a warning may be intended, a note says what was done.
        place: A file of the submission, perhaps with `:line`; empty for the whole.
        text: The problem and what to do about it; may quote hostile text.
    """

    severity: Severity
    place: str
    text: str


def error(place: str, text: str) -> SubmissionFinding:
    """Return a finding for which the submission is refused."""
    return SubmissionFinding("error", place, text)


def warning(place: str, text: str) -> SubmissionFinding:
    """Return a finding that may be intended."""
    return SubmissionFinding("warning", place, text)


def note(place: str, text: str) -> SubmissionFinding:
    """Return a finding about what was done with the submission."""
    return SubmissionFinding("note", place, text)


def printable_findings(findings: Iterable[SubmissionFinding]) -> list[str]:
    """Return a line for each text, errors first, with the places that it is about."""
    places: dict[tuple[Severity, str], list[str]] = {}
    for finding in findings:
        places.setdefault((finding.severity, finding.text), []).append(finding.place)
    lines = []
    for severity in ("error", "warning", "note"):
        for (own, text), where in places.items():
            if own == severity:
                named = [printable_name(place) for place in where if place]
                more = f" and {len(named) - _SHOWN_PLACES} more" if len(named) > _SHOWN_PLACES else ""
                prefix = f"{', '.join(named[:_SHOWN_PLACES])}{more}: " if named else ""
                lines.append(f"{severity}: {prefix}{printable_name(text, _MAX_TEXT)}")
    return lines
