"""The graded rubric: one score a node, worked out from the verdicts on the leaves.

A node's score is the weighted mean of its sub-tasks' scores, and 0 if their weights sum to 0 (PaperBench). A leaf that
could not be graded has `valid_score` False and the score None: it and its weight are left out of its parent's mean, so
that its graded siblings share its part of the tree. A node none of whose weighing sub-tasks has a score has none
either and is left out in the same way. PaperBench counts such leaves as 0 instead: there (`invalid_as_zero`, and trees
read from its files) a leaf has `valid_score` False and the score 0.0. `score_bounds` says how far either could be off.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pcgeval.core.errors import PcgevalError
from pcgeval.rubric.tree import CATEGORIES, Task


class GradeError(PcgevalError):
    """A verdict or a file of grades that says something that cannot be."""


@dataclass(frozen=True)
class Verdict:
    """What a judge says of one leaf: a score from 0 to 1, or None where it could not tell; and why."""

    score: float | None
    explanation: str
    judge_metadata: Any = None


@dataclass(frozen=True)
class GradedTask:
    """A criterion with its grade, in PaperBench's graded-node format; `score` is None where there is no grade."""

    path: str
    id: str
    requirements: str
    weight: float
    score: float | None
    valid_score: bool
    explanation: str
    sub_tasks: tuple["GradedTask", ...] = ()
    task_category: str | None = None
    finegrained_task_category: str | None = None
    judge_metadata: Any = None

    @property
    def is_leaf(self) -> bool:
        """Whether the node was graded itself instead of through its sub-tasks."""
        return not self.sub_tasks

    def to_json(self) -> dict[str, Any]:
        """Return the node and all below it as JSON values, with PaperBench's key names."""
        return {**vars(self), "sub_tasks": [sub_task.to_json() for sub_task in self.sub_tasks]}


@dataclass(frozen=True)
class CallUsage:
    """What the calls of one kind cost; `seconds` is the time that the model took when it was really asked."""

    calls: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def plus(self, other: "CallUsage") -> "CallUsage":
        """Return the sum; seconds to the millisecond, so that the order of adding does not show."""
        return CallUsage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.output_tokens + other.output_tokens,
            round(self.seconds + other.seconds, 3),
        )


@dataclass(frozen=True)
class TokenUsage:
    """What the three kinds of calls cost: ranking files, grading, and reading the answer."""

    rank: CallUsage = CallUsage()
    grade: CallUsage = CallUsage()
    parse: CallUsage = CallUsage()

    @property
    def total(self) -> CallUsage:
        """All calls together."""
        return self.rank.plus(self.grade).plus(self.parse)

    @property
    def tokens(self) -> int:
        """The tokens that the model read and wrote."""
        return self.total.prompt_tokens + self.total.output_tokens

    @property
    def seconds(self) -> float:
        """The time that the model took for all calls."""
        return self.total.seconds

    def plus(self, other: "TokenUsage") -> "TokenUsage":
        """Return the sum, kind by kind."""
        return TokenUsage(self.rank.plus(other.rank), self.grade.plus(other.grade), self.parse.plus(other.parse))

    def to_json(self) -> dict[str, Any]:
        """Return the usage as JSON values, by kind."""
        return {kind: dict(vars(usage)) for kind, usage in vars(self).items()}


@dataclass(frozen=True)
class ScoreBounds:
    """The root's score if all leaves without a grade had failed, and if all had passed."""

    low: float
    high: float


@dataclass(frozen=True)
class CategoryGrade:
    """The grades of one category: its leaves counted, and the root's score over these leaves alone."""

    score: float | None
    passed: int
    partial: int
    failed: int
    invalid: int


@dataclass(frozen=True)
class GradeSummary:
    """The overall score and how many leaves passed (1), passed in part, failed (0), or have no grade."""

    score: float | None
    passed: int
    partial: int
    failed: int
    invalid: int
    by_category: Mapping[str, CategoryGrade]


@dataclass(frozen=True)
class JudgeOutput:
    """A whole grading; every figure is worked out from the tree, so that they cannot disagree.

    Attributes:
        judge_type: Who judged; `heuristic` is a guess in place of a grading that could not run.
        graded_task_tree: The rubric with its grades.
        model: The name of the model that judged, if one did.
        model_digest: What pins its bytes.
        prompt_version: What pins the wording of the judge's prompts.
        votes: How often each leaf was graded by the model.
        guess: The score of the heuristic.
        warnings: What a reader must know before the score.
    """

    judge_type: str
    graded_task_tree: GradedTask
    model: str | None = None
    model_digest: str | None = None
    prompt_version: str | None = None
    votes: int = 1
    guess: float | None = None
    warnings: tuple[str, ...] = ()

    @property
    def score(self) -> float | None:
        """The root's score over the graded leaves, None if none was graded; of the heuristic its guess."""
        return self.graded_task_tree.score if self.guess is None else self.guess

    @property
    def token_usage(self) -> TokenUsage:
        """What the model's calls cost, by kind, added up over the leaves."""
        return usage_of_tree(self.graded_task_tree)

    @property
    def score_bounds(self) -> ScoreBounds:
        """The scores if all invalid leaves counted as 0, and as 1."""
        return score_bounds(self.graded_task_tree)

    @property
    def num_leaf_nodes(self) -> int:
        """The number of nodes that were to be graded."""
        return len(extract_leaf_grades(self.graded_task_tree))

    @property
    def num_passed(self) -> int:
        """The number of leaves with the full score of 1."""
        return get_grade_summary(self.graded_task_tree).passed

    @property
    def num_invalid_leaf_nodes(self) -> int:
        """The number of leaves that could not be graded."""
        return get_grade_summary(self.graded_task_tree).invalid

    def to_json(self) -> dict[str, Any]:
        """Return the grading as JSON values."""
        bounds = self.score_bounds
        return {
            "judge_type": self.judge_type,
            "score": self.score,
            "score_bounds": [bounds.low, bounds.high],
            "num_leaf_nodes": self.num_leaf_nodes,
            "num_passed": self.num_passed,
            "num_invalid_leaf_nodes": self.num_invalid_leaf_nodes,
            "model": self.model,
            "model_digest": self.model_digest,
            "prompt_version": self.prompt_version,
            "votes": self.votes,
            "token_usage": self.token_usage.to_json(),
            "seconds": self.token_usage.seconds,
            "warnings": list(self.warnings),
            "graded_task_tree": self.graded_task_tree.to_json(),
        }


def weighted_mean(weights: Sequence[float], scores: Sequence[float]) -> float:
    """Return sum(weight * score) / sum(weight), and 0 if the weights sum to 0.

    Added up one by one: Python's own `sum` rounds differently from version 3.12 on.
    """
    total = weighted = 0.0
    for weight, score in zip(weights, scores, strict=True):
        total += weight
        weighted += weight * score
    return weighted / total if total else 0.0


def grade_tree(task: Task, judge: Callable[[Task], Verdict], *, invalid_as_zero: bool = False) -> GradedTask:
    """Ask for a verdict on each leaf, in the order of the rubric, and work out the scores of all nodes above.

    Raises:
        GradeError: A verdict's score is not from 0 to 1.
    """
    if task.sub_tasks:
        below = tuple(grade_tree(each, judge, invalid_as_zero=invalid_as_zero) for each in task.sub_tasks)
        return _aggregated(_graded(task, Verdict(None, "")), below)
    verdict = judge(task)
    if verdict.score is None:
        failed = _graded(task, verdict)
        return replace(failed, score=0.0) if invalid_as_zero else failed
    if not 0 <= verdict.score <= 1:
        raise GradeError(f"{task.path}: the judge gave the score {verdict.score!r}. Scores are from 0 to 1.")
    return _graded(task, verdict)


def usage_of(judge_metadata: Any) -> TokenUsage:
    """Return what a leaf's calls cost, from `usage` in its metadata; nothing where there is no such note."""
    noted = judge_metadata.get("usage") if isinstance(judge_metadata, Mapping) else None
    if not isinstance(noted, Mapping):
        return TokenUsage()
    return TokenUsage(**{kind: _call_usage(noted.get(kind)) for kind in vars(TokenUsage())})


def _call_usage(noted: Any) -> CallUsage:
    found: dict[str, Any] = {name: noted.get(name) for name in vars(CallUsage())} if isinstance(noted, Mapping) else {}
    is_sound = all(isinstance(each, int | float) and 0 <= each < math.inf for each in found.values())
    return CallUsage(**found) if is_sound else CallUsage()


def usage_of_tree(tree: GradedTask) -> TokenUsage:
    """Return what the calls about all leaves cost."""
    total = TokenUsage()
    for leaf in extract_leaf_grades(tree):
        total = total.plus(usage_of(leaf.judge_metadata))
    return total


def rescored(tree: GradedTask) -> GradedTask:
    """Work out the scores of all inner nodes again from the leaves' scores, as after a correction by hand."""
    return _aggregated(tree, tuple(rescored(each) for each in tree.sub_tasks)) if tree.sub_tasks else tree


def disqualified(tree: GradedTask, reason: str) -> GradedTask:
    """Set every score to a valid 0, as PaperBench does with a submission that broke its rules."""
    below = tuple(disqualified(each, reason) for each in tree.sub_tasks)
    return replace(tree, sub_tasks=below, score=0.0, valid_score=True, explanation=f"disqualified: {reason}")


def score_bounds(tree: GradedTask) -> ScoreBounds:
    """Return the root's score with every invalid leaf counted as 0, and as 1."""
    return ScoreBounds(_score_with_invalid(tree, 0.0), _score_with_invalid(tree, 1.0))


def extract_leaf_grades(tree: GradedTask) -> tuple[GradedTask, ...]:
    """Return the graded leaves in the order of the rubric."""
    return tuple(_leaves(tree))


def get_grade_summary(tree: GradedTask) -> GradeSummary:
    """Return the overall score and the counts of leaves, overall and by category (as far as it occurs)."""
    by_category = {}
    for category in CATEGORIES:
        if (part := _only_category(tree, category)) is not None:
            part = rescored(part)
            by_category[category] = CategoryGrade(part.score, *_counts(part))
    return GradeSummary(tree.score, *_counts(tree), by_category)


def _graded(task: Task, verdict: Verdict) -> GradedTask:
    return GradedTask(
        path=task.path,
        id=task.id,
        requirements=task.requirements,
        weight=task.weight,
        score=verdict.score,
        valid_score=verdict.score is not None,
        explanation=verdict.explanation,
        task_category=task.task_category,
        finegrained_task_category=task.finegrained_task_category,
        judge_metadata=verdict.judge_metadata,
    )


def _aggregated(node: GradedTask, below: tuple[GradedTask, ...]) -> GradedTask:
    weighing = [each for each in below if each.weight > 0]
    scored = [each for each in weighing if each.score is not None]
    explanation = f"weighted mean of {len(scored)} sub-tasks"
    if len(scored) < len(weighing):
        explanation = f"weighted mean of {len(scored)} of {len(weighing)} sub-tasks; the others have no grade"
    if not weighing:
        explanation = "0, because no sub-task has a weight"
    score = weighted_mean([each.weight for each in scored], [each.score for each in scored if each.score is not None])
    valid = bool(scored) or not weighing
    return replace(node, sub_tasks=below, score=score if valid else None, valid_score=valid, explanation=explanation)


def _score_with_invalid(node: GradedTask, invalid: float) -> float:
    if node.is_leaf:
        return node.score if node.valid_score and node.score is not None else invalid
    scores = [_score_with_invalid(each, invalid) for each in node.sub_tasks]
    return weighted_mean([each.weight for each in node.sub_tasks], scores)


def _leaves(node: GradedTask) -> Iterator[GradedTask]:
    if node.is_leaf:
        yield node
    for each in node.sub_tasks:
        yield from _leaves(each)


def _counts(tree: GradedTask) -> tuple[int, int, int, int]:
    """Count the leaves: passed, partial, failed, invalid."""
    graded = extract_leaf_grades(tree)
    scores = [leaf.score for leaf in graded if leaf.valid_score and leaf.score is not None]
    passed, failed = scores.count(1), scores.count(0)
    return passed, len(scores) - passed - failed, failed, len(graded) - len(scores)


def _only_category(node: GradedTask, category: str) -> GradedTask | None:
    if node.is_leaf:
        return node if node.task_category == category else None
    kept = tuple(cut for each in node.sub_tasks if (cut := _only_category(each, category)))
    return replace(node, sub_tasks=kept) if kept else None
