"""How far two gradings by the same rubric agree, leaf by leaf: may a model judge where people did before?

Each leaf counts once, whatever its weight. A score above 0.5 counts as passed and any other as failed, so that scores
between 0 and 1 (checks, votes, pruned nodes) can be counted too; how many there are, and how far the uncut scores lie
apart, is told beside. Only leaves that both gradings have, by the same criterion and with a grade, can be compared; all
others are named. Precision and recall take B for the truth; nothing else depends on which is A.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.console import count
from pcgeval.core.untrusted import printable_line
from pcgeval.rubric.grades import PASSED, GradedTaskNode, GradeError, weighted_mean
from pcgeval.rubric.text import cut, form_lines
from pcgeval.rubric.tree import CATEGORIES

LEVEL = 0.90  # of the intervals, as in the ranking
NO_CATEGORY = "no category"  # nodes that stand for a pruned part of the tree
UNCOMPARED_WORDS = {
    "missing_in_a": "only in B",
    "missing_in_b": "only in A",
    "invalid_in_a": "not graded in A",
    "invalid_in_b": "not graded in B",
    "other_criterion": "with another criterion",
}
_NOTHING = "no leaf could be compared"
_DIGITS = 6  # of an interval's ends: far above what the order of float sums can change
_SHOWN = 20  # leaves of one kind in the text
_MAX_REASON = 500  # characters of a judge's words in a form

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


@dataclass(frozen=True)
class ComparedLeaf:
    """A leaf that both gradings scored, and both scores."""

    path: str
    category: str
    a: float
    b: float


@dataclass(frozen=True)
class Agreement:
    """The agreement of two gradings, or of several pairs taken together.

    Attributes:
        resamples: How often leaves were drawn anew for the intervals.
        seed: Of the random numbers.
        overall: The figures over all leaves that could be compared.
        by_category: Those of each category that occurs.
        root_difference: The mean of the absolute differences of the roots' scores.
        uncompared: The paths of the leaves left out, by the keys of `UNCOMPARED_WORDS`; a leaf without a grade in A and
            in B stands twice.
        disagreements: The leaves that one passes and the other fails.
        criteria: Each leaf's criterion by its path.
    """

    resamples: int
    seed: int
    overall: Figures
    by_category: Mapping[str, Figures]
    root_difference: Measure
    uncompared: Mapping[str, tuple[str, ...]]
    disagreements: tuple[ComparedLeaf, ...]
    criteria: Mapping[str, str]

    @property
    def num_uncompared(self) -> int:
        """The number of leaves left out."""
        return len({path for paths in self.uncompared.values() for path in paths})

    def to_json(self) -> dict[str, Any]:
        """Return all of it but the criteria as JSON values; nothing is NaN."""
        return {"level": LEVEL, **{name: value for name, value in asdict(self).items() if name != "criteria"}}


@dataclass(frozen=True)
class Pair:
    """Two gradings of one submission; `name` stands before the paths where there are several pairs."""

    name: str
    a: GradedTaskNode
    b: GradedTaskNode


def agreement(pairs: Sequence[Pair], *, bootstrap: int = 1000, seed: int = 0) -> Agreement:
    """Compare pairs of gradings, their leaves matched by path, as if all leaves were of one tree.

    Args:
        pairs: The gradings; also such as PaperBench publishes; their paths come from the ids.
        bootstrap: How often leaves are drawn anew for the intervals; 0 leaves them out.
        seed: The same seed gives the same intervals.

    Raises:
        GradeError: Two leaves of one tree have the same path.
    """
    compared: list[ComparedLeaf] = []
    left_out: dict[str, list[str]] = {reason: [] for reason in UNCOMPARED_WORDS}
    criteria: dict[str, str] = {}
    for pair in pairs:
        in_a, in_b = _by_path(pair.a), _by_path(pair.b)
        prefix = f"{pair.name}: " if pair.name else ""
        for path, leaf in {**in_a, **in_b}.items():  # in the order of the rubric of A, then the leaves that only B has
            name, a, b = f"{prefix}{path}", in_a.get(path), in_b.get(path)
            criteria[name] = f"{prefix}{leaf.requirements}"
            if a is None or b is None:
                left_out["missing_in_a" if a is None else "missing_in_b"].append(name)
            elif a.requirements != b.requirements:
                left_out["other_criterion"].append(name)
            elif a.graded_score is None or b.graded_score is None:
                left_out["invalid_in_a"] += [name] * (a.graded_score is None)
                left_out["invalid_in_b"] += [name] * (b.graded_score is None)
            else:
                category = a.task_category or b.task_category or NO_CATEGORY
                compared.append(ComparedLeaf(name, category, a.graded_score, b.graded_score))
    categories = [*CATEGORIES, *sorted({leaf.category for leaf in compared} - {*CATEGORIES})]
    groups = {category: [leaf for leaf in compared if leaf.category == category] for category in categories}
    return Agreement(
        resamples=bootstrap,
        seed=seed,
        overall=_figures(compared, bootstrap, seed),
        by_category={name: _figures(leaves, bootstrap, seed) for name, leaves in groups.items() if leaves},
        root_difference=_root_difference(pairs),
        uncompared={reason: tuple(paths) for reason, paths in left_out.items()},
        disagreements=tuple(leaf for leaf in compared if (leaf.a > PASSED) != (leaf.b > PASSED)),
        criteria=criteria,
    )


def _by_path(tree: GradedTaskNode) -> dict[str, GradedTaskNode]:
    by_path: dict[str, GradedTaskNode] = {}
    for leaf in tree.leaves:
        if by_path.setdefault(leaf.path, leaf) is not leaf:
            raise GradeError(f"two leaves have the path {leaf.path[:200]!r}, so they cannot be matched. Grade again.")
    return by_path


def _root_difference(pairs: Sequence[Pair]) -> Measure:
    graded = [pair for pair in pairs if pair.a.valid_score and pair.b.valid_score]
    if len(graded) < len(pairs) or not pairs:
        return Measure(None, note=f"{len(pairs) - len(graded)} of {len(pairs)} pairs have a root without a grade")
    return Measure(weighted_mean([1.0] * len(graded), [abs(pair.a.score - pair.b.score) for pair in graded]))


def _figures(leaves: Sequence[ComparedLeaf], resamples: int, seed: int) -> Figures:
    """Work out all measures, with intervals from as many leaves drawn with replacement, `resamples` times."""
    a, b = np.array([leaf.a for leaf in leaves]), np.array([leaf.b for leaf in leaves])
    differences = np.abs(a - b)
    cells = np.where(a > PASSED, np.where(b > PASSED, 0, 1), np.where(b > PASSED, 2, 3)).astype(np.int64)
    counts = np.bincount(cells, minlength=4)  # in the order of Confusion
    generator = np.random.default_rng(seed)
    drawn_counts, drawn_differences = [], []
    for _ in range(resamples if len(leaves) > 1 else 0):
        chosen = generator.integers(len(leaves), size=len(leaves))
        drawn_counts.append(np.bincount(cells[chosen], minlength=4))
        drawn_differences.append(differences[chosen].mean())
    values, drawn = _measures(counts[None, :]), _measures(np.array(drawn_counts).reshape(-1, 4))
    confusion = Confusion(*counts.tolist())
    notes = {"accuracy": _accuracy_note(confusion), "kappa": _kappa_note(confusion)}
    measures = {
        name: Measure(
            None if np.isnan(value[0]) else float(value[0]),
            _interval(drawn[name]),
            notes.get(name, "") if leaves else _NOTHING,
        )
        for name, value in values.items()
    }
    mean_difference = float(differences.mean()) if leaves else None
    return Figures(
        leaves=len(leaves),
        confusion=confusion,
        **measures,
        score_difference=Measure(mean_difference, _interval(np.array(drawn_differences)), "" if leaves else _NOTHING),
        between_a=int(((a > 0) & (a < 1)).sum()),
        between_b=int(((b > 0) & (b < 1)).sum()),
    )


def _measures(counts: NDArray[np.int64]) -> dict[str, Floats]:
    """Return the measures for each row of counts (R, 4); NaN where one is not defined."""
    both_pass, only_a, only_b, both_fail = counts.T.astype(np.float64)
    whole, agreed = counts.sum(axis=1), both_pass + both_fail
    both = np.stack([both_pass, both_fail])  # by class: pass and fail
    in_a, in_b = both + np.stack([only_a, only_b]), both + np.stack([only_b, only_a])
    occurring = (in_a + in_b > 0).sum(axis=0)

    def macro(above: Floats, below: Floats) -> Floats:
        return _divided(np.nan_to_num(_divided(above, below)).sum(axis=0), occurring)

    # Cohen 1960, in whole numbers times 1 / n^2, so that a chance of exactly 1 is seen as such
    chance = (in_a * in_b).sum(axis=0)
    return {
        "accuracy": _divided(agreed, whole),
        "precision": macro(both, in_a),
        "recall": macro(both, in_b),
        "macro_f1": macro(2 * both, in_a + in_b),
        "kappa": _divided(whole * agreed - chance, whole * whole - chance),
    }


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


def _accuracy_note(confusion: Confusion) -> str:
    agreed = confusion.both_pass + confusion.both_fail
    if confusion.only_a or confusion.only_b or not agreed:
        return ""
    # Hanley and Lippman-Hand 1983: nothing seen in n cases bounds its share by 3 / n with 95 % confidence
    return f"no disagreement in {agreed} leaves rules out only that more than {min(1.0, 3 / agreed):.0%} would disagree"


def _kappa_note(confusion: Confusion) -> str:
    whole = sum(vars(confusion).values())
    if whole in (confusion.both_pass, confusion.both_fail):
        word = "pass" if confusion.both_pass else "fail"
        return f"not defined: both {word} every leaf, so that chance alone would agree"
    for name, passes in (("A", confusion.both_pass + confusion.only_a), ("B", confusion.both_pass + confusion.only_b)):
        if passes in (0, whole):
            return f"{name} {'passes' if passes else 'fails'} every leaf, so that kappa can only be 0"
    return ""


def differing_leaves(a: GradedTaskNode, b: GradedTaskNode) -> list[tuple[GradedTaskNode, GradedTaskNode]]:
    """Return the leaves on which two gradings of one submission differ, as both have them.

    These are the leaves that one passes and the other fails, and those that one alone has graded.

    Raises:
        GradeError: Two leaves of one tree have the same path.
    """
    in_b = _by_path(b)
    both = [(leaf, in_b[path]) for path, leaf in _by_path(a).items() if path in in_b]
    return [(x, y) for x, y in both if x.requirements == y.requirements and x.outcome != y.outcome]


def disagreement_form(a: GradedTaskNode, b: GradedTaskNode, names: tuple[str, str] = ("A", "B")) -> list[str]:
    """Return a form for the judge `human` of the leaves on which two gradings of one submission differ.

    What each says of a leaf stands above its entry.

    Raises:
        GradeError: Two leaves of one tree have the same path.
    """
    lines: list[str] = []
    for both in differing_leaves(a, b):
        notes = [
            f"{name}: {'no grade' if leaf.graded_score is None else f'{leaf.graded_score:g}'}, "
            f"{printable_line(leaf.explanation, _MAX_REASON)}"
            for name, leaf in zip(names, both, strict=True)
        ]
        lines += form_lines(both[0].path, both[0].requirements, notes)
    return lines


def agreement_lines(result: Agreement) -> Iterator[str]:
    """Yield a table of the measures, the leaves left out, and the leaves on which the two gradings disagree."""
    yield (
        f"a leaf passes with a score above {PASSED:g}; "
        f"intervals hold {LEVEL:.0%} of {result.resamples} resamples of the leaves, seed {result.seed}"
    )
    yield ""
    yield f"{'':28} {'leaves':>6}  {'accuracy':22} {'macro F1':22} {'kappa':22} {'pass: both, A, B, none':>22}  |A - B|"
    for name, figures in {"all": result.overall, **result.by_category}.items():
        cells = ", ".join(map(str, vars(figures.confusion).values()))
        measures = (measure_text(measure) for measure in (figures.accuracy, figures.macro_f1, figures.kappa))
        columns = " ".join(f"{text:22}" for text in measures)
        yield f"{name:28} {figures.leaves:6}  {columns} {cells:>22}  {_value(figures.score_difference):>7}"
    yield ""
    yield f"the roots' scores differ by {_value(result.root_difference)} (mean of absolute differences)"
    yield from agreement_notes(result)
    yield from uncompared_lines(result)
    if result.disagreements:
        yield f"disagreements: {len(result.disagreements)}"
        scores = [f"  A {leaf.a:.2f}  B {leaf.b:.2f}  {result.criteria[leaf.path]}" for leaf in result.disagreements]
        yield from first_lines(scores)


def uncompared_lines(result: Agreement) -> Iterator[str]:
    """Yield how many leaves were compared, and the first of those that were not, by why."""
    yield f"compared {result.overall.leaves} of {result.overall.leaves + result.num_uncompared} leaves"
    for why, paths in result.uncompared.items():
        if paths:
            yield f"  {UNCOMPARED_WORDS[why]}: {len(paths)}"
            yield from first_lines([f"    {result.criteria[path]}" for path in paths])


def agreement_notes(result: Agreement) -> list[str]:
    """Return what a reader must know of the figures: why some are not defined, and which scores were cut."""
    notes = [
        line
        for name, figures in {"all": result.overall, **result.by_category}.items()
        for kind, measure in (("accuracy", figures.accuracy), ("kappa", figures.kappa))
        for line in _notes(f"{name}, {kind}: ", measure)
    ]
    if result.overall.between_a or result.overall.between_b:
        between = f"{result.overall.between_a} in A, {result.overall.between_b} in B"
        notes.append(f"scores between 0 and 1, which were cut at {PASSED:g}: {between}")
    return [*notes, *_notes("", result.root_difference)]


def first_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines of one kind, and how many more there are."""
    yield from map(cut, lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"    and {len(lines) - _SHOWN} more; --json names all"


def measure_text(measure: Measure, digits: int = 3) -> str:
    """Return a figure and its interval, `0.720 [0.560, 0.890]`."""
    interval = measure.interval
    return _value(measure, digits) + (f" [{interval.low:.{digits}f}, {interval.high:.{digits}f}]" if interval else "")


def _value(measure: Measure, digits: int = 3) -> str:
    return "-" if measure.value is None else f"{measure.value:.{digits}f}"


def _notes(name: str, measure: Measure) -> Iterator[str]:
    if measure.note:
        yield f"{name}{measure.note}"
    if measure.interval and measure.interval.undefined:
        yield f"{name}the interval leaves out {count(measure.interval.undefined, 'resample')} without a value"
