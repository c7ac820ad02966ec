"""A grade in words for the terminal: the whole tree in brief, or one criterion from the root down to its judge.

Text that came from strangers loses its control characters.
"""

import textwrap
from collections.abc import Iterator

from pcgeval.rubric.explanation import Explanation, Part, parts_below, walk_parts
from pcgeval.rubric.grades import CallUsage, JudgeOutput, get_grade_summary
from pcgeval.rubric.judge_record import JudgeRecord, judge_record

WIDTH = 120


def grading_text(output: JudgeOutput) -> str:
    """Return who judged and the tree, one line a criterion: its score, its share of the root's score, and its path."""
    lines = [*judge_lines(output), "", "score  share of all"]
    lines += [_tree_line(part) for part in walk_parts(output.graded_task_tree)]
    return "\n".join(lines)


def explanation_text(output: JudgeOutput, explanation: Explanation) -> str:
    """Return one criterion explained: level by level how the scores come together, then what the judge noted."""
    lines = [*judge_lines(output), ""]
    for part, next_part in zip(explanation.way, (*explanation.way[1:], None), strict=True):
        lines += _level(part, next_part)
    lines += _verdict(explanation.part)
    return "\n".join(lines)


def judge_lines(output: JudgeOutput) -> list[str]:
    """Return the lines that say what the grading as a whole came to, by whom, and at what cost."""
    counts, bounds = get_grade_summary(output.graded_task_tree), output.score_bounds
    lines = [f"WARNING: {plain(warning)}" for warning in output.warnings]
    line = f"{_score(output.score)} by the judge {output.judge_type}"
    line += f" with the model {output.model}" if output.model else ""
    lines.append(plain(line))
    if output.model:
        votes = f", {output.votes} votes a leaf" if output.votes > 1 else ""
        digest, prompts = output.model_digest or "unknown", output.prompt_version or "unknown"
        lines.append(plain(f"model digest {digest}, prompts {prompts}{votes}"))
    lines.append(
        f"{output.num_leaf_nodes} leaves: {counts.passed} passed, {counts.partial} in part, {counts.failed} failed, "
        f"{counts.invalid} without a grade"
    )
    if counts.invalid:
        lines[-1] += f"; with them the score could be {bounds.low:.3f} to {bounds.high:.3f}"
    usage = output.token_usage
    if usage.total.calls:
        lines.append(_calls(usage.total))
    return lines


def _calls(usage: CallUsage) -> str:
    number = "1 call" if usage.calls == 1 else f"{usage.calls} calls"
    return f"{number}, {usage.prompt_tokens} tokens read and {usage.output_tokens} written in {usage.seconds:.1f} s"


def _tree_line(part: Part) -> str:
    return f"{_score(part.node.score)}  {100 * part.share:5.1f} %  {plain(part.node.path)}"


def _level(part: Part, next_part: Part | None) -> Iterator[str]:
    """Yield a node's path, criterion and arithmetic; the sub-task that leads on is marked."""
    node = part.node
    yield f"{_score(node.score)}  {plain(node.path)}"
    yield from _wrapped(node.requirements, 7)
    if not node.sub_tasks:
        return
    yield f"       {node.explanation}:" if node.explanation else "       its sub-tasks:"
    for below in parts_below(part):
        mark = "→" if next_part is not None and below.node is next_part.node else " "
        share = f"{100 * below.share:.1f} % of all"
        yield f"     {mark} {_score(below.node.score)} × weight {below.node.weight:g}, {share}: {plain(below.node.id)}"
    yield ""


def _verdict(part: Part) -> Iterator[str]:
    node = part.node
    yield (
        f"       It decides {100 * part.share:.2f} % of the whole and adds {part.contribution:.4f} to its score."
        if node.score is not None
        else "       It has no grade and is left out of the whole; its siblings share its weight."
    )
    if node.task_category:
        yield f"       Category: {plain(str(node.task_category))}"
    if node.is_leaf:
        yield "       Why: " + plain(node.explanation)
        yield from _record(judge_record(node.judge_metadata))


def _record(record: JudgeRecord) -> Iterator[str]:
    """Yield what the judge noted beside the grade."""
    if record.check:
        yield f"       Decided by the check {plain(record.check)}"
    if record.author:
        yield f"       Graded by {plain(record.author)}{plain(f', {record.date}') if record.date else ''}"
    for earlier in record.history:
        yield plain(f"       Earlier: {_score(earlier.score)} by {earlier.author}, {earlier.date}: {earlier.reason}")
    if record.picked:
        yield f"       Files it was shown, {len(record.picked)} of {record.offered}: {plain(', '.join(record.picked))}"
    yield from (f"       {plain(note)}" for note in record.file_notes)
    for number, vote in enumerate(record.votes, start=1):
        yield f"       Vote {number} of {len(record.votes)}: {_score(vote.score)} {plain(vote.reason)}".rstrip()
        yield from (f"       | {plain(line)}" for line in vote.answer.splitlines())
    if record.agreement is not None and len(record.votes) > 1:
        yield f"       The votes agree to {record.agreement:.0%}"
    for kind, usage in vars(record.usage).items():
        if usage.calls:
            yield f"       {kind}: {_calls(usage)}"
    if record.other:
        yield f"       {plain(record.other)}"


def _score(score: float | None) -> str:
    return "-----" if score is None else f"{score:.3f}"


def _wrapped(text: str, indent: int) -> list[str]:
    space = " " * indent
    return textwrap.wrap(plain(text), WIDTH, initial_indent=space, subsequent_indent=space)


def plain(text: str) -> str:
    """Return a text on one line, without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)
