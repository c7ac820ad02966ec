"""Gradings, and one criterion of a grading, as text for the terminal.

Text from submissions and models loses its control characters.
"""

import json
import textwrap
from collections.abc import Iterator, Sequence

from pcgeval.core.console import count
from pcgeval.core.files import to_json
from pcgeval.core.untrusted import one_line
from pcgeval.rubric.explanation import NodeShare, reasons_without_grade
from pcgeval.rubric.grades import GradedTaskNode, JudgeOutput, get_grade_summary
from pcgeval.rubric.record import CallUsage, foreign_text, record_of

WIDTH = 120
_INDENT = " " * 7


def summary_lines(output: JudgeOutput) -> list[str]:
    """Return the lines that stand above a tree: the score, its bounds, the judge, the cost, and the warnings."""
    counts = get_grade_summary(output)
    lines = [f"WARNING: {one_line(warning)}" for warning in output.warnings]
    model = f" with the model {output.model}" if output.model else ""
    lines.append(one_line(f"{output.score:.3f} by the judge {output.judge_type}{model}"))
    if output.model:
        votes = f", {output.votes} votes a leaf" if output.votes > 1 else ""
        digest = output.model_digest or "unknown"
        prompts = " ".join(filter(None, (output.prompts, output.prompt_version or "unknown")))
        lines.append(one_line(f"model digest {digest}, prompts {prompts}{votes}"))
    if output.reproduction:
        lines.append(one_line(output.reproduction.words))
    between = f" ({count(counts['partial'], 'score')} between 0 and 1)" if counts["partial"] else ""
    lines.append(
        f"{count(output.num_leaf_nodes, 'leaf', 'leaves')}: {counts['passed']} passed, {counts['failed']} failed"
        f"{between}, {counts['invalid']} without a grade"
    )
    if counts["invalid"]:
        lines[-1] += f", which count as 0; if they had passed, the score would be {output.score_bounds.high:.3f}"
    if output.token_usage.total.calls:
        cost = f", about {dollars(output.cost)} US dollars" if output.cost is not None else ""
        lines.append(_calls(output.token_usage.total) + cost)
    return lines


def tree_lines(tree: GradedTaskNode) -> Iterator[str]:
    """Yield a line a node - score, share of the root's score, number, criterion -, and below a leaf the reason.

    Of a tree in which no leaf has a grade, only the reasons are yielded.
    """
    if not any(leaf.valid_score for leaf in tree.leaves):
        for reason, number in reasons_without_grade(tree):
            yield cut(f"{count(number, 'leaf', 'leaves')} without a grade: {reason}")
        return
    for part in NodeShare(tree).walk():
        yield _node_line(part)
        if part.node.is_leaf:
            yield cut(f"{' ' * 16}{_indent(part)}{part.node.explanation}")


def criterion_lines(output: JudgeOutput, way: Sequence[NodeShare]) -> Iterator[str]:
    """Yield one criterion explained: the lines of the nodes from the root to it, then the judge's record."""
    yield from [*summary_lines(output), "", *map(_node_line, way), ""]
    last = way[-1]
    node = last.node
    yield f"{_INDENT}Path: {one_line(node.path)}"
    yield from textwrap.wrap(one_line(node.requirements), WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    adds = f"adds {last.contribution:.4f} to its score" if node.valid_score else "has no grade and counts as 0"
    yield f"{_INDENT}It decides {100 * last.share:.2f} % of the whole and {adds}."
    yield from map(_node_line, last.below)
    if node.task_category:
        yield f"{_INDENT}Category: {one_line(node.task_category)}"
    yield f"{_INDENT}Why: {one_line(node.explanation)}"
    if node.is_leaf:
        yield from (f"{_INDENT}{one_line(line)}" for line in _record_lines(node))


def form_lines(path: str, requirements: str, notes: Sequence[str] = ()) -> Iterator[str]:
    """Yield an entry for one leaf as a person fills it in for the judge `human`: YAML below comments."""
    for text in (requirements, *notes):
        yield from textwrap.wrap(one_line(text), 100, initial_indent="# ", subsequent_indent="# ")
    # a JSON string is YAML too, but YAML ends a line at more characters
    quoted = "".join(letter if letter.isprintable() else json.dumps(letter)[1:-1] for letter in to_json(path))
    yield from (f"- path: {quoted}", "  score:", "  author:", "  reason:")


def dollars(cost: float) -> str:
    """Return an amount in US dollars, with more digits where it is small."""
    return f"{cost:.2f}" if cost >= 1 or cost == 0 else f"{cost:.4f}"


def cut(text: str) -> str:
    """Return a text on one line that is no longer than a wide terminal's."""
    line = one_line(text)
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..."


def _score(score: float | None) -> str:
    return "-----" if score is None else f"{score:.3f}"


def _node_line(part: NodeShare) -> str:
    number = f"{part.number}  " if part.number else ""
    score = _score(part.node.graded_score)
    return cut(f"{score}  {100 * part.share:5.1f} %  {_indent(part)}{number}{part.node.requirements}")


def _indent(part: NodeShare) -> str:
    return "  " * (part.number.count(".") + 1 if part.number else 0)


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
        yield f"Evidence: {quote.place}"
        yield from (f"> {line}" for line in quote.text.splitlines())
    for number, vote in enumerate(record.votes, start=1):
        yield f"Vote {number} of {len(record.votes)}: {_score(vote.score)} {vote.reason or ''}".rstrip()
        yield from (f"| {line}" for line in vote.answer.splitlines())
    if record.agreement is not None and len(record.votes) > 1:
        yield f"The votes agree to {record.agreement:.0%}"
    yield from (f"{kind}: {_calls(usage)}" for kind, usage in record.usage if usage.calls)
    if foreign := foreign_text(leaf.judge_metadata):
        yield foreign


def _calls(usage: CallUsage) -> str:
    cached = f" ({usage.cached_tokens} of them from the endpoint's cache)" if usage.cached_tokens else ""
    estimated = " (estimated: the endpoint reports no usage)" if usage.estimated else ""
    tokens = f"{usage.prompt_tokens} tokens read{cached} and {usage.output_tokens} written{estimated}"
    return f"{count(usage.calls, 'call')}, {tokens}, {usage.seconds:.1f} s of the model's time"
