"""Reading gradings back: our own grade.json, and graded trees in PaperBench's format."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pcgeval.rubric.grades import GradedTask, GradeError, JudgeOutput, rescored
from pcgeval.rubric.tree import MAX_DEPTH, child_paths

HEURISTIC = "heuristic"  # the judge type of a guess in place of a grading
_Kind = TypeVar("_Kind")
# what a grading of the time before there was a model judge does not say
_LATER_KEYS = frozenset({"model", "model_digest", "prompt_version", "votes", "token_usage", "seconds", "warnings"})


def judge_output_from_json(value: Any) -> JudgeOutput:
    """Read what `JudgeOutput.to_json` returned; keys beside its own are ignored.

    Raises:
        GradeError: It is not that, or its figures are not those of its tree.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("judge_type"), str):
        raise GradeError("not a grading: it has no 'judge_type'. Give a grade.json.")
    tree = graded_task_from_json(value.get("graded_task_tree"))
    judge_type = value["judge_type"]
    output = JudgeOutput(
        judge_type,
        tree,
        **{name: _optional(value, name, str) for name in ("model", "model_digest", "prompt_version")},
        votes=_optional(value, "votes", int) or 1,
        guess=_number(value, tree.path, "score", 1.0) if judge_type == HEURISTIC else None,
        warnings=tuple(str(each) for each in _optional(value, "warnings", list) or ()),
    )
    if (expected := rescored(tree).score) != tree.score:
        raise GradeError(f"the root's score is {tree.score!r}, but its leaves give {expected!r}. Grade again.")
    for name, figure in output.to_json().items():
        if name not in {"graded_task_tree", *(_LATER_KEYS - set(value))} and value.get(name) != figure:
            raise GradeError(f"{name} is {value.get(name)!r:.60}, but its tree gives {figure!r}. Grade again.")
    return output


def graded_task_from_json(value: Any) -> GradedTask:
    """Read a graded tree as `GradedTask.to_json` writes it or as PaperBench does, which knows no paths.

    Raises:
        GradeError: It is not one; the message has the path of the first faulty node.
    """
    return _node_from_json(value, _paths_of("", [value])[0], 1)


def _paths_of(parent: str, values: Sequence[Any]) -> list[str]:
    return child_paths(parent, [str(each.get("id")) if isinstance(each, Mapping) else "?" for each in values])


def _node_from_json(value: Any, path: str, level: int) -> GradedTask:
    if level > MAX_DEPTH:
        raise GradeError(f"{path}: lies deeper than {MAX_DEPTH} levels. Grade against a flatter rubric.")
    if not isinstance(value, Mapping):
        raise GradeError(f"{path}: not a graded node. Give a tree as in grade.json.")
    sub_tasks = value.get("sub_tasks")
    if not isinstance(sub_tasks, list):
        raise GradeError(f"{path}: 'sub_tasks' is no list. Give a tree as in grade.json.")
    path = _field({"path": path, **value}, path, "path", str)
    paths = _paths_of(path, sub_tasks)
    score = None if value.get("score", "") is None else _number(value, path, "score", 1.0)
    valid_score = _field(value, path, "valid_score", bool)
    if score is None and valid_score:
        raise GradeError(f"{path}: 'valid_score' is true without a score. Give a tree as in grade.json.")
    return GradedTask(
        path=path,
        id=_field(value, path, "id", str),
        requirements=_field(value, path, "requirements", str),
        weight=_number(value, path, "weight", math.inf),
        score=score,
        valid_score=valid_score,
        explanation=_field(value, path, "explanation", str),
        sub_tasks=tuple(_node_from_json(each, at, level + 1) for each, at in zip(sub_tasks, paths, strict=True)),
        task_category=value.get("task_category"),
        finegrained_task_category=value.get("finegrained_task_category"),
        judge_metadata=value.get("judge_metadata"),
    )


def _optional(value: Mapping[str, Any], key: str, kind: type[_Kind]) -> _Kind | None:
    if (found := value.get(key)) is not None and not isinstance(found, kind):
        raise GradeError(f"{key!r} is {found!r:.60}, not {kind.__name__}. Give a grade.json.")
    return found


def _field(value: Mapping[str, Any], path: str, key: str, kind: type[_Kind]) -> _Kind:
    if not isinstance(found := value.get(key), kind):
        raise GradeError(f"{path}: {key!r} is {found!r:.60}, not {kind.__name__}. Give a tree as in grade.json.")
    return found


def _number(value: Mapping[str, Any], path: str, key: str, most: float) -> float:
    found = value.get(key)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found <= most or found == math.inf:
        raise GradeError(f"{path}: {key!r} is {found!r:.60}, not a number from 0 to {most:g}. Correct it.")
    return found
