"""The files of a grading: our grade.json, PaperBench's, which are read and written, and logs of Inspect.

PaperBench writes a grading (`JudgeOutput`) as grader_output.json, alone or within the record of a run, and publishes
bare trees. In all of these files, a leaf without a grade counts as 0.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pcgeval.core.files import sha256_json
from pcgeval.core.untrusted import read_json
from pcgeval.rubric.grades import GradedTaskNode, GradeError, JudgeOutput
from pcgeval.rubric.record import record_of

MAX_BYTES = 100_000_000  # of a graded tree: 2 551 nodes, each with several long answers
INSPECT_NO_TIME = "1970-01-01T00:00:00+00:00"  # a grade has no time, so that the same inputs give the same bytes
NO_MODEL = "none/none"  # Inspect's name for an evaluation without a model
Parsed = TypeVar("Parsed")


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
