"""The graded rubric: one score a node, computed from the verdicts on the leaves; and a whole grading.

A node's score is the weighted mean of its sub-tasks' scores, and 0 if their weights sum to 0. A leaf that could not be
graded has `valid_score` False and counts as 0, so that no submission gains by making its judge refuse; so have the
nodes above it. These are PaperBench's rules. `score_bounds` has the score if all leaves without a grade had passed.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import Annotated, Any, Literal, NamedTuple, Self, TypedDict

from pydantic import ConfigDict, Field, PlainValidator, StrictFloat, StrictInt, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from pcgeval.core.errors import PcgevalError
from pcgeval.formats.params import Price
from pcgeval.formats.stages import refusal
from pcgeval.rubric.record import CallUsage, JudgeRecord, ReproductionRecord, TokenUsage, metadata_of, record_of
from pcgeval.rubric.tree import CATEGORIES, RESULT_ANALYSIS, SUBTREE, RubricError, TaskNode, parse_tree

HEURISTIC = "heuristic"  # the judge type of a guess in place of a grading
PASSED = 0.5  # a leaf above this has passed (PaperBench)
RECORD_KEY = "pcgeval"  # the key of our record in the judge_metadata of a file for PaperBench
NO_TIME = "1970-01-01T00-00-00-GMT"  # PaperBench's form of a time
_WAY_TO_GRADING = ("pb_result", "paperbench_result", "judge_output", "grader_output")  # keys of PaperBench
_OF_PAPERBENCH = (
    *("judge_type", "score", "num_leaf_nodes", "num_invalid_leaf_nodes", "graded_at"),
    *("blacklist", "is_blacklisted"),  # from `_grading_within`
)
_OLD_CATEGORIES = {"Result Match": RESULT_ANALYSIS}  # as PaperBench's text says
_VALUES = ("id", "requirements", "weight", "score", "valid_score", "explanation", "task_category")
_TOKENS = TypeAdapter(dict[str, dict[str, int]] | None)
_DIGITS = 9  # of a width: far above what the order of sums can change
_SAME = 1e-9  # by how much figures may differ that were added up in another order
Share = Annotated[StrictInt | StrictFloat, Field(ge=0, le=1)]


class GradeError(PcgevalError, ValueError):
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
        return round(self.high - self.low, _DIGITS)  # 0.9 - 0.85 is more than 0.05


class EvidenceCount(NamedTuple):
    """How many leaves a model passed when it was asked for evidence, and for how many of these it quoted some."""

    passes: int
    quoted: int

    @property
    def words(self) -> str:
        """The count in words."""
        return f"evidence for {self.quoted} of {self.passes} passes"


@checked_dataclass(frozen=True, kw_only=True)
class GradedTaskNode(TaskNode):
    """A criterion with its grade.

    Where a leaf has no grade, `valid_score` is False and `score` 0; a node above is valid if all its sub-tasks are.
    `judge_metadata` is a `JudgeRecord`, or any JSON value in a tree that another tool graded.
    """

    score: Share = 0.0
    valid_score: bool = False
    explanation: str = "not yet graded"
    judge_metadata: Annotated[Any, PlainValidator(metadata_of)] = None

    @property
    def graded_score(self) -> float | None:
        """The score; None where neither the node nor any leaf below has a grade."""
        return self.score if any(leaf.valid_score for leaf in self.leaves) else None

    @property
    def outcome(self) -> Literal["passed", "failed", "invalid"]:
        """The meaning of the score for a leaf: it has passed above 0.5, and is invalid without a grade."""
        if not self.valid_score:
            return "invalid"
        return "passed" if self.score > PASSED else "failed"

    @property
    def score_bounds(self) -> ScoreBounds:
        """The node's score if all invalid leaves counted as 0, and as 1."""
        if self.is_leaf:
            return ScoreBounds(self.score, self.score) if self.valid_score else ScoreBounds(0.0, 1.0)
        weights = [task.weight for task in self.sub_tasks]
        lows, highs = zip(*[task.score_bounds for task in self.sub_tasks], strict=True)
        return ScoreBounds(weighted_mean(weights, lows), weighted_mean(weights, highs))

    @classmethod
    def from_task(
        cls, task: TaskNode, score: float, valid_score: bool, explanation: str, judge_metadata: Any = None
    ) -> "GradedTaskNode":
        """Return a tree in which every node has this grade."""
        grade: dict[str, Any] = {"score": score, "valid_score": valid_score, "explanation": explanation}
        grade["judge_metadata"] = judge_metadata
        return _graded(task, **grade, sub_tasks=tuple(cls.from_task(below, **grade) for below in task.sub_tasks))

    def to_task(self) -> TaskNode:
        """Return the criteria without the grades."""
        return TaskNode(**{**vars(self), "sub_tasks": tuple(task.to_task() for task in self.sub_tasks)})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "GradedTaskNode":
        """Return the tree of whatever `JudgeOutput.from_dict` reads; raise GradeError with the first faulty node."""
        try:
            return parse_tree(GradedTaskNode, _grading_within(data)["graded_task_tree"], "grade", _graded_fields)
        except RubricError as error:
            raise GradeError(f"{error.faults[0]} Give a tree as in grade.json.") from error

    def to_dict(self, model: str = "unknown") -> dict[str, Any]:
        """Return the tree as JSON values for PaperBench; see `JudgeOutput.to_dict`."""
        values = {name: getattr(self, name) for name in _VALUES}
        if self.finegrained_task_category:
            values["finegrained_task_category"] = self.finegrained_task_category
        below = [task.to_dict(model) for task in self.sub_tasks]
        return {**values, "judge_metadata": _paperbench_metadata(self, model), "sub_tasks": below}

    def to_json(self) -> "GradedTaskDict":
        """Return the tree as JSON values with PaperBench's names, which is a node still."""
        return GradedTaskDict(**vars(self))

    def set_score(self, score: float) -> Self:
        """Set the score of this node alone."""
        return replace(self, score=score)

    def set_explanation(self, new_explanation: str) -> Self:
        """Set the explanation."""
        return replace(self, explanation=new_explanation)


class GradedTaskDict(dict[str, Any], GradedTaskNode):
    """A graded tree as JSON values that is the tree too: `tree["score"]` and `tree.score` are the same."""

    __pydantic_serializer__ = TypeAdapter(dict[str, Any]).serializer

    def __init__(self, **fields: Any) -> None:
        """Make a node of these fields, and the JSON values of it."""
        GradedTaskNode.__init__(self, **fields)
        metadata, below = self.judge_metadata, [dict(task.to_json()) for task in self.sub_tasks]
        if isinstance(metadata, JudgeRecord):
            metadata = metadata.model_dump(mode="json", exclude_unset=True)
        self.update((name, getattr(self, name)) for name in (*_VALUES, "path", "finegrained_task_category"))
        self.update(judge_metadata=metadata, sub_tasks=below)


def _paperbench_metadata(node: GradedTaskNode, model: str) -> Any:
    record = node.judge_metadata
    if not isinstance(record, JudgeRecord):
        return record  # another tool's as it is
    values: dict[str, Any] = {RECORD_KEY: record.model_dump(mode="json", exclude_unset=True)}
    if record.votes:
        values["full_judge_response"] = "\n\n".join(vote.answer for vote in record.votes)
    if (total := record.usage.total).calls:
        values["token_usage"] = {model: {"in": total.prompt_tokens, "out": total.output_tokens}}
    return values


def get_total_token_usage(tree: GradedTaskNode, model: str = "unknown") -> dict[str, dict[str, int]]:
    """Return the tokens read (`in`) and written (`out`) for all leaves, by the name of the model.

    `model` names the one of our own records; metadata without such figures counts for nothing.
    """
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for leaf in tree.leaves:
        metadata = _paperbench_metadata(leaf, model)
        with suppress(ValidationError):
            usage = _TOKENS.validate_python(metadata.get("token_usage") if isinstance(metadata, Mapping) else None)
            for name, tokens in (usage or {}).items():
                total[name].update(tokens)
    return {name: {"in": tokens["in"], "out": tokens["out"]} for name, tokens in total.items()}


def _graded_fields(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a node in a file of ours or of PaperBench, whose old ones lack some."""
    fields = {"explanation": "", "valid_score": True, "score": None, **node, "merged": (), "check": None}
    category = node.get("task_category") or SUBTREE  # a leaf without one stands for a pruned part of the tree
    fields["task_category"] = None if node.get("sub_tasks") else _OLD_CATEGORIES.get(str(category), category)
    if isinstance(record := node.get("judge_metadata"), Mapping) and RECORD_KEY in record:
        fields["judge_metadata"] = record[RECORD_KEY]
    return fields


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
    def sub_tasks(self) -> tuple[GradedTaskNode, ...]:
        """The nodes below the root."""
        return self.graded_task_tree.sub_tasks

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
        quoted = sum(any(quote.is_evidence for quote in quotes) for quotes in asked)
        return EvidenceCount(len(asked), quoted) if asked else None

    @property
    def evidence_share(self) -> float | None:
        """The share of these passes, from 0 to 1; None without any."""
        return None if self.evidence is None else self.evidence.quoted / self.evidence.passes

    @property
    def judge_words(self) -> str:
        """The judge in a few words: its kind, its model and the version of its prompts, as far as they are known."""
        return " ".join(filter(None, (self.judge_type, self.model, self.prompt_version)))

    @property
    def success(self) -> bool:
        """Whether any leaf has a grade."""
        return self.num_invalid_leaf_nodes < self.num_leaf_nodes

    @property
    def token_usage(self) -> TokenUsage:
        """The cost of the model's calls, by kind, added up over the leaves."""
        usages = (record_of(leaf.judge_metadata).usage for leaf in self.graded_task_tree.leaves)
        return reduce(TokenUsage.plus, usages, TokenUsage())

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
        """Return the grading as JSON values; the tree among them is a node too."""
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

    def to_dict(self) -> dict[str, Any]:
        """Return the grading as JSON values that PaperBench's `JudgeOutput.from_dict` reads.

        A guess becomes a grading without a single valid leaf. In `judge_metadata`, `full_judge_response` has the
        model's answers, and the key `pcgeval` keeps the rest of our record of a leaf.
        """
        model = self.model or "unknown"
        return {
            "judge_type": "simple" if self.judge_type == HEURISTIC else self.judge_type,
            "score": self.graded_task_tree.score,
            "num_leaf_nodes": self.num_leaf_nodes,
            "num_invalid_leaf_nodes": self.num_invalid_leaf_nodes,
            "graded_at": self.graded_at or NO_TIME,
            "graded_task_tree": self.graded_task_tree.to_dict(model),
            "completer_config": {"model": self.model} if self.model else None,
            "token_usage": get_total_token_usage(self.graded_task_tree, model) or None,
        }

    @classmethod
    def from_dict(cls, data: Any, completer_config: object = None) -> "JudgeOutput":
        """Parse the result of `to_json`, a grading or a run of PaperBench, or a bare graded tree.

        The judge of a bare tree is `unknown`; PaperBench's class of completers is not needed. Raises GradeError for
        other values and for figures that differ from the tree.
        """
        del completer_config
        values = _grading_within(data)
        tree = GradedTaskNode.from_dict(values)
        if "score_bounds" not in values:  # PaperBench's, whose token_usage is by the model and not by the kind of call
            config = values.get("completer_config")
            model = config.get("model") if isinstance(config, Mapping) else values.get("model_name")
            known = {name: values[name] for name in _OF_PAPERBENCH if name in values}
            values = {"judge_type": "unknown", **known, "model": model if isinstance(model, str) else None}
        guess = values.get("score") if values.get("judge_type") == HEURISTIC else None
        try:
            output = _OUTPUT.validate_python({**values, "graded_task_tree": tree, "guess": guess})
        except ValidationError as error:
            raise GradeError(str(refusal("the grading", error, "Give a grade.json."))) from error
        if not _is_same(tree.score, expected := rescored(tree).score):
            raise GradeError(f"the root's score is {tree.score!r}, but its leaves give {expected!r}. Grade again.")
        for name, figure in output.to_json().items():
            if name != "graded_task_tree" and not _is_same(values.get(name, figure), figure):
                raise GradeError(f"{name} is {values[name]!r:.60}, but its tree gives {figure!r}. Grade again.")
        return output


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
    if task.sub_tasks:
        return _aggregated(_graded(task, sub_tasks=tuple(grade_tree(sub_task, judge) for sub_task in task.sub_tasks)))
    verdict = judge(task)
    score = verdict.score or 0.0
    if not 0 <= score <= 1:
        raise GradeError(f"{task.path}: the judge gave the score {score!r}. Scores are from 0 to 1.")
    grade = score, verdict.score is not None, verdict.explanation, verdict.judge_metadata
    return GradedTaskNode.from_task(task, *grade)


def _graded(task: TaskNode, **grade: Any) -> GradedTaskNode:
    return GradedTaskNode(**{**vars(task), "check": None, "merged": (), **grade})


def disqualify(tree: GradedTaskNode) -> GradedTaskNode:
    """Return the tree of a disqualified submission, in which every leaf has the score 0 (PaperBench)."""
    explanation = "the submission was disqualified"
    return rescored(tree.map_leaves(lambda leaf: replace(leaf, score=0.0, explanation=explanation)))


def rescored(tree: GradedTaskNode) -> GradedTaskNode:
    """Compute the scores of all inner nodes again from the leaves' scores."""
    return tree if tree.is_leaf else _aggregated(replace(tree, sub_tasks=tuple(map(rescored, tree.sub_tasks))))


def _aggregated(node: GradedTaskNode) -> GradedTaskNode:
    weighing = [task for task in node.sub_tasks if task.weight > 0]
    explanation = f"weighted mean of {len(weighing)} sub-tasks" if weighing else "0, because no sub-task has a weight"
    score = weighted_mean([task.weight for task in weighing], [task.score for task in weighing])
    is_valid = all(task.valid_score for task in node.sub_tasks)
    if not is_valid:
        explanation += "; leaves without a grade count as 0"
    return replace(node, score=score, valid_score=is_valid, explanation=explanation)


def extract_leaf_grades(grade: GradedTaskNode | JudgeOutput | Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the graded leaves in the order of the rubric as JSON values: id, requirements, score, explanation...

    `grade` is a grading, its tree, or what `to_json` of either or PaperBench's `to_dict` returns, such as
    `state["grade"]["graded_task_tree"]`; anything else raises GradeError.
    """
    return [dict(leaf.to_json()) for leaf in _tree_of(grade).leaves]


def get_grade_summary(grade: GradedTaskNode | JudgeOutput | Mapping[str, Any]) -> GradeSummary:
    """Return the root's score and the number of leaves of each outcome, overall and by each category that occurs.

    The argument and the errors are those of `extract_leaf_grades`.
    """
    tree = _tree_of(grade)
    parts = {name: part for name in CATEGORIES if (part := tree.reduce_to_category(name))}
    by_category = {name: _category_grade(rescored(part)) for name, part in parts.items()}
    return {"overall_score": tree.score, **_category_grade(tree), "by_category": by_category}


def _tree_of(grade: GradedTaskNode | JudgeOutput | Mapping[str, Any]) -> GradedTaskNode:
    if isinstance(grade, JudgeOutput):
        return grade.graded_task_tree
    return grade if isinstance(grade, GradedTaskNode) else GradedTaskNode.from_dict(grade)


def _category_grade(tree: GradedTaskNode) -> CategoryGrade:
    outcomes = Counter(leaf.outcome for leaf in tree.leaves)
    partial = sum(0 < (leaf.graded_score or 0) < 1 for leaf in tree.leaves)
    passed, failed, invalid = (outcomes[outcome] for outcome in ("passed", "failed", "invalid"))
    return {"score": tree.score, "passed": passed, "failed": failed, "partial": partial, "invalid": invalid}


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
