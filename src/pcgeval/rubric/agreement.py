"""How far two gradings by the same rubric agree, leaf by leaf: may a model judge where people did before?

Each leaf counts once, whatever its weight. A score above 0.5 counts as passed and any other as failed. Leaves can be
compared where both gradings have them, by the same criterion and with a grade; all others are named. Precision and
recall take B for the truth; no other figure depends on which is A.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.text import markdown_table, one_line
from pcgeval.rubric.explanation import call_words, dollars, shown_line
from pcgeval.rubric.grades import PASSED, CallUsage, GradedTaskNode
from pcgeval.rubric.output import EvidenceCount, JudgeOutput
from pcgeval.rubric.tree import CATEGORIES

_OF_MODEL = ("model", "prompts", "prompt_version", "votes")  # the same in all gradings

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
CONFUSION = ("both_pass", "only_a", "only_b", "both_fail")  # who passed a leaf
FIGURE_COLUMNS = (
    *("category", "leaves", "accuracy", "precision", "recall", "macro F1", "kappa"),
    "pass: both, A, B, none",
)
METHOD = f"intervals hold {LEVEL:.0%} of {RESAMPLES} resamples of the leaves, seed {SEED}"
_DIGITS = 6  # of an interval's ends: far above what the order of float sums can change
_SHOWN = 20  # leaves of one kind in the text

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measure:
    """A figure, and the central 90 % of it over resamples of the leaves; None if it is not defined."""

    value: float | None
    interval: Mapping[str, float] | None  # `low` and `high`

    def __str__(self) -> str:
        """Return the figure and its interval, `0.72 [0.56, 0.89]`."""
        value = "-" if self.value is None else f"{self.value:.2f}"
        return value + (f" [{self.interval['low']:.2f}, {self.interval['high']:.2f}]" if self.interval else "")


@dataclass(frozen=True)
class Figures:
    """The agreement over some leaves; "both" are the leaves of a class, pass or fail, on which A and B agree.

    Precision, recall and F1 are means over the classes that occur, with 0 for a class that one of the two lacks.
    """

    leaves: int
    confusion: Mapping[str, int]  # by `CONFUSION`
    accuracy: Measure  # the share of leaves that both pass or both fail
    precision: Measure  # both / number in A: how often A is right if B is the truth
    recall: Measure  # both / number in B: how much of B's classes A finds
    macro_f1: Measure  # 2 both / (number in A + number in B)
    kappa: Measure  # Cohen's (accuracy - chance) / (1 - chance), chance from how often each grading passes a leaf

    def cells(self, category: str) -> tuple[str, ...]:
        """Return the cells of `FIGURE_COLUMNS`."""
        measures = (self.accuracy, self.precision, self.recall, self.macro_f1, self.kappa)
        passed = ", ".join(map(str, self.confusion.values()))
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
    uncompared: Mapping[str, Sequence[str]]  # paths by `UNCOMPARED_WORDS`; one that neither graded stands twice
    disagreements: Sequence[ComparedLeaf]  # the leaves that one passes and the other fails
    criteria: Mapping[str, str]  # by path

    @property
    def groups(self) -> dict[str, Figures]:
        """The figures over all leaves, as `all`, and of each category."""
        return {"all": self.overall, **self.by_category}

    def to_json(self) -> dict[str, Any]:
        """Return all of it but the criteria as JSON values."""
        values = {name: value for name, value in asdict(self).items() if name != "criteria"}
        return {"level": LEVEL, "resamples": RESAMPLES, "seed": SEED, **values}

    def lines(self) -> Iterator[str]:
        """Yield the leaves left out, and those on which A and B disagree."""
        yield f"compared {self.overall.leaves} of {len(self.criteria)} leaves"
        for reason, paths in self.uncompared.items():
            if paths:
                yield f"  {UNCOMPARED_WORDS[reason]}: {len(paths)}"
                yield from _first([f"    {self.criteria[path]}" for path in paths])
        yield f"disagreements: {len(self.disagreements)}"
        differing = self.disagreements
        yield from _first([f"  A {leaf.a:.2f}  B {leaf.b:.2f}  {self.criteria[leaf.path]}" for leaf in differing])


def _first(lines: Sequence[str]) -> Iterator[str]:
    yield from map(shown_line, lines[:_SHOWN])
    if len(lines) > _SHOWN:
        yield f"    and {len(lines) - _SHOWN} more; --json names all"


def agreement(pairs: Mapping[str, tuple[GradedTaskNode, GradedTaskNode]]) -> Agreement:
    """Compare pairs of gradings, their leaves matched by path, as if all leaves were of one tree.

    The name of a pair is a prefix of its paths; that of a single pair may be empty.
    """
    compared: list[ComparedLeaf] = []
    uncompared: dict[str, list[str]] = {reason: [] for reason in UNCOMPARED_WORDS}
    criteria: dict[str, str] = {}
    for name, trees in pairs.items():
        in_a, in_b = ({leaf.path: leaf for leaf in tree.leaves} for tree in trees)
        prefix = f"{name}: " if name else ""
        for path, leaf in {**in_a, **in_b}.items():  # in the order of the rubric of A, then the leaves that only B has
            place, a, b = f"{prefix}{path}", in_a.get(path), in_b.get(path)
            criteria[place] = f"{prefix}{leaf.requirements}"
            if a is None or b is None:
                uncompared["missing_in_a" if a is None else "missing_in_b"].append(place)
            elif a.requirements != b.requirements:
                uncompared["other_criterion"].append(place)
            elif a.valid_score and b.valid_score:
                category = a.task_category or b.task_category or NO_CATEGORY
                compared.append(ComparedLeaf(place, category, a.score, b.score))
            else:
                uncompared["invalid_in_a"] += [] if a.valid_score else [place]
                uncompared["invalid_in_b"] += [] if b.valid_score else [place]
    categories = [*CATEGORIES, *sorted({leaf.category for leaf in compared} - {*CATEGORIES})]
    groups = {category: [leaf for leaf in compared if leaf.category == category] for category in categories}
    return Agreement(
        overall=_figures(compared),
        by_category={name: _figures(leaves) for name, leaves in groups.items() if leaves},
        uncompared=uncompared,
        disagreements=[leaf for leaf in compared if (leaf.a > PASSED) != (leaf.b > PASSED)],
        criteria=criteria,
    )


def _figures(leaves: Sequence[ComparedLeaf]) -> Figures:
    """Work out all measures, with intervals from leaves drawn with replacement."""
    number = len(leaves)
    cells = np.array([2 * (leaf.a <= PASSED) + (leaf.b <= PASSED) for leaf in leaves])  # in the order of CONFUSION
    drawn = np.random.default_rng(SEED).integers(max(1, number), size=(RESAMPLES if number > 1 else 0, number))
    rows = np.vstack([np.arange(number), drawn])  # the leaves themselves, and the resamples
    counts = np.stack([(cells[rows] == cell).sum(axis=1) for cell in range(4)])
    measures = [_measure(values) for values in _measures(counts.astype(np.float64))]
    return Figures(number, dict(zip(CONFUSION, counts[:, 0].tolist(), strict=True)), *measures)


def _measures(counts: Floats) -> tuple[Floats, ...]:
    """Return the measures of `Figures` for each column of counts (4, R); NaN where one is not defined."""
    both_pass, only_a, only_b, both_fail = counts
    whole, agreed = counts.sum(axis=0), both_pass + both_fail
    both = np.stack([both_pass, both_fail])  # by class: pass and fail
    in_a, in_b = both + np.stack([only_a, only_b]), both + np.stack([only_b, only_a])
    occurring = (in_a + in_b > 0).sum(axis=0)
    # Cohen 1960, in whole numbers times 1 / n^2, so that a chance of exactly 1 is seen as such
    chance = (in_a * in_b).sum(axis=0)
    with np.errstate(invalid="ignore"):  # 0 / 0 is NaN; nothing else is divided by 0
        macro = [np.nan_to_num(both / below).sum(axis=0) / occurring for below in (in_a, in_b, (in_a + in_b) / 2)]
        return agreed / whole, *macro, (whole * agreed - chance) / (whole * whole - chance)


def _measure(values: Floats) -> Measure:
    """Return the first value with the interval of the others, without those that are not defined."""
    value, defined = values[0], values[1:][~np.isnan(values[1:])]
    interval = None
    if defined.size:
        low, high = np.quantile(defined, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).round(_DIGITS).tolist()
        interval = {"low": low, "high": high}
    return Measure(None if np.isnan(value) else float(value), interval)


@dataclass(frozen=True)
class JudgeFigures:
    """How well one judge grades: its gradings by the example, and their agreement, as A, with people's, as B."""

    name: str
    outputs: Mapping[str, JudgeOutput]
    agreement: Agreement
    usage: CallUsage  # of all gradings
    cost: float | None  # of all gradings in US dollars; None where it is unknown, and without a model
    invalid: int  # leaves to which the judge gave no grade

    @classmethod
    def of(cls, name: str, outputs: Mapping[str, JudgeOutput], people: Mapping[str, GradedTaskNode]) -> "JudgeFigures":
        """Compare a judge's gradings with people's, both by the example, the leaves of all taken together."""
        costs = [output.cost for output in outputs.values() if output.cost is not None]
        return cls(
            name,
            outputs,
            agreement({id_: (output.graded_task_tree, people[id_]) for id_, output in outputs.items()}),
            usage=reduce(CallUsage.plus, (output.token_usage.total for output in outputs.values()), CallUsage()),
            cost=round(sum(costs), 6) if costs and len(costs) == len(outputs) else None,
            invalid=sum(output.num_invalid_leaf_nodes for output in outputs.values()),
        )

    def to_json(self) -> dict[str, Any]:
        """Return all of it but the graded trees as JSON values."""
        first = next(iter(self.outputs.values()))
        return {
            "judge": first.judge_type,
            **{name: getattr(first, name) for name in _OF_MODEL},
            "scores": {id_: output.score for id_, output in self.outputs.items()},
            "evidence": {id_: output.evidence_share for id_, output in self.outputs.items()},
            "leaves_without_a_grade": self.invalid,
            "agreement": self.agreement.to_json(),
            "usage": self.usage.model_dump(),
            "cost": self.cost,
            "warnings": {id_: list(output.warnings) for id_, output in self.outputs.items() if output.warnings},
        }

    @property
    def cost_line(self) -> str:
        """The leaves without a grade and the cost of all gradings in words."""
        line = f"{self.name}: {self.invalid} leaves without a grade"
        if counts := [output.evidence for output in self.outputs.values() if output.evidence]:
            line += f", {EvidenceCount(*map(sum, zip(*counts, strict=True))).words}"
        if not self.usage.calls:
            return line
        price = "price unknown" if self.cost is None else f"{dollars(self.cost)} US dollars"
        return f"{line}, {call_words(self.usage)}, {price}"


def judge_eval_json(people: Mapping[str, GradedTaskNode], judges: Sequence[JudgeFigures]) -> dict[str, Any]:
    """Return the figures of several judges as JSON values; `people` are people's grades by the example."""
    return {
        "level": LEVEL,
        "examples": {id_: {"leaves": len(tree.leaves), "score": tree.score} for id_, tree in people.items()},
        "judges": {judge.name: judge.to_json() for judge in judges},
    }


def judge_eval_lines(people: Mapping[str, GradedTaskNode], judges: Sequence[JudgeFigures]) -> Iterator[str]:
    """Yield the same as a table in Markdown, and the leaves that were left out or differ."""
    number = sum(len(tree.leaves) for tree in people.values())
    yield (
        f"{len(people)} submissions that people graded, {number} leaves; a leaf passes above {PASSED:g}; "
        f"precision, recall and F1 are means over the classes pass and fail; {METHOD}"
    )
    yield ""
    rows = [
        (judge.name, *figures.cells(group)) for judge in judges for group, figures in judge.agreement.groups.items()
    ]
    yield from markdown_table(("judge", *FIGURE_COLUMNS), rows, ("judge", "category"))
    yield ""
    yield from (one_line(judge.cost_line) for judge in judges)
    for judge in judges:
        yield f"{judge.name} (A) and people (B):"
        yield from (f"  {line}" for line in judge.agreement.lines())
