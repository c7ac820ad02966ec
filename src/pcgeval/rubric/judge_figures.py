"""The figures of judges that graded submissions which people have graded, as JSON values and as tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pcgeval.core.untrusted import one_line
from pcgeval.rubric.agreement import (
    FIGURE_COLUMNS,
    LEVEL,
    RESAMPLES,
    SEED,
    Agreement,
    Pair,
    agreement,
    differing_leaves,
    first_lines,
    uncompared_lines,
)
from pcgeval.rubric.grades import HEURISTIC, PASSED, GradedTaskNode, JudgeOutput
from pcgeval.rubric.record import CallUsage

_COSTS = ("judge", "votes", "no grade", "roots apart", "calls", "tokens read", "cached", "written", "cost", "time")


@dataclass(frozen=True)
class JudgeFigures:
    """How well one judge grades: its gradings by the example, and their agreement, as A, with people's, as B."""

    name: str
    outputs: Mapping[str, JudgeOutput]
    agreement: Agreement

    @classmethod
    def of(cls, name: str, outputs: Mapping[str, JudgeOutput], people: Mapping[str, GradedTaskNode]) -> "JudgeFigures":
        """Compare a judge's gradings with people's, both by the example, the leaves of all taken together."""
        pairs = [Pair(id_, output.graded_task_tree, people[id_]) for id_, output in outputs.items()]
        return cls(name, outputs, agreement(pairs))

    @property
    def usage(self) -> CallUsage:
        """The calls of all gradings."""
        return reduce(CallUsage.plus, (output.token_usage.total for output in self.outputs.values()), CallUsage())

    @property
    def cost(self) -> float | None:
        """The price of all gradings in US dollars; None where it is unknown, and without a model."""
        costs = [output.cost for output in self.outputs.values() if output.cost is not None]
        return round(sum(costs), 6) if costs and len(costs) == len(self.outputs) else None

    @property
    def invalid(self) -> int:
        """The number of leaves to which the judge gave no grade."""
        return sum(output.num_invalid_leaf_nodes for output in self.outputs.values())

    @property
    def is_partial(self) -> bool:
        """Whether calls failed, so that a second run could grade leaves that have no grade."""
        return any(output.partial or output.judge_type == HEURISTIC for output in self.outputs.values())

    def to_json(self) -> dict[str, Any]:
        """Return all of it but the graded trees as JSON values."""
        first = next(iter(self.outputs.values()))
        return {
            "judge": first.judge_type,
            "model": first.model,
            "prompts": first.prompts,
            "prompt_version": first.prompt_version,
            "votes": first.votes,
            "scores": {id_: output.score for id_, output in self.outputs.items()},
            "leaves_without_a_grade": self.invalid,
            "agreement": self.agreement.to_json(),
            "usage": self.usage.model_dump(),
            "cost": self.cost,
            "warnings": {id_: list(output.warnings) for id_, output in self.outputs.items() if output.warnings},
        }

    def cost_cells(self) -> tuple[str, ...]:
        """Return the judge's row of the table of costs."""
        usage, cost, apart = self.usage, self.cost, self.agreement.root_difference.value
        return (
            self.name,
            str(max(output.votes for output in self.outputs.values())),
            str(self.invalid),
            "-" if apart is None else f"{apart:.3f}",
            str(usage.calls),
            f"{'about ' * usage.estimated}{usage.prompt_tokens}",
            f"{usage.cached_tokens / usage.prompt_tokens:.0%}" if usage.prompt_tokens else "-",
            str(usage.output_tokens),
            "-" if cost is None else f"{cost:.2f} $, {cost / len(self.outputs):.2f} $ each",
            f"{usage.seconds:.0f} s",
        )


def judge_eval_json(people: Mapping[str, GradedTaskNode], judges: Sequence[JudgeFigures]) -> dict[str, Any]:
    """Return the figures of several judges as JSON values, of two judges also the leaves on which they differ.

    `people` are people's grades by the example.
    """
    values = {
        "level": LEVEL,
        "examples": {id_: {"leaves": len(tree.leaves), "score": tree.score} for id_, tree in people.items()},
        "judges": {judge.name: judge.to_json() for judge in judges},
    }
    if len(judges) == 2:
        values["differing"] = [
            {"example": id_, "path": one.path, "scores": [one.graded_score, other.graded_score]}
            for id_, one, other in _differing(*judges)
        ]
    return values


def judge_eval_lines(people: Mapping[str, GradedTaskNode], judges: Sequence[JudgeFigures]) -> Iterator[str]:
    """Yield the same as tables in Markdown."""
    number = sum(len(tree.leaves) for tree in people.values())
    yield (
        f"{len(people)} submissions that people graded, {number} leaves; a leaf passes above {PASSED:g}; "
        f"precision, recall and F1 are means over the classes pass and fail; intervals hold {LEVEL:.0%} of "
        f"{RESAMPLES} resamples of the leaves, seed {SEED}"
    )
    yield ""
    groups = [(judge.name, *group) for judge in judges for group in judge.agreement.groups.items()]
    yield from _table(("judge", *FIGURE_COLUMNS), [(name, *figures.cells(group)) for name, group, figures in groups])
    yield from _table(_COSTS, [judge.cost_cells() for judge in judges])
    for judge in judges:
        yield f"{judge.name}:"
        yield from (f"  {line}" for line in uncompared_lines(judge.agreement))
    if len(judges) == 2:
        first, second = (judge.name for judge in judges)
        lines = [
            f"  {first} {_score(one)}  {second} {_score(other)}  {id_}: {one.requirements}"
            for id_, one, other in _differing(*judges)
        ]
        yield f"{first} and {second} differ on {len(lines)} leaves; `pcgeval rubric agreement A B --form` prints a form"
        yield from first_lines(lines)


def _differing(one: JudgeFigures, other: JudgeFigures) -> Iterator[tuple[str, GradedTaskNode, GradedTaskNode]]:
    for id_, output in one.outputs.items():
        for both in differing_leaves(output.graded_task_tree, other.outputs[id_].graded_task_tree):
            yield id_, *both


def _score(leaf: GradedTaskNode) -> str:
    return f"{leaf.score:g}" if leaf.valid_score else "-"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table, each column as wide as its widest cell, and an empty line."""
    cells = [columns, *([one_line(cell).replace("|", "\\|") for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *body = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    yield from (head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body, "")
