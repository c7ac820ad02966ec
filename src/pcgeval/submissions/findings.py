"""Findings about a submission: errors, for which it is refused; warnings; and notes on what was done with it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from pcgeval.core.untrusted import listed, printable_name

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
        code: The kind of an error in a word that does not change.
    """

    severity: Severity
    place: str
    text: str
    code: str = ""


def error(place: str, text: str, code: str) -> SubmissionFinding:
    """Return a finding for which the submission is refused."""
    return SubmissionFinding("error", place, text, code)


def warning(place: str, text: str) -> SubmissionFinding:
    """Return a finding that may be intended."""
    return SubmissionFinding("warning", place, text)


def in_order(findings: Iterable[SubmissionFinding]) -> list[SubmissionFinding]:
    """Return each finding once, errors first, then warnings, then notes."""
    return sorted(dict.fromkeys(findings), key=lambda finding: get_args(Severity).index(finding.severity))


def printable_findings(findings: Iterable[SubmissionFinding]) -> list[str]:
    """Return a line for each text, errors first, with the places that it is about and an error's code."""
    places: dict[tuple[Severity, str, str], list[str]] = {}
    for finding in in_order(findings):
        where = places.setdefault((finding.severity, finding.text, finding.code), [])
        where += [finding.place] if finding.place else []
    lines = []
    for (severity, text, code), where in places.items():
        prefix = f"{listed(where, _SHOWN_PLACES)}: " if where else ""
        suffix = f" [{code}]" if code else ""
        lines.append(f"{severity}: {prefix}{printable_name(text, _MAX_TEXT)}{suffix}")
    return lines
