"""A grading as plain text for the terminal, and its progress while it runs."""

from collections.abc import Iterator

from pcgeval.core.console import Progress
from pcgeval.judge.judging import JudgedLeaf
from pcgeval.rubric.grades import GradedTask, JudgeOutput, usage_of


def render_tree(graded: GradedTask, width: int = 120) -> str:
    """Return the tree indented by level: score, weight and criterion of each node, and below a leaf why.

    Text that came from strangers loses its control characters, and lines are cut to `width` characters.
    """
    return "\n".join(_lines(graded, 0, width))


def summary_lines(output: JudgeOutput) -> Iterator[str]:
    """Yield what stands above a tree: the score and how sure it is, what it cost, and what a reader must know."""
    bounds, usage = output.score_bounds, output.token_usage
    score = "none" if output.score is None else f"{output.score:.4f}"
    line = f"{output.judge_type}: score {score}, {output.num_passed} of {output.num_leaf_nodes} leaves passed"
    if output.num_invalid_leaf_nodes:
        line += f", {output.num_invalid_leaf_nodes} have no grade (with them {bounds.low:.4f} to {bounds.high:.4f})"
    yield line
    if output.model is not None:
        yield (
            f"{output.model} ({(output.model_digest or 'no digest')[:21]}), prompts {output.prompt_version}, "
            f"votes {output.votes}: {usage.total.calls} calls, {usage.total.prompt_tokens} tokens read and "
            f"{usage.total.output_tokens} written in {usage.seconds:.1f} s"
        )
    yield from (f"warning: {warning}" for warning in output.warnings)


class GradingProgress:
    """Shows the leaves as they are judged: score and cost of each, and of all together."""

    def __init__(self, title: str) -> None:
        """Start the clock."""
        self._progress = Progress(title, 0)

    def __call__(self, judged: JudgedLeaf, is_new: bool) -> None:
        """Count one leaf; `is_new` says that the model was asked about it just now."""
        usage, score = usage_of(judged.verdict.judge_metadata), judged.verdict.score
        found = "no grade" if score is None else f"{score:.2f}"
        cost = f", {usage.tokens} tokens in {usage.seconds:.1f} s" if usage.tokens else ""
        self._progress.total = judged.total
        self._progress.step(
            f"{judged.leaf.id}: {found}{cost}", tokens=usage.tokens, failed=score is None, kept=not is_new
        )


def _lines(node: GradedTask, level: int, width: int) -> list[str]:
    indent = "  " * level
    score = "-----" if node.score is None else f"{node.score:.3f}"
    lines = [_cut(f"{indent}{score} x{node.weight:g}  {node.requirements}", width)]
    if node.is_leaf:
        lines.append(_cut(f"{indent}      {node.explanation}", width))
    for sub_task in node.sub_tasks:
        lines += _lines(sub_task, level + 1, width)
    return lines


def _cut(line: str, width: int) -> str:
    line = "".join(character if character.isprintable() else " " for character in line)
    return line if len(line) <= width else f"{line[: width - 3]}..."
