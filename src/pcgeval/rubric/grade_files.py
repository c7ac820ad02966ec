"""Reading gradings: our own grade.json, and graded trees in PaperBench's format."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pcgeval.core.untrusted import read_bounded_json
from pcgeval.rubric.grades import HEURISTIC, GradedTask, GradeError, JudgeOutput, rescored
from pcgeval.rubric.tree import MAX_DEPTH, child_paths

MAX_BYTES = 2**28  # of a graded tree: 2 551 nodes, each with several long answers
_OUTPUT: TypeAdapter[JudgeOutput] = TypeAdapter(JudgeOutput)
_TREE: TypeAdapter[GradedTask] = TypeAdapter(GradedTask)


def read_grade(path: Path) -> JudgeOutput:
    """Read a grade.json, or a bare graded tree as PaperBench publishes it, whose judge is then `unknown`.

    Raises:
        GradeError: It is neither, or its figures are not those of its tree.
        FileError: It is missing or unreadable.
    """
    value = read_bounded_json(path, MAX_BYTES, follow_link=True)
    if not isinstance(value, Mapping) or not value.keys() & {"judge_type", "graded_task_tree"}:
        value = {"judge_type": "unknown", "graded_task_tree": value}
    try:
        return judge_output_from_json(value)
    except GradeError as error:
        raise GradeError(f"{path}: {error}") from error


def read_graded_tree(path: Path) -> GradedTask:
    """Read a graded tree alone, from a file whose other figures may be another tool's.

    Raises:
        GradeError: There is none, or it is a guess.
        FileError: The file is missing or unreadable.
    """
    value = read_bounded_json(path, MAX_BYTES, follow_link=True)
    if isinstance(value, Mapping) and value.get("judge_type") == HEURISTIC:
        raise GradeError(f"{path}: a guess in place of a grading, so there is nothing to compare. Grade again.")
    try:
        return graded_task_from_json(value.get("graded_task_tree", value) if isinstance(value, Mapping) else value)
    except GradeError as error:
        raise GradeError(f"{path}: {error}") from error


def judge_output_from_json(value: Any) -> JudgeOutput:
    """Parse the result of `JudgeOutput.to_json`; other keys are ignored.

    Raises:
        GradeError: It is not that, or its figures are not those of its tree.
    """
    if not isinstance(value, Mapping) or not isinstance(value.get("judge_type"), str):
        raise GradeError("not a grading: it has no 'judge_type'. Give a grade.json.")
    tree = graded_task_from_json(value.get("graded_task_tree"))
    guess = value.get("score") if value["judge_type"] == HEURISTIC else None
    try:
        output = _OUTPUT.validate_python({**value, "graded_task_tree": tree, "guess": guess})
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        key = ".".join(map(str, fault["loc"]))
        raise GradeError(f"{key!r} is {fault['input']!r:.60}: {fault['msg']:.200}. Give a grade.json.") from error
    if (expected := rescored(tree).score) != tree.score:
        raise GradeError(f"the root's score is {tree.score!r}, but its leaves give {expected!r}. Grade again.")
    for name, figure in output.to_json().items():
        if name != "graded_task_tree" and value.get(name, figure) != figure:
            raise GradeError(f"{name} is {value[name]!r:.60}, but its tree gives {figure!r}. Grade again.")
    return output


def graded_task_from_json(value: Any) -> GradedTask:
    """Parse a graded tree as `GradedTask.to_json` returns it or as PaperBench writes it, without paths.

    Raises:
        GradeError: It is not one; the message has the path of the first faulty node.
    """
    tree = _with_path(value, _paths("", [value])[0], 1)
    try:
        return _TREE.validate_python(tree)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        node, keys = tree, list(fault["loc"])
        while len(keys) > 1 and keys[0] == "sub_tasks":
            node, keys = node["sub_tasks"][keys[1]], keys[2:]
        place = node["path"] if isinstance(node, Mapping) else "a node"
        found = f"{keys[0]!r} is {fault['input']!r:.60}: " if keys else ""
        raise GradeError(f"{place}: {found}{fault['msg']:.200}. Give a tree as in grade.json.") from error


def _paths(parent: str, values: list[Any]) -> list[str]:
    return child_paths(parent, [str(each.get("id")) if isinstance(each, Mapping) else "?" for each in values])


def _with_path(value: Any, path: str, level: int) -> Any:
    """Return a tree whose nodes have the paths that follow from their ids, where they have none of their own."""
    if level > MAX_DEPTH:
        raise GradeError(f"{path}: lies deeper than {MAX_DEPTH} levels. Grade against a flatter rubric.")
    if not isinstance(value, Mapping) or not isinstance(value.get("sub_tasks"), list):
        return {"path": path, **value} if isinstance(value, Mapping) else value
    path = value["path"] if isinstance(value.get("path"), str) else path
    below = value["sub_tasks"]
    return {
        **value,
        "path": value.get("path", path),
        "sub_tasks": [_with_path(each, at, level + 1) for each, at in zip(below, _paths(path, below), strict=True)],
    }
