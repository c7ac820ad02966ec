"""The figures of judges that graded submissions which people have graded, as JSON values and as tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pcgeval.core.untrusted import one_line
from pcgeval.rubric.agreement import FIGURE_COLUMNS, LEVEL, METHOD, Agreement, agreement
from pcgeval.rubric.explanation import call_words, dollars
from pcgeval.rubric.grades import PASSED, EvidenceCount, GradedTaskNode, JudgeOutput
from pcgeval.rubric.record import CallUsage

_OF_MODEL = ("model", "prompts", "prompt_version", "votes")  # the same in all gradings


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
    rows: list[tuple[str, ...]] = [("judge", *FIGURE_COLUMNS)]
    for judge in judges:
        rows += [(judge.name, *figures.cells(group)) for group, figures in judge.agreement.groups.items()]
    cells = [[one_line(cell).replace("|", "\\|") for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    head, *body = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in cells]
    yield from (head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body, "")
    yield from (one_line(judge.cost_line) for judge in judges)
    for judge in judges:
        yield f"{judge.name} (A) and people (B):"
        yield from (f"  {line}" for line in judge.agreement.lines())
