"""The result of a check: a share from 0 to 1 with its figures, or an exception if it cannot be decided."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

_Thing = TypeVar("_Thing")


class Undecided(Exception):  # noqa: N818 - it is no error: a judge turns it into a leaf without a grade
    """The evidence does not say whether the criterion is met."""


class NotMet(Exception):  # noqa: N818 - it is no error: it becomes a result of 0
    """The criterion is not met because a file or value that it needs is missing or malformed."""


@dataclass(frozen=True)
class CheckResult:
    """How far a criterion is met, from 0 to 1, and the figures that say so."""

    score: float
    explanation: str


def yes_or_no(met: bool, explanation: str) -> CheckResult:
    """Return 1 for a criterion that is met, else 0."""
    return CheckResult(1.0 if met else 0.0, explanation)


def share(part: int, whole: int, what: str, example: str = "") -> CheckResult:
    """Return `part / whole` with an explanation such as "71 of 78 trials have code; first otherwise: ..."."""
    if whole == 0:
        raise Undecided(f"nothing to count: 0 {what}")
    return CheckResult(part / whole, f"{part} of {whole} {what}" + (f"; first otherwise: {example}" if example else ""))


def share_of(
    things: Sequence[_Thing], met: Callable[[_Thing], bool], what: str, name: Callable[[_Thing], str]
) -> CheckResult:
    """Return the share of things that meet a condition; the explanation names the first that does not."""
    failing = [thing for thing in things if not met(thing)]
    return share(len(things) - len(failing), len(things), what, name(failing[0]) if failing else "")


def mean(values: Iterable[float]) -> float:
    """Return the mean, added up in order; Python's own `sum` rounds differently from version 3.12 on."""
    total, count = 0.0, 0
    for value in values:
        total += value
        count += 1
    if count == 0:
        raise Undecided("nothing to average")
    return total / count
