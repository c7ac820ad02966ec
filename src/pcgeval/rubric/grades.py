"""The graded rubric: one score a node, computed from the verdicts on the leaves, and the record beside each grade.

A node's score is the weighted mean of its sub-tasks' scores, and 0 if their weights sum to 0. A leaf that could not be
graded has `valid_score` False and counts as 0, so that no submission gains by making its judge refuse; so have the
nodes above it. These are PaperBench's rules. `score_bounds` has the score if all leaves without a grade had passed.

`JudgeRecord` is the model of `judge_metadata` in grade.json, one for all judges: a check fills `check` and `arguments`,
a person `author` and `date`, a language model the other fields. Only fields that were set are written.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import add, mul
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    SerializerFunctionWrapHandler,
    StrictFloat,
    StrictInt,
    TypeAdapter,
    ValidationError,
    model_serializer,
)
from pydantic.dataclasses import dataclass as checked_dataclass

from pcgeval.core.errors import PcgevalError
from pcgeval.formats.trials import ChatReply
from pcgeval.rubric.tree import RESULT_ANALYSIS, SUBTREE, RubricError, TaskNode, parse_tree

MAX_FOREIGN_TEXT, MAX_FOREIGN_LEVELS = 20_000, 100  # characters and levels of another tool's metadata
PASSED = 0.5  # a leaf above this has passed (PaperBench)
RECORD_KEY = "pcgeval"  # the key of our record in the judge_metadata of a file for PaperBench
_WAY_TO_GRADING = ("pb_result", "paperbench_result", "judge_output", "grader_output")  # keys of PaperBench
_OLD_CATEGORIES = {"Result Match": RESULT_ANALYSIS}  # as PaperBench's text says
_PAPERBENCH_FIELDS = ("id", "requirements", "weight", "score", "valid_score", "explanation", "task_category")
_MOST_COUNTED = 10**15  # tokens or seconds of a leaf: all of a tree together are still a finite number
_TOKEN_COUNTS = ("prompt_tokens", "output_tokens", "cached_tokens")
_WIDTH_DIGITS = 9  # far above what the order of sums can change
_Count = Annotated[int, Field(ge=0, le=_MOST_COUNTED)]
Share = Annotated[StrictInt | StrictFloat, Field(ge=0, le=1)]


class GradeError(PcgevalError, ValueError):
    """A verdict or a file of grades that is invalid."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CallUsage(_Record):
    """The cost of calls of one kind."""

    calls: _Count = 0
    prompt_tokens: _Count = 0  # that the model read
    output_tokens: _Count = 0  # that it wrote
    # of the model's time; a replayed call has those of its recording
    seconds: float = Field(0.0, ge=0, le=_MOST_COUNTED)
    cached_tokens: _Count = 0  # of the tokens read, those in the endpoint's cache, if it reports them
    estimated: bool = False  # whether some tokens are estimates, because the endpoint reports none

    @classmethod
    def of(cls, reply: ChatReply) -> Self:
        """Return the cost of one call; an endpoint may report any number, which is bounded here."""
        tokens = {name: min(getattr(reply, name) or 0, _MOST_COUNTED) for name in _TOKEN_COUNTS}
        return cls(
            calls=1, **tokens, seconds=round(min(reply.seconds, _MOST_COUNTED), 3), estimated=bool(reply.estimated)
        )

    def plus(self, other: Self) -> "CallUsage":
        """Return the sum; seconds are rounded to milliseconds, so that the order of adding does not show."""
        sums: dict[str, Any] = {name: value + getattr(other, name) for name, value in self}
        sums |= {"seconds": round(sums["seconds"], 3), "estimated": self.estimated or other.estimated}
        return CallUsage.model_construct(**sums)  # a sum may pass the bounds of what a file may name

    @model_serializer(mode="wrap")
    def _without_unknown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        return {name: value for name, value in values.items() if value or name not in {"cached_tokens", "estimated"}}


class TokenUsage(_Record):
    """The cost of the three kinds of calls: ranking files, grading, and parsing the answer."""

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

    def plus(self, other: Self) -> "TokenUsage":
        """Return the sum, kind by kind."""
        return TokenUsage(**{kind: usage.plus(getattr(other, kind)) for kind, usage in self})


class QuoteRecord(_Record):
    """Lines that an answer quotes as evidence, as they stand in the file where they were found; a long text is cut.

    The status is `found` in the named file, `elsewhere` in another that was shown, or `missing`; `counts` says whether
    that file can show what the criterion asks for: code for Code Development, the log for Code Execution, results of
    the run for Result Analysis.
    """

    status: Literal["found", "elsewhere", "missing"]
    counts: bool = False
    file: str = ""
    first_line: int | None = None
    last_line: int | None = None
    text: str = ""

    @property
    def is_evidence(self) -> bool:
        """Whether the lines exist where they can show something."""
        return self.status != "missing" and self.counts

    @property
    def words(self) -> str:
        """The place and what it is worth, in words."""
        if self.status == "missing":
            return f"the quoted lines are in no file that was shown{f' (named: {self.file})' if self.file else ''}"
        lines = f"{self.first_line}" if self.first_line == self.last_line else f"{self.first_line} to {self.last_line}"
        other = "" if self.status == "found" else ", which the answer did not name"
        worth = "" if self.counts else "; this file is no evidence for such a criterion"
        return f"{self.file}, line{'s' * (self.first_line != self.last_line)} {lines}{other}{worth}"


class VoteRecord(_Record):
    """One grading of a leaf by a model: its answer, what that quotes as evidence, and the reason if it has no score."""

    score: float | None
    explanation: str = ""
    reason: str | None = None
    answer: str = ""
    quote: QuoteRecord | None = None


class RefusedFile(_Record):
    """A file or folder of a submission that no judge is shown, and why."""

    name: str
    reason: str


class FilesRecord(_Record):
    """The files of a submission that a model could choose from, those it was shown, and notes about both."""

    offered: tuple[str, ...] = ()
    num_offered: int = 0
    picked: tuple[str, ...] = ()
    notes: dict[str, str] = {}
    refused: tuple[RefusedFile, ...] = ()
    how: str = ""

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes as lines: how files were chosen, which were cut, and which were not looked at."""
        cuts = [f"{name}: {note}" for name, note in self.notes.items()]
        refused = [f"not looked at: {file.name}, {file.reason}" for file in self.refused]
        return tuple(filter(None, (self.how, *cuts, *refused)))


class ReproductionRecord(_Record):
    """The run of reproduce.sh before a grading; `exit_code` is None if it was stopped or not started, for `reason`."""

    exit_code: int | None
    reason: str | None
    seconds: float = Field(ge=0)

    @property
    def words(self) -> str:
        """The run in a line."""
        how = "was stopped or not started" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        return f"reproduce.sh {how} after {self.seconds:g} s{f' ({self.reason})' if self.reason else ''}"


class JudgeRecord(_Record):
    """The record of one leaf."""

    check: str | None = None  # the check that decided the leaf
    arguments: dict[str, bool | int | float | str] = {}  # of the check
    author: str | None = None  # the person who graded
    date: str | None = None
    files: FilesRecord = FilesRecord()
    votes: tuple[VoteRecord, ...] = ()
    agreement: float | None = None  # of the votes, from 0 to 1
    usage: TokenUsage = TokenUsage()
    reason: str | None = None  # why there is no score

    @property
    def quotes(self) -> tuple[QuoteRecord, ...]:
        """What the votes quote as evidence, each quotation once; empty where none was asked for."""
        return tuple(dict.fromkeys(vote.quote for vote in self.votes if vote.quote is not None))

    @property
    def check_call(self) -> str:
        """The check as it would be called, `name(argument=value)`; empty if no check decided."""
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.arguments.items()}
        call = ", ".join(f"{name}={text}" for name, text in texts.items())
        return "" if self.check is None else f"{self.check}({call})"


def _json_value(value: Any, levels: int = MAX_FOREIGN_LEVELS) -> Any:
    """Return a value as JSON has it: Python reads and writes NaN and Infinity too, which become texts."""
    if not levels:
        raise ValueError(f"is nested deeper than {MAX_FOREIGN_LEVELS} levels")
    if isinstance(value, Mapping):
        return {str(key): _json_value(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item, levels - 1) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def metadata_of(value: Any) -> Any:
    """Return a leaf's `judge_metadata` from a file: a `JudgeRecord`, or another tool's as JSON has it."""
    if isinstance(value, Mapping) and value and value.keys() <= JudgeRecord.model_fields.keys():
        with suppress(ValidationError):
            return JudgeRecord.model_validate(value)
    return value if isinstance(value, JudgeRecord) else _json_value(value)


def record_of(metadata: Any) -> JudgeRecord:
    """Return a leaf's `judge_metadata` as a record; an empty one for the metadata of another tool, or none."""
    return metadata if isinstance(metadata, JudgeRecord) else JudgeRecord()


def foreign_text(metadata: Any) -> str:
    """Return the metadata of another tool as JSON, cut if long; empty for a record of ours, or none."""
    if metadata is None or isinstance(metadata, JudgeRecord):
        return ""
    text = metadata if isinstance(metadata, str) else json.dumps(metadata, ensure_ascii=False)
    return text[:MAX_FOREIGN_TEXT]


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
        return round(self.high - self.low, _WIDTH_DIGITS)  # 0.9 - 0.85 is more than 0.05


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
            return parse_tree(GradedTaskNode, grading_within(data)["graded_task_tree"], "grade", _graded_fields)
        except RubricError as error:
            raise GradeError(f"{error.faults[0]} Give a tree as in grade.json.") from error

    def to_dict(self, model: str = "unknown") -> dict[str, Any]:
        """Return the tree as JSON values for PaperBench; see `JudgeOutput.to_dict`."""
        values = {name: getattr(self, name) for name in _PAPERBENCH_FIELDS}
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
        self.update((name, getattr(self, name)) for name in (*_PAPERBENCH_FIELDS, "path", "finegrained_task_category"))
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


def _graded_fields(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a node in a file of ours or of PaperBench, whose old ones lack some."""
    fields = {"explanation": "", "valid_score": True, "score": None, **node, "merged": (), "check": None}
    category = node.get("task_category") or SUBTREE  # a leaf without one stands for a pruned part of the tree
    fields["task_category"] = None if node.get("sub_tasks") else _OLD_CATEGORIES.get(str(category), category)
    if isinstance(record := node.get("judge_metadata"), Mapping) and RECORD_KEY in record:
        fields["judge_metadata"] = record[RECORD_KEY]
    return fields


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
    grade = verdict.score or 0.0, verdict.score is not None, verdict.explanation, verdict.judge_metadata
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


def grading_within(value: Any) -> Mapping[str, Any]:
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
