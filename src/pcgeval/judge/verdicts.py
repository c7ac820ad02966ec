"""Making one verdict of the votes on a leaf."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Vote:
    """What one run of the calls came to; without a score `reason` says why."""

    score: float | None
    explanation: str = ""
    reason: str | None = None
    answer: str = ""  # the grader's own words

    def to_json(self) -> dict[str, Any]:
        """Return the vote as JSON values."""
        return vars(self)


@dataclass(frozen=True)
class Outcome:
    """What the votes say together, with the explanation of one that says so.

    `agreement` is the share of the votes with a score that gave this one, for a score in between 1 less the distance
    from the lowest to the highest; None where there is no score.
    """

    score: float | None
    explanation: str
    agreement: float | None = None


def outcome(votes: Sequence[Vote], *, continuous: bool) -> Outcome:
    """Return the majority's score, or the mean of continuous scores; votes without a score do not count."""
    scores = [vote.score for vote in votes if vote.score is not None]
    if not scores:
        reasons = dict.fromkeys(vote.reason or "no score" for vote in votes)
        return Outcome(None, "; ".join(reasons))
    if continuous:
        score = _mean(scores)
        vote = min(votes, key=lambda vote: 2.0 if vote.score is None else abs(vote.score - score))
        return Outcome(score, vote.explanation, 1 - (max(scores) - min(scores)))
    (score, most), *others = Counter(scores).most_common()
    if others and others[0][1] == most:
        return Outcome(None, f"the votes are tied, {most} to {most}")
    vote = next(vote for vote in votes if vote.score == score)
    return Outcome(score, vote.explanation, most / len(scores))


def _mean(values: Sequence[float]) -> float:
    """Return the mean, added up in order; Python's own `sum` rounds differently from version 3.12 on."""
    total = 0.0
    for value in values:
        total += value
    return total / len(values)
