"""The measures of how far two gradings agree, with intervals from resampled leaves; see `pcgeval.rubric.agreement`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LEVEL = 0.90  # of the intervals, as in the ranking
_DIGITS = 6  # of an interval's ends: far above what the order of float sums can change
_DRAWS_AT_ONCE = 2_000_000  # bounds the memory
_NOTHING = "no leaf could be compared"

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ResampleInterval:
    """The central 90 % of a measure over resamples of the leaves, of which `undefined` gave no value."""

    low: float
    high: float
    undefined: int = 0


@dataclass(frozen=True)
class Measure:
    """One figure; None where it is not defined, and then `note` says why."""

    value: float | None
    interval: ResampleInterval | None = None
    note: str = ""


@dataclass(frozen=True)
class Confusion:
    """How many leaves passed with both, with one alone, or with none."""

    both_pass: int
    only_a: int
    only_b: int
    both_fail: int

    @property
    def classes(self) -> dict[str, "ClassFigures"]:
        """The measures of A for each of the classes, with B as the truth."""
        return {
            "pass": ClassFigures(self.both_pass, self.both_pass + self.only_a, self.both_pass + self.only_b),
            "fail": ClassFigures(self.both_fail, self.both_fail + self.only_b, self.both_fail + self.only_a),
        }


@dataclass(frozen=True)
class ClassFigures:
    """One of the classes pass and fail: the leaves that A and B both put there, that A does, and that B does.

    A measure is None where its divisor is 0.
    """

    both: int
    in_a: int
    in_b: int

    @property
    def precision(self) -> float | None:
        """The share of those in A that are in B."""
        return self.both / self.in_a if self.in_a else None

    @property
    def recall(self) -> float | None:
        """The share of those in B that are in A."""
        return self.both / self.in_b if self.in_b else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both, 2 both / (number in A + number in B)."""
        return 2 * self.both / (self.in_a + self.in_b) if self.in_a + self.in_b else None


@dataclass(frozen=True)
class Figures:
    """The agreement over some leaves.

    Attributes:
        leaves: How many were compared.
        confusion: The same by what each grading says.
        accuracy: The share of leaves that both pass or both fail.
        precision: The mean, over those of the classes pass and fail that occur, of both / number in A, and of 0 for a
            class that A lacks: how often A is right if B is the truth.
        recall: The same of both / number in B: how much of B's classes A finds.
        macro_f1: The same of 2 both / (number in A + number in B).
        kappa: Cohen's kappa: (accuracy - chance) / (1 - chance), chance from how often each grading passes a leaf.
        score_difference: The mean of |a - b| over the uncut scores.
        between_a: How many of A's scores lie between 0 and 1.
        between_b: How many of B's.
    """

    leaves: int
    confusion: Confusion
    accuracy: Measure
    precision: Measure
    recall: Measure
    macro_f1: Measure
    kappa: Measure
    score_difference: Measure
    between_a: int
    between_b: int


def agreement_figures(
    scores_a: Sequence[float], scores_b: Sequence[float], *, pass_at: float, bootstrap: int, seed: int
) -> Figures:
    """Work out all measures for leaves that both gradings scored, given in the same order; see `agreement`."""
    a, b = np.array(scores_a, dtype=np.float64), np.array(scores_b, dtype=np.float64)
    differences = np.abs(a - b)
    cells = np.where(a > pass_at, np.where(b > pass_at, 0, 1), np.where(b > pass_at, 2, 3))
    counts = _cell_counts(cells[None, :])
    confusion = Confusion(*(int(each) for each in counts[0]))
    drawn_counts, drawn_differences = _resampled(cells, differences, bootstrap if a.size > 1 else 0, seed)
    values = [float(measure[0]) for measure in _measures(counts)]
    notes = (_accuracy_note(confusion), "", "", "", _kappa_note(confusion))
    accuracy, precision, recall, macro_f1, kappa = (
        Measure(None if np.isnan(value) else value, _interval(drawn), note if a.size else _NOTHING)
        for value, drawn, note in zip(values, _measures(drawn_counts), notes, strict=True)
    )
    difference = float(differences.mean()) if a.size else None
    return Figures(
        leaves=int(a.size),
        confusion=confusion,
        accuracy=accuracy,
        precision=precision,
        recall=recall,
        macro_f1=macro_f1,
        kappa=kappa,
        score_difference=Measure(difference, _interval(drawn_differences), "" if a.size else _NOTHING),
        between_a=int(((a > 0) & (a < 1)).sum()),
        between_b=int(((b > 0) & (b < 1)).sum()),
    )


def _resampled(cells: NDArray[np.int64], differences: Floats, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Draw as many leaves as there are, with replacement, so many times.

    Return the counts of each resample (R, 4), in the order of `Confusion`, and its mean difference (R,).
    """
    generator = np.random.default_rng(seed)
    chunk = max(1, _DRAWS_AT_ONCE // max(1, cells.size))
    counts, means = [np.empty((0, 4))], [np.empty(0)]
    for start in range(0, resamples, chunk):
        chosen = generator.integers(cells.size, size=(min(chunk, resamples - start), cells.size))
        counts.append(_cell_counts(cells[chosen]))
        means.append(differences[chosen].mean(axis=1))
    return np.concatenate(counts), np.concatenate(means)


def _cell_counts(cells: NDArray[np.int64]) -> Floats:
    return np.stack([(cells == cell).sum(axis=1) for cell in range(4)], axis=1).astype(np.float64)


def _measures(counts: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Return the measures for each row of counts (R, 4) in the order of `Figures`; NaN where one is not defined."""
    both_pass, only_a, only_b, both_fail = counts.T
    whole, agreed = counts.sum(axis=1), both_pass + both_fail
    classes = ((both_pass, both_pass + only_a, both_pass + only_b), (both_fail, both_fail + only_b, both_fail + only_a))
    occurring = np.sum([in_a + in_b > 0 for _, in_a, in_b in classes], axis=0)

    def macro(measure: Callable[[Floats, Floats, Floats], Floats]) -> Floats:
        return _divided(np.sum([np.nan_to_num(measure(*each)) for each in classes], axis=0), occurring)

    # Cohen 1960, in whole numbers times 1 / n^2, so that a chance of exactly 1 is seen as such
    chance = (both_pass + only_a) * (both_pass + only_b) + (both_fail + only_a) * (both_fail + only_b)
    return (
        _divided(agreed, whole),
        macro(lambda both, in_a, _: _divided(both, in_a)),
        macro(lambda both, _, in_b: _divided(both, in_b)),
        macro(lambda both, in_a, in_b: _divided(2 * both, in_a + in_b)),
        _divided(whole * agreed - chance, whole * whole - chance),
    )


def _divided(above: Floats, below: Floats) -> Floats:
    """Divide, with NaN where the divisor is 0: not defined."""
    shares: Floats = np.divide(above, below, out=np.full(above.shape, np.nan), where=below != 0)
    return shares


def _interval(values: Floats) -> ResampleInterval | None:
    defined = values[~np.isnan(values)]
    if not defined.size:
        return None
    low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ResampleInterval(round(float(low), _DIGITS), round(float(high), _DIGITS), int(values.size - defined.size))


def _accuracy_note(found: Confusion) -> str:
    agreed = found.both_pass + found.both_fail
    if found.only_a or found.only_b or not agreed:
        return ""
    # Hanley and Lippman-Hand 1983: nothing seen in n cases bounds its share by 3 / n with 95 % confidence
    return f"no disagreement in {agreed} leaves rules out only that more than {min(1.0, 3 / agreed):.0%} would disagree"


def _kappa_note(found: Confusion) -> str:
    whole = sum(vars(found).values())
    if whole in (found.both_pass, found.both_fail):
        word = "pass" if found.both_pass else "fail"
        return f"not defined: both {word} every leaf, so that chance alone would agree"
    for name, passes in (("A", found.both_pass + found.only_a), ("B", found.both_pass + found.only_b)):
        if passes in (0, whole):
            return f"{name} {'passes' if passes else 'fails'} every leaf, so that kappa can only be 0"
    return ""
