"""How far two gradings by the same rubric agree, leaf by leaf: may a model judge where people did before?

Each leaf counts once, whatever its weight. A score above 0.5 counts as passed and any other as failed; how many scores
lie between 0 and 1 (checks, votes, pruned nodes), and how far the uncut scores lie apart, is reported beside. Leaves
can be compared where both gradings have them, by the same criterion and with a grade; all others are named. Precision
and recall take B for the truth; no other figure depends on which is A.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.console import count
from pcgeval.core.untrusted import printable_line
from pcgeval.rubric.grades import PASSED, GradedTaskNode
from pcgeval.rubric.text import cut, form_lines
from pcgeval.rubric.tree import CATEGORIES

LEVEL = 0.90  # of the intervals, as in the ranking
RESAMPLES, SEED = 1000, 0  # of the leaves, for the intervals
NO_CATEGORY = "no category"  # nodes that stand for a pruned part of the tree
UNCOMPARED_WORDS = {
    "missing_in_a": "only in B",
    "missing_in_b": "only in A",
    "invalid_in_a": "not graded in A",
    "invalid_in_b": "not graded in B",
    "other_criterion": "with another criterion",
}
FIGURE_COLUMNS = (
    "category",
    "leaves",
    "accuracy",
    "precision",
    "recall",
    "macro F1",
    "kappa",
    "pass: both, A, B, none",
)
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

    def __str__(self) -> str:
        """Return the figure and its interval, `0.72 [0.56, 0.89]`."""
        value = "-" if self.value is None else f"{self.value:.2f}"
        return value + (f" [{self.interval.low:.2f}, {self.interval.high:.2f}]" if self.interval else "")

    def notes(self, name: str) -> Iterator[str]:
        """Yield what a reader must know of the figure with this name."""
        if self.note:
            yield f"{name}: {self.note}"
        if self.interval and self.interval.undefined:
            yield f"{name}: the interval leaves out {count(self.interval.undefined, 'resample')} without a value"


@dataclass(frozen=True)
class Confusion:
    """How many leaves passed with both, with one alone, or with none."""

    both_pass: int
    only_a: int
    only_b: int
    both_fail: int


@dataclass(frozen=True)
class Figures:
    """The agreement over some leaves; "both" are the leaves of a class, pass or fail, on which A and B agree.

    Precision, recall and F1 are means over the classes that occur, with 0 for a class that one of the two lacks.
    """

    leaves: int
    confusion: Confusion
    accuracy: Measure  # the share of leaves that both pass or both fail
    precision: Measure  # both / number in A: how often A is right if B is the truth
    recall: Measure  # both / number in B: how much of B's classes A finds
    macro_f1: Measure  # 2 both / (number in A + number in B)
    kappa: Measure  # Cohen's (accuracy - chance) / (1 - chance), chance from how often each grading passes a leaf
    score_difference: Measure  # the mean of |a - b| over the uncut scores
    between_a: int  # scores of A between 0 and 1
    between_b: int

    def cells(self, category: str) -> tuple[str, ...]:
        """Return the cells of `FIGURE_COLUMNS`."""
        measures = (self.accuracy, self.precision, self.recall, self.macro_f1, self.kappa)
        passed = ", ".join(map(str, vars(self.confusion).values()))
        return category, str(self.leaves), *map(str, measures), passed


@dataclass(frozen=True)
class ComparedLeaf:
    """A leaf that both gradings scored, and both scores."""

    path: str
    category: str
    a: float
    b: float


@dataclass(frozen=True)
class Agreement:
    """The agreement of two gradings, or of several pairs taken together."""

    overall: Figures
    by_category: Mapping[str, Figures]
    root_difference: Measure  # the mean of the absolute differences of the roots' scores
    uncompared: Mapping[str, Sequence[str]]  # paths by `UNCOMPARED_WORDS`; one that neither graded stands twice
    disagreements: Sequence[ComparedLeaf]  # the leaves that one passes and the other fails
    criteria: Mapping[str, str]  # by path

    @property
    def groups(self) -> dict[str, Figures]:
        """The figures over all leaves, as `all`, and of each category."""
        return {"all": self.overall, **self.by_category}

    def to_json(self) -> dict[str, Any]:
        """Return all of it but the criteria as JSON values; nothing is NaN."""
        values = {name: value for name, value in asdict(self).items() if name != "criteria"}
        return {"level": LEVEL, "resamples": RESAMPLES, "seed": SEED, **values}


@dataclass(frozen=True)
class Pair:
    """Two gradings of one submission; `name` stands before the paths where there are several pairs."""

    name: str
    a: GradedTaskNode
    b: GradedTaskNode


def agreement(pairs: Sequence[Pair]) -> Agreement:
    """Compare pairs of gradings, their leaves matched by path, as if all leaves were of one tree."""
    compared: list[ComparedLeaf] = []
    uncompared: dict[str, list[str]] = {reason: [] for reason in UNCOMPARED_WORDS}
    criteria: dict[str, str] = {}
    for pair in pairs:
        in_a, in_b = _by_path(pair.a), _by_path(pair.b)
        prefix = f"{pair.name}: " if pair.name else ""
        for path, leaf in {**in_a, **in_b}.items():  # in the order of the rubric of A, then the leaves that only B has
            name, a, b = f"{prefix}{path}", in_a.get(path), in_b.get(path)
            criteria[name] = f"{prefix}{leaf.requirements}"
            if a is None or b is None:
                uncompared["missing_in_a" if a is None else "missing_in_b"].append(name)
            elif a.requirements != b.requirements:
                uncompared["other_criterion"].append(name)
            elif a.valid_score and b.valid_score:
                category = a.task_category or b.task_category or NO_CATEGORY
                compared.append(ComparedLeaf(name, category, a.score, b.score))
            else:
                uncompared["invalid_in_a"] += [] if a.valid_score else [name]
                uncompared["invalid_in_b"] += [] if b.valid_score else [name]
    categories = [*CATEGORIES, *sorted({leaf.category for leaf in compared} - {*CATEGORIES})]
    groups = {category: [leaf for leaf in compared if leaf.category == category] for category in categories}
    return Agreement(
        overall=_figures(compared),
        by_category={name: _figures(leaves) for name, leaves in groups.items() if leaves},
        root_difference=_root_difference(pairs),
        uncompared=uncompared,
        disagreements=[leaf for leaf in compared if (leaf.a > PASSED) != (leaf.b > PASSED)],
        criteria=criteria,
    )


def _by_path(tree: GradedTaskNode) -> dict[str, GradedTaskNode]:
    return {leaf.path: leaf for leaf in tree.leaves}


def _root_difference(pairs: Sequence[Pair]) -> Measure:
    differences = [abs(pair.a.score - pair.b.score) for pair in pairs if pair.a.valid_score and pair.b.valid_score]
    if lacking := len(pairs) - len(differences):
        return Measure(None, note=f"{lacking} of {len(pairs)} pairs have a root without a grade")
    return Measure(float(np.mean(differences)))


def _figures(leaves: Sequence[ComparedLeaf]) -> Figures:
    """Work out all measures, with intervals from leaves drawn with replacement."""
    number = len(leaves)
    a, b = np.array([leaf.a for leaf in leaves]), np.array([leaf.b for leaf in leaves])
    cells = 2 * (a <= PASSED) + (b <= PASSED)  # in the order of Confusion
    drawn = np.random.default_rng(SEED).integers(max(1, number), size=(RESAMPLES if number > 1 else 0, number))
    rows = np.vstack([np.arange(number), drawn])  # the leaves themselves, and the resamples
    counts = np.stack([(cells[rows] == cell).sum(axis=1) for cell in range(4)])
    values = _measures(counts.astype(np.float64))
    values["score_difference"] = _divided(np.abs(a - b)[rows].sum(axis=1), np.full(len(rows), float(number)))
    confusion = Confusion(*counts[:, 0].tolist())
    notes = {"accuracy": _accuracy_note(confusion), "kappa": _kappa_note(confusion)}
    return Figures(
        leaves=number,
        confusion=confusion,
        **{
            name: Measure(
                None if np.isnan(measured[0]) else float(measured[0]),
                _interval(measured[1:]),
                notes.get(name, "") if leaves else "no leaf could be compared",
            )
            for name, measured in values.items()
        },
        between_a=int(((a > 0) & (a < 1)).sum()),
        between_b=int(((b > 0) & (b < 1)).sum()),
    )


def _measures(counts: Floats) -> dict[str, Floats]:
    """Return the measures for each column of counts (4, R); NaN where one is not defined."""
    both_pass, only_a, only_b, both_fail = counts
    whole, agreed = counts.sum(axis=0), both_pass + both_fail
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


def agreement_lines(result: Agreement) -> Iterator[str]:
    """Yield what stands below the figures: their notes, the leaves left out, and those on which A and B disagree."""
    whole = result.overall
    yield (
        f"a leaf passes with a score above {PASSED:g}; "
        f"intervals hold {LEVEL:.0%} of {RESAMPLES} resamples of the leaves, seed {SEED}"
    )
    for name, measure in (("scores of the leaves", whole.score_difference), ("roots' scores", result.root_difference)):
        mean = "-" if measure.value is None else f"{measure.value:.3f} (mean of absolute differences)"
        yield f"the {name} differ by {mean}"
    for name, figures in result.groups.items():
        yield from figures.accuracy.notes(f"{name}, accuracy")
        yield from figures.kappa.notes(f"{name}, kappa")
    if whole.between_a or whole.between_b:
        yield f"scores between 0 and 1, which were cut at {PASSED:g}: {whole.between_a} in A, {whole.between_b} in B"
    yield from result.root_difference.notes("roots")
    yield from uncompared_lines(result)
    if result.disagreements:
        yield f"disagreements: {len(result.disagreements)}"
        yield from first_lines(
            [f"  A {leaf.a:.2f}  B {leaf.b:.2f}  {result.criteria[leaf.path]}" for leaf in result.disagreements]
        )


def uncompared_lines(result: Agreement) -> Iterator[str]:
    """Yield how many leaves were compared, and the first of those that were not, by reason."""
    yield f"compared {result.overall.leaves} of {len(result.criteria)} leaves"
    for reason, paths in result.uncompared.items():
        if paths:
            yield f"  {UNCOMPARED_WORDS[reason]}: {len(paths)}"
            yield from first_lines([f"    {result.criteria[path]}" for path in paths])


def first_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the first lines of one kind, and how many more there are."""
    yield from map(cut, lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"    and {len(lines) - _SHOWN} more; --json names all"


def differing_leaves(a: GradedTaskNode, b: GradedTaskNode) -> list[tuple[GradedTaskNode, GradedTaskNode]]:
    """Return the leaves that one of two gradings passes and the other fails, or that one alone has graded."""
    in_b = _by_path(b)
    both = [(leaf, in_b[leaf.path]) for leaf in a.leaves if leaf.path in in_b]
    return [(x, y) for x, y in both if x.requirements == y.requirements and x.outcome != y.outcome]


def disagreement_form(a: GradedTaskNode, b: GradedTaskNode, names: tuple[str, str] = ("A", "B")) -> list[str]:
    """Return a form for the judge `human` of the leaves on which two gradings differ, with the reasons of both."""
    lines: list[str] = []
    for both in differing_leaves(a, b):
        notes = [
            f"{name}: {f'{leaf.score:g}' if leaf.valid_score else 'no grade'}, "
            f"{printable_line(leaf.explanation, _MAX_REASON)}"
            for name, leaf in zip(names, both, strict=True)
        ]
        lines += form_lines(both[0].path, both[0].requirements, notes)
    return lines
