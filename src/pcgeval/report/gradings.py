"""Pages of a grading, and of two gradings by the same rubric beside each other; also the tree on a team's page."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcgeval.core.files import sha256_text
from pcgeval.report.markup import render_template
from pcgeval.rubric.agreement import LEVEL, UNCOMPARED_WORDS, Agreement, Pair, agreement_notes
from pcgeval.rubric.explanation import NodeShare
from pcgeval.rubric.grades import PASSED, GradedTaskNode, JudgeOutput
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
        noted = record_of(leaf.judge_metadata)
        found = [{"invalid": "not graded"}.get(leaf.outcome, leaf.outcome)]
        found += ["in part"] if 0 < (leaf.graded_score or 0) < 1 else []
        found += ["by a check"] if noted.check else ["by a person"] if noted.author else []
        found += ["votes differ"] if noted.agreement is not None and noted.agreement < 1 else []
        return tuple(found)


def anchors(trees: Sequence[GradedTaskNode], prefix: str = "node") -> dict[str, str]:
    """Return an id for each path: `node-` and the id in the rubric, or a hash of the path where that is not unique."""
    ids = {each.node.path: each.node.id for tree in trees for each in NodeShare(tree).walk()}
    times = Counter(ids.values())
    return {
        path: f"{prefix}-{name if times[name] == 1 and _PLAIN.fullmatch(name) else sha256_text(path)[:16]}"
        for path, name in ids.items()
    }


def grade_page(grade: JudgeOutput, title: str) -> str:
    """Return a grading as a page that needs nothing beside it; `title` says what was graded."""
    root = grade.graded_task_tree
    tree = ShownTree(grade, anchors([root]), _longest_answer([root]), is_open=len(root.leaves) <= MOST_OPEN)
    return render_template("graded.html.j2", tree=tree, grade=grade, title=title)


def _longest_answer(trees: Sequence[GradedTaskNode]) -> int:
    answers = sum(len(record_of(leaf.judge_metadata).votes) for tree in trees for leaf in tree.leaves)
    return min(LONGEST_ANSWER, ANSWERS // max(1, answers))


def compared_page(pairs: Sequence[Pair], found: Agreement, names: Sequence[str]) -> str:
    """Return two gradings, or two groups of gradings, as a page that needs nothing beside it.

    Args:
        pairs: The gradings, at least one pair.
        found: How far they agree.
        names: What A and B are.
    """
    trees = [
        (
            pair.name,
            ComparedNode(NodeShare(pair.a), NodeShare(pair.b)),
            anchors([pair.a, pair.b], f"node{number or ''}"),
        )
        for number, pair in enumerate(pairs)
    ]
    graded = [tree for pair in pairs for tree in (pair.a, pair.b)]
    return render_template(
        "graded_twice.html.j2",
        trees=trees,
        found=found,
        names=names,
        level=LEVEL,
        pass_at=PASSED,
        left_out=[(UNCOMPARED_WORDS[why], paths) for why, paths in found.uncompared.items()],
        notes=agreement_notes(found),
        longest_answer=_longest_answer(graded),
        is_open=sum(len(tree.leaves) for tree in graded) <= 2 * MOST_OPEN,
    )


@dataclass(frozen=True)
class ComparedNode:
    """A criterion in two gradings; a side is None where that grading does not have it."""

    a: NodeShare | None
    b: NodeShare | None

    @property
    def node(self) -> GradedTaskNode:
        """The criterion as A has it, or else B."""
        found = self.a or self.b
        assert found is not None  # noqa: S101 - one of them has it
        return found.node

    @property
    def below(self) -> tuple["ComparedNode", ...]:
        """The sub-tasks of both: those of A in its order, and then those that only B has."""
        in_a, in_b = ({each.node.path: each for each in side.below} if side else {} for side in (self.a, self.b))
        return tuple(ComparedNode(in_a.get(path), in_b.get(path)) for path in {**in_a, **in_b})

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return how the sides of a leaf differ, in words by which a reader may look for leaves."""
        if self.a is None or self.b is None:
            return ("only in A" if self.a else "only in B",)
        a, b = self.a.node, self.b.node
        found = ["another criterion"] if a.requirements != b.requirements else []
        found += [f"not graded in {name}" for name, side in (("A", a), ("B", b)) if side.graded_score is None]
        if a.graded_score is not None and b.graded_score is not None:
            found.append("same score" if a.graded_score == b.graded_score else "other score")
            if a.outcome != b.outcome:
                found.append("passed in A alone" if a.outcome == "passed" else "passed in B alone")
        return tuple(found)
