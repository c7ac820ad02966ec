"""The graded rubric: one score a node, computed from the verdicts on the leaves.

A node's score is the weighted mean of its sub-tasks' scores, and 0 if their weights sum to 0. A leaf that could not be
graded has `valid_score` False and counts as 0, so that no submission gains by making its judge refuse. Both are
PaperBench's rules. `score_bounds` has the score if all leaves without a grade had passed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

from pydantic import ConfigDict, Field, StrictFloat, StrictInt, TypeAdapter, ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.core.profiles import Price
from pcgeval.rubric.loading import parse_tree
from pcgeval.rubric.record import CallUsage, Foreign, JudgeRecord, ReproductionRecord, TokenUsage, record_of
from pcgeval.rubric.tree import CATEGORIES, Requirements, TaskNode, Weight

HEURISTIC = "heuristic"  # the judge type of a guess in place of a grading
PASSED = 0.5  # a leaf above this has passed (PaperBench)
RECORD_KEY = "pcgeval"  # the key of our record in the judge_metadata of a file for PaperBench
_WAY_TO_GRADING = ("pb_result", "paperbench_result", "judge_output", "grader_output")  # keys of PaperBench
_OF_PAPERBENCH = (
    *("judge_type", "score", "num_leaf_nodes", "num_invalid_leaf_nodes", "graded_at"),
    *("blacklist", "is_blacklisted"),  # from `_grading_within`
)
_SAME = 1e-9  # by how much figures may differ that were added up in another order
Share = Annotated[StrictInt | StrictFloat, Field(ge=0, le=1)]


class GradeError(PcgevalError):
    """A verdict or a file of grades that is invalid."""


@dataclass(frozen=True)
class Verdict:
    """A judge's verdict on one leaf: a score from 0 to 1, or None where it could not tell, and the reason."""

    score: float | None
    explanation: str
    judge_metadata: JudgeRecord | None = None


class ScoreBounds(NamedTuple):
    """A node's score if all leaves without a grade had failed, and if all had passed."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """How much of the score is unknown."""
        return self.high - self.low


class EvidenceCount(NamedTuple):
    """How many leaves a model passed when it was asked for evidence, and for how many of these it quoted some."""

    passes: int
    shown: int

    @property
    def words(self) -> str:
        """The count in words."""
        return f"evidence for {self.shown} of {self.passes} passes"


@dataclass(frozen=True)
class GradedTaskNode:
    """A criterion with its grade, in PaperBench's graded-node format.

    Where there is no grade, `valid_score` is False and `score` 0. `judge_metadata` is a `JudgeRecord`, or any JSON
    value in a tree that another tool graded.
    """

    path: str
    id: str
    requirements: Requirements
    weight: Weight
    score: Share
    valid_score: bool  # 1.0 and 0.0 in PaperBench's files
    explanation: str
    sub_tasks: tuple["GradedTaskNode", ...]
    task_category: str | None = None
    finegrained_task_category: str | None = None
    judge_metadata: Annotated[JudgeRecord | Foreign, Field(union_mode="left_to_right")] = None

    @property
    def is_leaf(self) -> bool:
        """Whether the node was graded itself instead of through its sub-tasks."""
        return not self.sub_tasks

    @property
    def graded_score(self) -> float | None:
        """The score; None where there is no grade."""
        return self.score if self.valid_score else None

    @property
    def outcome(self) -> Literal["passed", "failed", "invalid"]:
        """The meaning of the score for a leaf: it has passed above 0.5, and is invalid without a grade."""
        if not self.valid_score:
            return "invalid"
        return "passed" if self.score > PASSED else "failed"

    @property
    def leaves(self) -> tuple["GradedTaskNode", ...]:
        """The graded leaves in the order of the rubric."""
        return tuple(leaf for task in self.sub_tasks for leaf in task.leaves) or (self,)

    @property
    def score_bounds(self) -> ScoreBounds:
        """The node's score if all invalid leaves counted as 0, and as 1."""
        if self.is_leaf:
            return ScoreBounds(self.score, self.score) if self.valid_score else ScoreBounds(0.0, 1.0)
        weights = [task.weight for task in self.sub_tasks]
        lows, highs = zip(*[task.score_bounds for task in self.sub_tasks], strict=True)
        return ScoreBounds(weighted_mean(weights, lows), weighted_mean(weights, highs))

    def to_json(self) -> dict[str, Any]:
        """Return the node and all below it as JSON values, with PaperBench's key names."""
        values: dict[str, Any] = _TREE.dump_python(self, mode="json", exclude_unset=True, warnings=False)
        return values


_TREE: TypeAdapter[GradedTaskNode] = TypeAdapter(GradedTaskNode)


class CategoryGrade(TypedDict):
    """The root's score over one category's leaves, and how many passed, failed and are invalid; invalid ones count 0.

    A leaf has passed with a score above 0.5. `partial` counts those that passed or failed with neither 1 nor 0.
    """

    score: float
    passed: int
    failed: int
    partial: int
    invalid: int


class GradeSummary(CategoryGrade):
    """The same for all leaves, and for each category that occurs; `overall_score` is `score`."""

    overall_score: float
    by_category: dict[str, CategoryGrade]


@dataclass(frozen=True)
class RubricIdentity:
    """The rubric of a grading: its id in params.yaml, and the SHA-256 of its file."""

    id: str
    sha256: str


EndedBy = Literal["endpoint", "budget", "deadline", "stop", "mixed"]


@dataclass(frozen=True)
class JudgeOutput:
    """A whole grading, the content of grade.json; every figure is computed from the tree."""

    __pydantic_config__ = ConfigDict(extra="ignore")

    judge_type: str  # `heuristic` is a guess in place of a grading that could not run
    graded_task_tree: GradedTaskNode
    model: str | None = None  # the name of the model that judged, if one did
    model_digest: str | None = None  # pins its bytes
    answered_by: tuple[str, ...] | None = None  # how the answering models call themselves, if their server says it
    prompt_version: str | None = None  # the hash that pins the judge's prompts
    votes: int = 1  # of the model for a leaf
    guess: Share | None = None  # the score of the heuristic
    warnings: tuple[str, ...] = ()  # messages that a reader must see before the score
    team: str | None = None  # in a competition
    rubric: RubricIdentity | None = None  # of the competition
    price: Price | None = None  # of the model, where it is known
    prompts: str | None = None  # the family of the judge's prompts
    blacklist: str | None = None  # the result of the search for the addresses that the paper's blacklist.txt forbids
    is_blacklisted: bool = False  # such an address was used, so that the grading does not count beside others
    reproduction: ReproductionRecord | None = None  # its seconds differ from run to run
    checks_sha256: str | None = None  # of the file beside the rubric that gave leaves their checks
    graded_at: str | None = None  # of a grading by PaperBench; ours have no time, so that the bytes stay the same
    partial: str | None = None  # why a grading ended early, and for how many leaves; grading again continues it
    ended_by: EndedBy | None = None  # the same in one word

    @property
    def score(self) -> float:
        """The root's score, or the heuristic's guess."""
        return self.graded_task_tree.score if self.guess is None else self.guess

    @property
    def score_bounds(self) -> ScoreBounds:
        """The scores if all invalid leaves counted as 0, and as 1."""
        return self.graded_task_tree.score_bounds

    @property
    def num_leaf_nodes(self) -> int:
        """The number of nodes that were to be graded."""
        return len(self.graded_task_tree.leaves)

    @property
    def num_passed(self) -> int:
        """The number of leaves with a score above 0.5."""
        return sum(leaf.outcome == "passed" for leaf in self.graded_task_tree.leaves)

    @property
    def num_invalid_leaf_nodes(self) -> int:
        """The number of leaves that could not be graded."""
        return sum(not leaf.valid_score for leaf in self.graded_task_tree.leaves)

    @property
    def evidence(self) -> EvidenceCount | None:
        """The passes that a model quoted evidence for; None where it was asked for none, or passed nothing."""
        passed = [record_of(leaf.judge_metadata) for leaf in self.graded_task_tree.leaves if leaf.outcome == "passed"]
        asked = [record.quotes for record in passed if record.quotes]
        return (
            EvidenceCount(len(asked), sum(any(quote.is_evidence for quote in quotes) for quotes in asked))
            if asked
            else None
        )

    @property
    def evidence_share(self) -> float | None:
        """The share of these passes, from 0 to 1; None without any."""
        return None if self.evidence is None else self.evidence.shown / self.evidence.passes

    @property
    def token_usage(self) -> TokenUsage:
        """The cost of the model's calls, by kind, added up over the leaves."""
        total = TokenUsage()
        for leaf in self.graded_task_tree.leaves:
            total = total.plus(record_of(leaf.judge_metadata).usage)
        return total

    @property
    def cost(self) -> float | None:
        """The price of all calls in US dollars; None where the model's price is unknown."""
        return self.cost_of(self.token_usage.total)

    def cost_of(self, usage: CallUsage) -> float | None:
        """Return the price of some calls in US dollars; None where the model's price is unknown."""
        if self.price is None:
            return None
        return round(self.price.cost(usage.prompt_tokens, usage.output_tokens, usage.cached_tokens), 6)

    def to_json(self) -> dict[str, Any]:
        """Return the grading as JSON values."""
        usage = self.token_usage
        values = _OUTPUT.dump_python(self, mode="json", exclude={"guess", "graded_task_tree"}, warnings=False)
        known = {name: value for name, value in values.items() if value is not None and value is not False}
        return {
            **dict.fromkeys(("model", "model_digest", "prompt_version")),  # written although they are not known
            **known,
            **({} if self.price is None else {"cost": self.cost}),
            "score": self.score,
            "score_bounds": list(self.score_bounds),
            "num_leaf_nodes": self.num_leaf_nodes,
            "num_passed": self.num_passed,
            **({} if self.evidence_share is None else {"evidence_share": self.evidence_share}),
            "num_invalid_leaf_nodes": self.num_invalid_leaf_nodes,
            "token_usage": usage.model_dump(),
            "seconds": usage.total.seconds,
            "graded_task_tree": self.graded_task_tree.to_json(),
        }


_OUTPUT: TypeAdapter[JudgeOutput] = TypeAdapter(JudgeOutput)


def weighted_mean(weights: Sequence[float], scores: Sequence[float]) -> float:
    """Return sum(weight * score) / sum(weight), and 0 if the weights sum to 0."""
    total = added_up(weights)
    return added_up(map(mul, weights, scores)) / total if total else 0.0


def added_up(numbers: Iterable[float]) -> float:
    """Return the sum, added up one by one: Python's own `sum` rounds differently from version 3.12 on."""
    return reduce(add, numbers, 0.0)


def grade_tree(task: TaskNode, judge: Callable[[TaskNode], Verdict]) -> GradedTaskNode:
    """Ask for a verdict on each leaf, in the order of the rubric, and compute the scores of all nodes above."""
    verdict = judge(task) if task.is_leaf else Verdict(None, "")
    if verdict.score is not None and not 0 <= verdict.score <= 1:
        raise GradeError(f"{task.path}: the judge gave the score {verdict.score!r}. Scores are from 0 to 1.")
    node = GradedTaskNode(
        path=task.path,
        id=task.id,
        requirements=task.requirements,
        weight=task.weight,
        score=0.0 if verdict.score is None else verdict.score,
        valid_score=verdict.score is not None,
        explanation=verdict.explanation,
        sub_tasks=tuple(grade_tree(sub_task, judge) for sub_task in task.sub_tasks),
        task_category=task.task_category,
        finegrained_task_category=task.finegrained_task_category,
        judge_metadata=verdict.judge_metadata,
    )
    return node if node.is_leaf else _aggregated(node, node.sub_tasks)


def rescored(tree: GradedTaskNode) -> GradedTaskNode:
    """Compute the scores of all inner nodes again from the leaves' scores."""
    return tree if tree.is_leaf else _aggregated(tree, tuple(map(rescored, tree.sub_tasks)))


def _aggregated(node: GradedTaskNode, sub_tasks: tuple[GradedTaskNode, ...]) -> GradedTaskNode:
    """Return an inner node with these sub-tasks and the score that they give it."""
    weighing = [task for task in sub_tasks if task.weight > 0]
    ungraded = sum(not task.valid_score for task in weighing)
    explanation = f"weighted mean of {len(weighing)} sub-tasks" if weighing else "0, because no sub-task has a weight"
    if ungraded:
        explanation += f"; {ungraded} without a grade count as 0"
    score = weighted_mean([task.weight for task in weighing], [task.score for task in weighing])
    is_valid = ungraded < len(weighing) or not weighing
    return replace(node, sub_tasks=sub_tasks, score=score, valid_score=is_valid, explanation=explanation)


def extract_leaf_grades(grade: GradedTaskNode | JudgeOutput | Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the graded leaves in the order of the rubric as JSON values: id, requirements, score, explanation...

    `grade` is a grading, its tree, or what `to_json` of either or PaperBench's `to_dict` returns, such as
    `state["grade"]["graded_task_tree"]`; anything else raises GradeError.
    """
    return [leaf.to_json() for leaf in _tree_of(grade).leaves]


def get_grade_summary(grade: GradedTaskNode | JudgeOutput | Mapping[str, Any]) -> GradeSummary:
    """Return the root's score and the number of leaves of each outcome, overall and by each category that occurs.

    The argument and the errors are those of `extract_leaf_grades`.
    """
    tree = _tree_of(grade)
    by_category = {name: _category_grade(part) for name in CATEGORIES if (part := _only_category(tree, name))}
    return {"overall_score": tree.score, **_category_grade(tree), "by_category": by_category}


def _tree_of(grade: GradedTaskNode | JudgeOutput | Mapping[str, Any]) -> GradedTaskNode:
    if isinstance(grade, JudgeOutput):
        return grade.graded_task_tree
    return grade if isinstance(grade, GradedTaskNode) else graded_task_from_json(grade)


def _category_grade(tree: GradedTaskNode) -> CategoryGrade:
    outcomes = Counter(leaf.outcome for leaf in tree.leaves)
    partial = sum(0 < (leaf.graded_score or 0) < 1 for leaf in tree.leaves)
    passed, failed, invalid = (outcomes[outcome] for outcome in ("passed", "failed", "invalid"))
    return {"score": tree.score, "passed": passed, "failed": failed, "partial": partial, "invalid": invalid}


def _only_category(node: GradedTaskNode, category: str) -> GradedTaskNode | None:
    """Return a tree of one category's leaves, scored anew; None where there is no such leaf."""
    if node.is_leaf:
        return node if node.task_category == category else None
    sub_tasks = tuple(cut for task in node.sub_tasks if (cut := _only_category(task, category)))
    return _aggregated(node, sub_tasks) if sub_tasks else None


def graded_task_from_json(value: Any) -> GradedTaskNode:
    """Parse the tree alone of what `judge_output_from_json` reads; raise GradeError with the first faulty node."""
    faults: list[str] = []
    paths: set[str] = set()

    def fields_of(node: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = {"explanation": "", "valid_score": True, **node}
        given = node.get("path")  # PaperBench's nodes have none, or one with another meaning
        if not isinstance(given, str) or given.rpartition("/")[0] != path.rpartition("/")[0]:
            fields["path"] = path
        if fields["path"] in paths:  # one would hide the other, as nodes are found by their paths
            faults.append(f"{fields['path']:.200}: two nodes have this path. Leave it out of both.")
        paths.add(fields["path"])
        if isinstance(record := node.get("judge_metadata"), Mapping) and RECORD_KEY in record:
            fields["judge_metadata"] = record[RECORD_KEY]
        return fields

    tree = parse_tree(_TREE, _grading_within(value)["graded_task_tree"], fields_of, faults)
    if tree is None or faults:
        raise GradeError(f"{faults[0]} Give a tree as in grade.json.")
    return tree


def judge_output_from_json(value: Any) -> JudgeOutput:
    """Parse the result of `JudgeOutput.to_json`, a grading or a run of PaperBench, or a bare graded tree.

    The judge of a bare tree is `unknown`. Raises GradeError for other values and for figures that differ from the tree.
    """
    values = _grading_within(value)
    tree = graded_task_from_json(values)
    if "score_bounds" not in values:  # PaperBench's, which has its token_usage by the model and not by the kind of call
        config = values.get("completer_config")
        model = config.get("model") if isinstance(config, Mapping) else values.get("model_name")
        known = {name: values[name] for name in _OF_PAPERBENCH if name in values}
        values = {"judge_type": "unknown", **known, "model": model if isinstance(model, str) else None}
    guess = values.get("score") if values.get("judge_type") == HEURISTIC else None
    try:
        output = _OUTPUT.validate_python({**values, "graded_task_tree": tree, "guess": guess})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"]))
        raise GradeError(f"{key!r}: {fault['msg']:.200}, found {fault['input']!r:.60}. Give a grade.json.") from error
    if not _is_same(tree.score, expected := rescored(tree).score):
        raise GradeError(f"the root's score is {tree.score!r}, but its leaves give {expected!r}. Grade again.")
    for name, figure in output.to_json().items():
        if name != "graded_task_tree" and not _is_same(values.get(name, figure), figure):
            raise GradeError(f"{name} is {values[name]!r:.60}, but its tree gives {figure!r}. Grade again.")
    return output


def _grading_within(value: Any) -> Mapping[str, Any]:
    """Return the grading within PaperBench's record of a run, or around a bare tree.

    `blacklist` gets the forbidden addresses that PaperBench's monitor saw in the agent's log.
    """
    monitored: Any = None
    while isinstance(value, Mapping) and "graded_task_tree" not in value and (value.keys() & {*_WAY_TO_GRADING}):
        monitored = value.get("monitor_result") or monitored
        key = next(key for key in _WAY_TO_GRADING if key in value)
        if (value := value[key]) is None:
            raise GradeError(f"{key!r} is null: this run was not graded. Name the file of a run that was.")
    if not isinstance(value, Mapping) or "graded_task_tree" not in value:
        return {"graded_task_tree": value}
    if isinstance(monitored, Mapping) and monitored.get("violations"):
        return {**value, "blacklist": f"{monitored.get('explanation')}", "is_blacklisted": True}
    return value


def _is_same(value: Any, expected: Any) -> bool:
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return expected - _SAME <= value <= expected + _SAME  # `value` may be an integer that is no float
    return bool(value == expected)
