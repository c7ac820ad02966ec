"""A graded tree as plain text for the terminal."""

from pcgeval.rubric.grades import GradedTask


def render_tree(graded: GradedTask, width: int = 120) -> str:
    """Return the tree indented by level: score, weight and criterion of each node, and below a leaf why.

    Text that came from strangers loses its control characters, and lines are cut to `width` characters.
    """
    return "\n".join(_lines(graded, 0, width))


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
