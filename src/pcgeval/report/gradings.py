"""The page of a grading, and the tree of a rubric that a team's page shows too."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pcgeval.core.files import sha256_text
from pcgeval.report.markup import render_template
from pcgeval.rubric.explanation import NodeShare
from pcgeval.rubric.grades import GradedTaskNode, JudgeOutput
from pcgeval.rubric.record import record_of

ANSWERS = 3_000_000  # characters of all the judge's answers on a page together
LONGEST_ANSWER = 20_000  # characters
MOST_OPEN = 60  # leaves of a tree that stands open from the start
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


@dataclass(frozen=True)
class ShownTree:
    """A graded tree as a page shows it.

    Attributes:
        grade: The grading.
        anchors: The id of each node's element by the node's path, for links to it.
        longest_answer: How many characters are shown of an answer.
        is_open: Whether all of it stands open from the start.
    """

    grade: JudgeOutput
    anchors: Mapping[str, str]
    longest_answer: int
    is_open: bool = False

    def kinds(self, leaf: GradedTaskNode) -> tuple[str, ...]:
        """Return what a leaf's grade is, in words by which a reader may look for leaves."""
        record = record_of(leaf.judge_metadata)
        kinds: list[str] = ["not graded" if leaf.outcome == "invalid" else leaf.outcome]
        kinds += ["in part"] if 0 < (leaf.graded_score or 0) < 1 else []
        kinds += ["by a check"] if record.check else ["by a person"] if record.author else []
        kinds += ["votes differ"] if record.agreement is not None and record.agreement < 1 else []
        return tuple(kinds)


def anchors(tree: GradedTaskNode, prefix: str = "") -> dict[str, str]:
    """Return an id for each path: `node-` and the id in the rubric, or a hash of the path where that is not unique."""
    ids = {share.node.path: share.node.id for share in NodeShare(tree, 1.0).walk()}
    times = Counter(ids.values())
    return {
        path: f"{prefix}node-{name if times[name] == 1 and _PLAIN.fullmatch(name) else sha256_text(path)[:16]}"
        for path, name in ids.items()
    }


def grade_page(grade: JudgeOutput, title: str) -> str:
    """Return a grading as a page that needs nothing beside it; `title` says what was graded."""
    root = grade.graded_task_tree
    answers = sum(len(record_of(leaf.judge_metadata).votes) for leaf in root.leaves)
    longest = min(LONGEST_ANSWER, ANSWERS // max(1, answers))
    tree = ShownTree(grade, anchors(root), longest, is_open=len(root.leaves) <= MOST_OPEN)
    return render_template("graded.html.j2", tree=tree, grade=grade, title=title)
