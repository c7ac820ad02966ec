"""How a grade came about: the share of the root's score that each criterion decides, level by level."""

import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from pcgeval.rubric.grades import GradedTaskNode, GradeError


@dataclass(frozen=True)
class NodeShare:
    """A node and the share of the root's score that it decides.

    `share` is from 0 to 1: the node's weight among its siblings, times the share of the node above.
    """

    node: GradedTaskNode
    share: float

    @classmethod
    def of_root(cls, tree: GradedTaskNode) -> Self:
        """Return the root, which decides everything."""
        return cls(tree, 1.0)

    @property
    def contribution(self) -> float:
        """The part of the root's score that the node adds; the contributions of all leaves add up to it."""
        return self.share * self.node.score

    @property
    def below(self) -> tuple["NodeShare", ...]:
        """The sub-tasks with their shares."""
        weights = 0.0
        for task in self.node.sub_tasks:
            weights += task.weight
        return tuple(
            NodeShare(task, self.share * task.weight / weights if weights else 0.0) for task in self.node.sub_tasks
        )

    def walk(self) -> Iterator["NodeShare"]:
        """Yield the node and all below it in the order of the rubric, parents before their sub-tasks."""
        yield self
        for each in self.below:
            yield from each.walk()


def reasons_without_grade(tree: GradedTaskNode) -> list[tuple[str, int]]:
    """Return the reasons why leaves have no grade with their numbers, the commonest first."""
    return Counter(leaf.explanation for leaf in tree.leaves if not leaf.valid_score).most_common()


def explain(tree: GradedTaskNode, path: str) -> tuple[NodeShare, ...]:
    """Return the nodes from the root to one node, named by its path or by an end of it that no other node has.

    Raises:
        GradeError: No node has this path, or several have.
    """
    ways = {way[-1].node.path: way for way in _ways((NodeShare.of_root(tree),))}
    if path in ways:
        return ways[path]
    ends = [way for way in ways if way.endswith(f"/{path}")]
    if len(ends) > 1:
        raise GradeError(f"{path!r:.200} is the end of several paths: {', '.join(ends[:5])}. Give more of the path.")
    if not ends:
        close = difflib.get_close_matches(path, ways, n=1, cutoff=0.4)
        hint = f" Did you mean {close[0]}?" if close else " `pcgeval rubric show GRADE` lists them."
        raise GradeError(f"no criterion has the path {path!r:.200}.{hint}")
    return ways[ends[0]]


def _ways(way: tuple[NodeShare, ...]) -> Iterator[tuple[NodeShare, ...]]:
    """Yield the way on which a node was reached, and those to all nodes below it."""
    yield way
    for each in way[-1].below:
        yield from _ways((*way, each))
