"""What is said about a submission: errors, for which it is not taken; warnings; and notes on what was done with it."""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
_SHOWN_PLACES = 5  # of those about which the same is said
_LONGEST = 300  # characters of a name or a quotation


@dataclass(frozen=True)
class Finding:
    """One thing that was found; `place` is a file of the submission, perhaps with `:line`, or empty for the whole."""

    severity: Severity
    place: str
    text: str  # says what is wrong and what to do


def error(place: str, text: str) -> Finding:
    """Return a finding for which the submission is not taken."""
    return Finding("error", place, text)


def warning(place: str, text: str) -> Finding:
    """Return a finding that may be meant as it is."""
    return Finding("warning", place, text)


def note(place: str, text: str) -> Finding:
    """Return a finding about what was done with the submission."""
    return Finding("note", place, text)


def has_errors(findings: Iterable[Finding]) -> bool:
    """Tell whether the submission cannot be taken."""
    return any(finding.severity == "error" for finding in findings)


def lines(findings: Iterable[Finding]) -> list[str]:
    """Return the findings for people, the errors first; the same about several places is said once."""
    places: dict[tuple[Severity, str], list[str]] = {}
    for finding in findings:
        places.setdefault((finding.severity, finding.text), []).append(finding.place)
    return [
        f"{severity}: {_spoken(where)}{shown(text, 1000)}"
        for wanted in SEVERITIES
        for (severity, text), where in places.items()
        if severity == wanted
    ]


def shown(text: str, longest: int = _LONGEST) -> str:
    """Return hostile text as it can be printed: no control characters, no change of direction, not too long."""
    cut = text[:longest]
    plain = "".join(each if is_plain(each) else each.encode("unicode_escape").decode() for each in cut)
    return f"{plain}..." if len(text) > longest else plain


def is_plain(character: str) -> bool:
    """Tell whether a character shows as itself: none of the control, format, surrogate and unassigned ones."""
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _spoken(places: list[str]) -> str:
    named = [shown(place) for place in places if place]
    if not named:
        return ""
    more = f" and {len(named) - _SHOWN_PLACES} more" if len(named) > _SHOWN_PLACES else ""
    return f"{', '.join(named[:_SHOWN_PLACES])}{more}: "
