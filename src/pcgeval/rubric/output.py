"""A whole grading: its figures and its files: our grade.json, PaperBench's, and logs of Inspect, only written.

PaperBench writes a grading (`JudgeOutput`) as grader_output.json, alone or within the record of a run, and publishes
bare trees. In all of these files, a leaf without a grade counts as 0.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from pcgeval.core.files import sha256_json
from pcgeval.core.untrusted import read_json
from pcgeval.formats.params import Price
from pcgeval.formats.stages import refusal
from pcgeval.rubric.grades import (
    CallUsage,
    GradedTaskNode,
    GradeError,
    ReproductionRecord,
    ScoreBounds,
    Share,
    TokenUsage,
    grading_within,
    record_of,
    rescored,
)
from pcgeval.rubric.tree import CATEGORIES

HEURISTIC = "heuristic"  # the judge type of a guess in place of a grading
NO_TIME = "1970-01-01T00-00-00-GMT"  # PaperBench's form of a time
_SAME = 1e-9  # by how much figures may differ that were added up in another order
_OF_PAPERBENCH = (
    *("judge_type", "score", "num_leaf_nodes", "num_invalid_leaf_nodes", "graded_at"),
    *("blacklist", "is_blacklisted"),  # from `grading_within`
)
MAX_BYTES = 100_000_000  # of a graded tree: 2 551 nodes, each with several long answers
INSPECT_NO_TIME = "1970-01-01T00:00:00+00:00"  # a grade has no time, so that the same inputs give the same bytes
NO_MODEL = "none/none"  # Inspect's name for an evaluation without a model
_TOKENS = TypeAdapter(dict[str, dict[str, int]] | None)  # of metadata in PaperBench's form
Parsed = TypeVar("Parsed")


class EvidenceCount(NamedTuple):
    """How many leaves a model passed when it was asked for evidence, and for how many of these it quoted some."""

    passes: int
    quoted: int

    @property
    def words(self) -> str:
        """The count in words."""
        return f"evidence for {self.quoted} of {self.passes} passes"


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
        values = grading_within(data)
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


def get_total_token_usage(tree: GradedTaskNode, model: str = "unknown") -> dict[str, dict[str, int]]:
    """Return the tokens read (`in`) and written (`out`) for all leaves, by the name of the model.

    `model` names the one of our own records; metadata without such figures counts for nothing.
    """
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for leaf in tree.leaves:
        metadata = leaf.to_dict(model)["judge_metadata"]
        with suppress(ValidationError):
            usage = _TOKENS.validate_python(metadata.get("token_usage") if isinstance(metadata, Mapping) else None)
            for name, tokens in (usage or {}).items():
                total[name].update(tokens)
    return {name: {"in": tokens["in"], "out": tokens["out"]} for name, tokens in total.items()}


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


def read_grade(path: Path) -> JudgeOutput:
    """Read a grade.json, or PaperBench's grader_output.json, the grade.json of its run, or a bare graded tree.

    Raises GradeError if it is none of these or its figures are not those of its tree, FileError if it is unreadable.
    """
    return _read(path, JudgeOutput.from_dict)


def read_graded_tree(path: Path) -> GradedTaskNode:
    """Read the tree alone, such as people's grades of the leaves; the scores above the leaves need not fit."""
    return _read(path, GradedTaskNode.from_dict)


def _read(path: Path, parse: Callable[[Any], Parsed]) -> Parsed:
    try:
        return parse(read_json(path, MAX_BYTES))
    except GradeError as error:
        raise GradeError(f"{path}: {error}") from error


def inspect_log(output: JudgeOutput) -> dict[str, Any]:
    """Return a grading as a log of Inspect, one sample a leaf (https://inspect.aisi.org.uk/eval-logs.html, version 2).

    The score of a sample is the leaf's; one without a grade has 0 and an error with the reason. The metric `score` is
    the root's score, the weighted mean over the tree, and not the mean over the samples.
    """
    tree, judge, model = output.graded_task_tree, output.judge_type, output.model or NO_MODEL
    rubric = output.rubric.id if output.rubric else tree.id
    samples = [_sample(leaf, judge, model) for leaf in tree.leaves]
    figures = {"score": output.score, "lowest": output.score_bounds.low, "highest": output.score_bounds.high}
    figures |= {} if output.evidence_share is None else {"evidence": output.evidence_share}
    metrics = {name: {"name": name, "value": value} for name, value in figures.items()}
    usage = output.token_usage.total
    tokens = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.output_tokens}
    tokens |= {"total_tokens": sum(tokens.values()), "input_tokens_cache_read": usage.cached_tokens}
    id_ = sha256_json(output.to_json())[:22]  # else Inspect gives all gradings the same one
    return {
        "version": 2,
        "status": "success",
        "eval": {
            **dict.fromkeys(("eval_id", "run_id", "task_id"), id_),
            "created": INSPECT_NO_TIME,
            "task": rubric,
            "model": model,
            "dataset": {"name": rubric, "samples": len(samples), "sample_ids": [sample["id"] for sample in samples]},
            "config": {"epochs": 1},
            "metadata": {"judge_type": judge, "votes": output.votes, "warnings": list(output.warnings)},
        },
        "plan": {},  # without it, Inspect cannot list the log
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples) - output.num_invalid_leaf_nodes,
            "scores": [{"name": judge, "scorer": judge, "metrics": metrics}],
        },
        "stats": {"started_at": INSPECT_NO_TIME, "completed_at": INSPECT_NO_TIME, "model_usage": {model: tokens}},
        "samples": samples,
    }


def _sample(leaf: GradedTaskNode, judge: str, model: str) -> dict[str, Any]:
    record = record_of(leaf.judge_metadata)
    answers = [vote.answer or vote.explanation for vote in record.votes] or [leaf.explanation]
    replies = [{"role": "assistant", "content": answer, "model": model} for answer in answers]
    metadata = {"weight": leaf.weight, "category": leaf.task_category, "check": record.check_call}
    score = {"value": leaf.score, "answer": leaf.outcome, "explanation": leaf.explanation, "metadata": metadata}
    error = {"message": leaf.explanation, "traceback": "", "traceback_ansi": ""}
    return {
        "id": leaf.path,
        "epoch": 1,
        "input": leaf.requirements,
        "target": "1",
        "messages": [{"role": "user", "content": leaf.requirements}, *replies],
        "output": {"model": model, "choices": [{"message": reply, "stop_reason": "stop"} for reply in replies]},
        "scores": {judge: score},
        "metadata": {"files": list(record.files.picked)},
        **({} if leaf.valid_score else {"error": error}),
    }


def _is_same(value: Any, expected: Any) -> bool:
    if isinstance(value, int | float) and isinstance(expected, int | float):
        return expected - _SAME <= value <= expected + _SAME  # `value` may be an integer that is no float
    return bool(value == expected)
