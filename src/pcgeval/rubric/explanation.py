"""Explain a grade: the share of the root's score that a criterion decides, and lines for the terminal.

Text of submissions and models is made printable.
"""

import difflib
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pcgeval.core.files import to_json
from pcgeval.core.text import count, one_line, truncate
from pcgeval.rubric.grades import CallUsage, GradedTaskNode, GradeError, added_up, foreign_text, record_of
from pcgeval.rubric.output import JudgeOutput, get_grade_summary

WIDTH = 120
_INDENT = " " * 7


@dataclass(frozen=True)
class NodeShare:
    """A node, its number in the rubric such as `2.1`, and the share of the root's score that it decides.

    `share` is from 0 to 1: the node's weight among its siblings, times the share of the node above. The root has no
    number.
    """

    node: GradedTaskNode
    share: float = 1.0
    number: str = ""

    @property
    def contribution(self) -> float:
        """The part of the root's score that the node adds; the contributions of all leaves add up to it."""
        return self.share * self.node.score

    @property
    def below(self) -> tuple["NodeShare", ...]:
        """The sub-tasks with their shares."""
        weights = added_up(task.weight for task in self.node.sub_tasks)
        prefix = f"{self.number}." if self.number else ""
        return tuple(
            NodeShare(task, self.share * task.weight / weights if weights else 0.0, f"{prefix}{number}")
            for number, task in enumerate(self.node.sub_tasks, start=1)
        )

    def walk(self) -> Iterator["NodeShare"]:
        """Yield the node and all below it in the order of the rubric."""
        yield self
        for part in self.below:
            yield from part.walk()

    def to_json(self) -> dict[str, Any]:
        """Return the node without its sub-tasks as JSON values."""
        values = {name: getattr(self.node, name) for name in ("path", "requirements", "weight", "score", "valid_score")}
        return {"number": self.number, **values, "share": self.share, "contribution": self.contribution}


def reasons_without_grade(tree: GradedTaskNode) -> list[tuple[str, int]]:
    """Return the reasons why leaves have no grade with their numbers, the commonest first."""
    return Counter(leaf.explanation for leaf in tree.leaves if not leaf.valid_score).most_common()


def way_to(tree: GradedTaskNode, name: str) -> tuple[NodeShare, ...]:
    """Return the nodes from the root to the one with this number or path, or with a path that alone ends so.

    Raises GradeError if no node is named so, or several are.
    """
    parts = {part.node.path: part for part in NodeShare(tree).walk()}
    matches = [path for path, part in parts.items() if name in (path, part.number)]
    matches = matches or [path for path in parts if path.endswith(f"/{name}")]
    if len(matches) != 1:
        close = matches[:5] or difflib.get_close_matches(name, parts, n=1, cutoff=0.4)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise GradeError(f"no one criterion has the number or path {name!r:.200}.{hint}")
    return tuple(part for path, part in parts.items() if f"{matches[0]}/".startswith(f"{path}/"))


def summary_lines(output: JudgeOutput) -> list[str]:
    """Return the lines that stand above a tree: warnings, the score and its judge, the numbers of leaves, the cost."""
    counts, usage = get_grade_summary(output), output.token_usage.total
    lines = [f"WARNING: {warning}" for warning in output.warnings]
    lines.append(f"{output.score:.3f} by the judge {output.judge_type}")
    if output.model:
        lines[-1] += f" with the model {output.model}"
        prompts = " ".join(filter(None, (output.prompts, output.prompt_version or "unknown")))
        answered = f"answered as {', '.join(output.answered_by)}, " if output.answered_by else ""
        lines += [f"{answered}model digest {output.model_digest or 'unknown'}, prompts {prompts}, votes {output.votes}"]
    if output.reproduction:
        lines.append(output.reproduction.words)
    lines.append(
        f"{count(output.num_leaf_nodes, 'leaf', 'leaves')}: {counts['passed']} passed, {counts['failed']} failed "
        f"({counts['partial']} of them between 0 and 1), {counts['invalid']} without a grade"
    )
    if counts["invalid"]:
        lines[-1] += f", which count as 0; if they had passed, the score would be {output.score_bounds.high:.3f}"
    if output.evidence:
        lines[-1] += f"; {output.evidence.words}"
    if usage.calls:
        lines.append(call_words(usage))
        lines[-1] += "" if output.cost is None else f", about {dollars(output.cost)} US dollars"
    return list(map(one_line, lines))


def tree_lines(tree: GradedTaskNode) -> Iterator[str]:
    """Yield a line for a node (score, share of the root's score, number, criterion), and below a leaf the reason.

    If no leaf has a grade, yield only the reasons.
    """
    if tree.graded_score is None:
        for reason, number in reasons_without_grade(tree):
            yield shown_line(f"{count(number, 'leaf', 'leaves')} without a grade: {reason}")
        return
    for part in NodeShare(tree).walk():
        yield _node_line(part)
        if part.node.is_leaf:
            yield shown_line(f"{' ' * 16}{_indent(part)}{part.node.explanation}")


def criterion_lines(output: JudgeOutput, way: Sequence[NodeShare]) -> Iterator[str]:
    """Yield the explanation of a criterion: the nodes from the root to it, then the judge's record."""
    last, node = way[-1], way[-1].node
    yield from [*summary_lines(output), "", *map(_node_line, way), *map(_node_line, last.below), ""]
    yield from textwrap.wrap(one_line(node.requirements), WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    is_graded = node.graded_score is not None
    adds = f"adds {last.contribution:.4f} to its score" if is_graded else "has no grade and counts as 0"
    lines = [
        f"Path: {node.path}",
        f"It decides {100 * last.share:.2f} % of the whole and {adds}.",
        *([f"Category: {node.task_category}"] if node.task_category else []),
        f"Why: {node.explanation}",
        *(_record_lines(node) if node.is_leaf else []),
    ]
    yield from (f"{_INDENT}{one_line(line)}" for line in lines)


def _record_lines(leaf: GradedTaskNode) -> Iterator[str]:
    record = record_of(leaf.judge_metadata)
    if record.check is not None:
        yield f"Decided by the check {record.check_call}"
    if record.author is not None:
        yield f"Graded by {record.author}{f', {record.date}' if record.date else ''}"
    if record.files.picked:
        names = ", ".join(record.files.picked)
        yield f"Files it was shown, {len(record.files.picked)} of {record.files.num_offered}: {names}"
    yield from record.files.all_notes
    for quote in record.quotes:
        yield f"Evidence: {quote.words}"
        yield from (f"> {line}" for line in quote.text.splitlines())
    for number, vote in enumerate(record.votes, start=1):
        yield f"Vote {number} of {len(record.votes)}: {_score(vote.score)} {vote.reason or ''}".rstrip()
        yield from (f"| {line}" for line in vote.answer.splitlines())
    yield from (f"{kind}: {call_words(usage)}" for kind, usage in record.usage if usage.calls)
    if foreign := foreign_text(leaf.judge_metadata):
        yield foreign


def form_lines(path: str, requirements: str) -> Iterator[str]:
    """Yield an entry for one leaf as a person fills it in for the judge `human`: YAML below comments."""
    yield from textwrap.wrap(one_line(requirements), 100, initial_indent="# ", subsequent_indent="# ")
    yield from (f"- path: {to_json(path)}", "  score:", "  author:", "  reason:")  # a JSON string is YAML too


def dollars(cost: float) -> str:
    """Return an amount in US dollars, with more digits if it is small."""
    return f"{cost:.2f}" if cost >= 1 or cost == 0 else f"{cost:.4f}"


def shown_line(text: str) -> str:
    """Return a text as one line of the terminal."""
    return truncate(one_line(text), WIDTH)


def _score(score: float | None) -> str:
    return "-----" if score is None else f"{score:.3f}"


def _node_line(part: NodeShare) -> str:
    number = f"{_indent(part)}{part.number}  " if part.number else ""
    return shown_line(f"{_score(part.node.graded_score)}  {100 * part.share:5.1f} %  {number}{part.node.requirements}")


def _indent(part: NodeShare) -> str:
    return "  " * (part.number.count(".") + 1 if part.number else 0)


def call_words(usage: CallUsage) -> str:
    """Return the number of calls, their tokens and their time in words."""
    cached = f" ({usage.cached_tokens} of them cached)" if usage.cached_tokens else ""
    estimated = " (estimated)" if usage.estimated else ""
    tokens = f"{usage.prompt_tokens} tokens read{cached} and {usage.output_tokens} written{estimated}"
    return f"{count(usage.calls, 'call')}, {tokens}, {usage.seconds:.1f} s of the model's time"
