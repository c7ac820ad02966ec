"""The tree of a graded rubric as a page shows it."""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from pcgeval.core.files import sha256_text
from pcgeval.report.markup import render_template
from pcgeval.rubric.explanation import NodeShare
from pcgeval.rubric.grades import GradedTaskNode, JudgeOutput
from pcgeval.rubric.record import record_of

ANSWERS = 3_000_000  # characters of all the judge's answers on a page together: a large rubric shows less of each
LONGEST_ANSWER = 20_000
MOST_OPEN = 60  # leaves of a tree that stands open from the start
_PLAIN = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class ShownTree(NamedTuple):
    """A graded tree as a page shows it."""

    grade: JudgeOutput
    anchors: Mapping[str, str]  # the id of each node's element by the node's path
    longest_answer: int  # characters that are shown of an answer
    is_open: bool  # whether all of it stands open from the start

    def kinds(self, leaf: GradedTaskNode) -> tuple[str, ...]:
        """Return the kind of a leaf's grade, in words that a reader may search for."""
        record = record_of(leaf.judge_metadata)
        kinds: list[str] = ["not graded" if leaf.outcome == "invalid" else leaf.outcome]
        kinds += ["in part"] if 0 < (leaf.graded_score or 0) < 1 else []
        kinds += ["by a check"] if record.check else ["by a person"] if record.author else []
        kinds += ["votes differ"] if record.agreement is not None and record.agreement < 1 else []
        return tuple(kinds)


def shown_tree(
    grade: JudgeOutput, prefix: str = "", answers: int = ANSWERS, longest: int = LONGEST_ANSWER, most_open: int = 0
) -> ShownTree:
    """Return the tree of a grading, in which the ids of all nodes begin with `prefix`.

    Of all the judge's answers together at most so many characters are shown, and of each at most `longest`. A tree of
    at most `most_open` leaves stands open from the start.
    """
    root = grade.graded_task_tree
    votes = sum(len(record_of(leaf.judge_metadata).votes) for leaf in root.leaves)
    ids = {share.node.path: share.node.id for share in NodeShare(root).walk()}
    times = Counter(ids.values())
    anchors = {  # the id in the rubric, or a hash of the path where that is not unique
        path: f"{prefix}node-{name if times[name] == 1 and _PLAIN.fullmatch(name) else sha256_text(path)[:16]}"
        for path, name in ids.items()
    }
    return ShownTree(grade, anchors, min(longest, answers // max(1, votes)), len(root.leaves) <= most_open)


def grade_page(grade: JudgeOutput, title: str) -> str:
    """Return a grading as a page in one file; `title` names the submission."""
    tree = shown_tree(grade, most_open=MOST_OPEN)
    return render_template("graded.html.j2", tree=tree, grade=grade, title=title)
