"""Gradings, and one criterion of a grading, as text for the terminal.

Text from submissions and models loses its control characters.
"""

import json
import textwrap
from collections.abc import Iterator, Sequence

from pcgeval.core.console import count
from pcgeval.core.files import to_json
from pcgeval.core.untrusted import one_line
from pcgeval.rubric.explanation import NodeShare
from pcgeval.rubric.grades import GradedTaskNode, JudgeOutput, get_grade_summary
from pcgeval.rubric.record import CallUsage, foreign_text, record_of

WIDTH = 120


def summary_lines(output: JudgeOutput) -> list[str]:
    """Return the lines that stand above a tree: the score, its bounds, the judge, the cost, and the warnings."""
    counts, bounds = get_grade_summary(output.graded_task_tree), output.score_bounds
    lines = [f"WARNING: {one_line(warning)}" for warning in output.warnings]
    lines.append(f"{_score(output.score)} by {judge_words(output)}")
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
        lines[-1] += f", which count as 0; if they had passed, the score would be {bounds.high:.3f}"
    if output.token_usage.total.calls:
        cost = f", about {dollars(output.cost)} US dollars" if output.cost is not None else ""
        lines.append(_calls(output.token_usage.total) + cost)
    return lines


def judge_words(output: JudgeOutput) -> str:
    """Return who judged, such as `the judge simple with the model o3-mini`."""
    return one_line(f"the judge {output.judge_type}" + (f" with the model {output.model}" if output.model else ""))


def tree_lines(node: GradedTaskNode, width: int = WIDTH, level: int = 0) -> Iterator[str]:
    """Yield the tree indented by level: score, weight and criterion of each node, and below a leaf the reason.

    Lines are cut to `width` characters.
    """
    lines = [f"{_score(node.graded_score)} x{node.weight:g}  {node.requirements}"]
    lines += [f"      {node.explanation}"] if node.is_leaf else []
    for line in lines:
        shown = one_line("  " * level + line)
        yield shown if len(shown) <= width else f"{shown[: width - 3]}..."
    for task in node.sub_tasks:
        yield from tree_lines(task, width, level + 1)


def share_lines(output: JudgeOutput) -> Iterator[str]:
    """Yield the summary and one line a criterion: its score, its share of the root's score, and its path."""
    yield from [*summary_lines(output), "", "score  share of all"]
    for each in NodeShare.of_root(output.graded_task_tree).walk():
        yield f"{_score(each.node.graded_score)}  {100 * each.share:5.1f} %  {one_line(each.node.path)}"


def explanation_lines(output: JudgeOutput, way: Sequence[NodeShare]) -> Iterator[str]:
    """Yield one criterion explained: level by level how the scores come together, then the judge's record."""
    yield from [*summary_lines(output), ""]
    for each, next_node in zip(way, (*(below.node for below in way[1:]), None), strict=True):
        node = each.node
        yield f"{_score(node.graded_score)}  {one_line(node.path)}"
        yield from textwrap.wrap(one_line(node.requirements), WIDTH, initial_indent=" " * 7, subsequent_indent=" " * 7)
        if node.sub_tasks:
            yield f"       {node.explanation or 'its sub-tasks'}:"
        for below in each.below:
            mark, share = "→" if below.node is next_node else " ", f"{100 * below.share:.1f} % of all"
            yield (
                f"     {mark} {_score(below.node.graded_score)} × weight {below.node.weight:g}, {share}: "
                f"{one_line(below.node.id)}"
            )
        if node.sub_tasks:
            yield ""
    last = way[-1]
    yield (
        f"       It decides {100 * last.share:.2f} % of the whole and adds {last.contribution:.4f} to its score."
        if last.node.valid_score
        else f"       It decides {100 * last.share:.2f} % of the whole. It has no grade and counts as 0."
    )
    if last.node.task_category:
        yield f"       Category: {one_line(last.node.task_category)}"
    if last.node.is_leaf:
        yield f"       Why: {one_line(last.node.explanation)}"
        yield from (f"       {one_line(line)}" for line in _record_lines(last.node))


def form_lines(path: str, requirements: str, notes: Sequence[str] = ()) -> Iterator[str]:
    """Yield an entry for one leaf as a person fills it in for the judge `human`: YAML below comments."""
    for text in (requirements, *notes):
        yield from textwrap.wrap(one_line(text), 100, initial_indent="# ", subsequent_indent="# ")
    # a JSON string is YAML too, but YAML ends a line at more characters
    quoted = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in to_json(path))
    yield from (f"- path: {quoted}", "  score:", "  author:", "  reason:")


def _record_lines(leaf: GradedTaskNode) -> Iterator[str]:
    record = record_of(leaf.judge_metadata)
    if record.check is not None:
        yield f"Decided by the check {record.check_call}"
    if record.author is not None:
        yield f"Graded by {record.author}{f', {record.date}' if record.date else ''}"
    for each in record.history:
        yield f"Earlier: {_score(each.score)} by {each.author}, {each.date or 'no date'}: {each.reason}"
    if record.files.picked:
        names = ", ".join(record.files.picked)
        yield f"Files it was shown, {len(record.files.picked)} of {record.files.num_offered}: {names}"
    yield from record.files.all_notes
    for number, vote in enumerate(record.votes, start=1):
        yield f"Vote {number} of {len(record.votes)}: {_score(vote.score)} {vote.reason or ''}".rstrip()
        yield from (f"| {line}" for line in vote.answer.splitlines())
    if record.agreement is not None and len(record.votes) > 1:
        yield f"The votes agree to {record.agreement:.0%}"
    yield from (f"{kind}: {_calls(usage)}" for kind, usage in record.usage if usage.calls)
    if foreign := foreign_text(leaf.judge_metadata):
        yield foreign


def dollars(cost: float) -> str:
    """Return an amount in US dollars, with more digits where it is small."""
    return f"{cost:.2f}" if cost >= 1 or cost == 0 else f"{cost:.4f}"


def _score(score: float | None) -> str:
    return "-----" if score is None else f"{score:.3f}"


def _calls(usage: CallUsage) -> str:
    took = f"{usage.seconds:.1f} s of the model's time"  # when it was asked, which may be long ago
    cached = f" ({usage.cached_tokens} of them from the endpoint's cache)" if usage.cached_tokens else ""
    tokens = (
        f"{count(usage.calls, 'call')}, {usage.prompt_tokens} tokens read{cached} and {usage.output_tokens} written"
    )
    return f"{tokens}{' (estimated: the endpoint reports no usage)' if usage.estimated else ''}, {took}"
