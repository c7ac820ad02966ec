"""How a grade came about: how much of the root's score each criterion decides, level by level."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from pcgeval.rubric.grades import GradedTask, GradeError


@dataclass(frozen=True)
class Part:
    """A node as a part of the tree's score.

    `share` is how much of the root's score it decides, from 0 to 1: its weight among those siblings that have a score,
    times the share of the node above. A node without a score decides nothing.
    """

    node: GradedTask
    share: float

    @property
    def contribution(self) -> float:
        """What it adds to the root's score; the contributions of all leaves add up to it."""
        return self.share * (self.node.score or 0.0)


@dataclass(frozen=True)
class Explanation:
    """The way from the root to a node: all nodes on it, the root first."""

    way: tuple[Part, ...]

    @property
    def part(self) -> Part:
        """The node that is explained."""
        return self.way[-1]


def parts_below(part: Part) -> tuple[Part, ...]:
    """Return the sub-tasks of a node as parts of the tree's score."""
    counted = 0.0
    for each in part.node.sub_tasks:
        counted += 0.0 if each.score is None else each.weight
    return tuple(
        Part(each, part.share * each.weight / counted if each.score is not None and counted else 0.0)
        for each in part.node.sub_tasks
    )


def whole(tree: GradedTask) -> Part:
    """Return the root as the part that decides everything, or nothing if it has no score."""
    return Part(tree, 0.0 if tree.score is None else 1.0)


def walk_parts(tree: GradedTask) -> Iterator[Part]:
    """Yield all nodes in the order of the rubric, parents before their sub-tasks."""
    waiting = [whole(tree)]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += reversed(parts_below(part))


def explain(tree: GradedTask, path: str) -> Explanation:
    """Explain one node, named by its path or by an end of it that no other node has.

    Raises:
        GradeError: No node has this path, or several have.
    """
    found = _find(tree, path)
    way = [whole(tree)]
    while way[-1].node is not found:
        below = parts_below(way[-1])
        way.append(next(part for part in below if any(each.node is found for each in walk_parts(part.node))))
    return Explanation(tuple(way))


def _find(tree: GradedTask, path: str) -> GradedTask:
    nodes = {part.node.path: part.node for part in walk_parts(tree)}
    if path in nodes:
        return nodes[path]
    ends = [each for each in nodes if each.endswith(f"/{path}")]
    if len(ends) == 1:
        return nodes[ends[0]]
    if ends:
        raise GradeError(f"{path!r:.200} is the end of several paths: {', '.join(ends[:5])}. Give more of the path.")
    close = difflib.get_close_matches(path, nodes, n=1, cutoff=0.4)
    raise GradeError(f"no criterion has the path {path!r:.200}.{f' Did you mean {close[0]}?' if close else ''}")
