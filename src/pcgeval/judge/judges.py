"""Judges: ways to come to a verdict on each leaf."""

import hashlib
from dataclasses import dataclass
from typing import Literal, Protocol

from pcgeval.checks.check_result import Undecided
from pcgeval.checks.checks import run_check
from pcgeval.checks.evidence import Evidence, PaperEvidence
from pcgeval.rubric.grades import JudgeOutput, Verdict, grade_tree
from pcgeval.rubric.record import JudgeRecord
from pcgeval.rubric.tree import TaskNode

JudgeType = Literal["simple", "checks", "random", "dummy", "human"]
AnyEvidence = Evidence | PaperEvidence


class Judge(Protocol):
    """Anything that comes to a verdict on one leaf at a time, whatever the order."""

    @property
    def judge_type(self) -> str:
        """The name under which its gradings are kept apart from those of other judges."""

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Judge one leaf; a verdict without a score says that it could not tell."""


@dataclass(frozen=True)
class DummyJudge:
    """Passes every leaf: what a perfect submission would get."""

    judge_type: str = "dummy"

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Return 1."""
        del leaf
        return Verdict(1.0, "the dummy judge passes everything")


@dataclass(frozen=True)
class RandomJudge:
    """Passes half of the leaves, by a hash of the seed and the leaf's path and thus in any order of asking."""

    seed: int
    judge_type: str = "random"

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Return 0 or 1."""
        digest = hashlib.sha256(f"{self.seed}/{leaf.path}".encode()).digest()
        return Verdict(float(digest[0] % 2), f"the random judge with seed {self.seed} says so")


@dataclass(frozen=True)
class ChecksJudge:
    """Decides the leaves that name a check; the others need another judge and get no grade."""

    evidence: AnyEvidence
    judge_type: str = "checks"

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Return the check's finding."""
        if leaf.check is None:
            return Verdict(None, "no check; needs a judge")
        record = JudgeRecord(check=leaf.check.name, arguments=dict(leaf.check.arguments))
        try:
            finding = run_check(leaf.check, self.evidence)
        except Undecided as reason:
            return Verdict(None, str(reason))
        return Verdict(finding.score, finding.explanation, record)


@dataclass(frozen=True)
class MixedJudge:
    """Leaves with a check are decided by it, so that they never cost a call; another judge has all others."""

    checks: ChecksJudge
    other: Judge

    @property
    def judge_type(self) -> str:
        """The other judge's: its verdicts are the ones to doubt."""
        return self.other.judge_type

    def verdict(self, leaf: TaskNode) -> Verdict:
        """Return the check's finding, also where it cannot tell, or the other judge's verdict."""
        return self.other.verdict(leaf) if leaf.check is None else self.checks.verdict(leaf)


def judge_rubric(rubric: TaskNode, judge: Judge, *, invalid_as_zero: bool = False) -> JudgeOutput:
    """Grade a whole rubric; with `invalid_as_zero` leaves without a grade count as 0, as in PaperBench."""
    return JudgeOutput(judge.judge_type, grade_tree(rubric, judge.verdict, invalid_as_zero=invalid_as_zero))
