"""Explain a grade: the share of the root's score that a criterion decides, and why leaves have no grade."""

import difflib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcgeval.rubric.grades import GradedTaskNode, GradeError, added_up


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

    Raises:
        GradeError: No node is named so, or several are.
    """
    parts = {part.node.path: part for part in NodeShare(tree).walk()}
    matches = [path for path, part in parts.items() if name in (path, part.number)]
    matches = matches or [path for path in parts if path.endswith(f"/{name}")]
    if len(matches) != 1:
        close = matches[:5] or difflib.get_close_matches(name, parts, n=1, cutoff=0.4)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise GradeError(f"no one criterion has the number or path {name!r:.200}.{hint}")
    return tuple(part for path, part in parts.items() if f"{matches[0]}/".startswith(f"{path}/"))
