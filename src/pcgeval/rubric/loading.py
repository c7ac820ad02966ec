"""Read a `rubric.json`, and the `checks.yaml` that may lie beside it, and list the faults of each.

`checks.yaml` gives leaves of a published rubric checks: by a leaf's path, or by its id where no other leaf has it, a
check as a leaf of a competition's rubric names it.

    79cdbf21-6ad9: {name: result_value, arguments: {path: results.json, key: accuracy, at_least: 0.9}}
"""

from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from pcgeval.checks.checks import Check, LeafCheck
from pcgeval.core.files import sha256_bytes
from pcgeval.core.untrusted import parse_yaml, printable_line, read_bounded_json, read_bounded_text
from pcgeval.rubric.tree import CATEGORIES, MAX_DEPTH, MAX_NODES, RubricError, TaskNode, child_paths

CHECKS_FILE = "checks.yaml"
MAX_BYTES = 32_000_000
_MAX_CHECKS_BYTES = 500_000  # a check for each leaf of the largest published rubric
_REQUIRED = ("id", "requirements", "weight", "sub_tasks")
_OPTIONAL = ("task_category", "finegrained_task_category", "check")
_RUBRIC: TypeAdapter[TaskNode] = TypeAdapter(TaskNode)
_CHECKS: TypeAdapter[dict[str, Check]] = TypeAdapter(dict[str, Check])
Node = TypeVar("Node")


def load_rubric(path: Path | str) -> TaskNode:
    """Read and check a rubric in PaperBench's node format; a leaf may have a `check` besides; other keys are ignored.

    Raises:
        RubricError: The file is no rubric; the message lists the faults.
        FileError: The file is missing, too large, unreadable or not JSON in UTF-8.
    """
    return parse_rubric(read_bounded_json(Path(path), MAX_BYTES, follow_link=True), str(path))


def load_rubric_with_checks(path: Path, checks_file: Path | None = None) -> tuple[TaskNode, str | None]:
    """Read a rubric, and give its leaves the checks of a file, by default of the `checks.yaml` beside it.

    Return the rubric and the SHA-256 of the file of checks, None without one. Raises as `load_rubric` does.
    """
    if checks_file is None:
        checks_file = path.with_name(CHECKS_FILE)
        if not checks_file.exists() and not checks_file.is_symlink():
            return load_rubric(path), None
    text = read_bounded_text(checks_file, _MAX_CHECKS_BYTES, follow_link=True)
    try:
        checks = _CHECKS.validate_python(parse_yaml(text) or {})
    except ValidationError as error:
        faults = [f"{quoted('.'.join(map(str, fault['loc'])))}: {_message(fault)}." for fault in error.errors()]
        raise RubricError(checks_file, faults) from error
    except ValueError as error:
        raise RubricError(checks_file, [f"not valid YAML: {printable_line(str(error))}. Correct it."]) from error
    value = read_bounded_json(path, MAX_BYTES, follow_link=True)
    return parse_rubric(value, str(path), checks), sha256_bytes(text.encode())


def parse_rubric(value: Any, source: str, checks: Mapping[str, LeafCheck] | None = None) -> TaskNode:
    """Check a rubric as read from JSON; `source` is its name in messages, `checks` are those of a file by the leaf."""
    faults: list[str] = []
    checked: dict[str, list[str]] = {name: [] for name in checks or {}}  # the paths of the leaves by the name

    def fields_of(node: Mapping[str, Any], path: str) -> dict[str, Any]:
        fields = {key: node[key] for key in _REQUIRED if key in node}
        fields |= {key: node[key] for key in _OPTIONAL if node.get(key) not in (None, "")}
        if node.get("sub_tasks") and not fields.keys().isdisjoint({"task_category", "check"}):
            faults.append(f"{path}: has sub-tasks and a 'task_category' or 'check'. Leave these to the leaves.")
        if not node.get("sub_tasks"):
            if "task_category" not in fields:
                faults.append(f"{path}: a leaf needs a 'task_category'. Give one of: {'; '.join(CATEGORIES)}.")
            for name in {path, str(node.get("id"))} & checked.keys():
                faults.extend([f"{path}: has two checks. Keep one."] if "check" in fields else [])
                checked[name].append(path)
                fields["check"] = (checks or {})[name]
        return {**fields, "path": path}

    rubric = parse_tree(_RUBRIC, value, fields_of, faults)
    for name, paths in checked.items():
        if len(paths) != 1:
            of = f"of {len(paths)} leaves; give a path: {', '.join(paths[:5])}" if paths else "of no leaf"
            faults.append(f"{CHECKS_FILE}, {quoted(name)}: is the id {of}.")
    if rubric is None or faults:
        raise RubricError(source, faults)
    return rubric


def parse_tree(
    kind: TypeAdapter[Node],
    value: Any,
    fields_of: Callable[[Mapping[str, Any], str], dict[str, Any]],
    faults: list[str],
    path: str = "",
) -> Node | None:
    """Return a tree as read from JSON, or None if it is invalid; `faults` gets the path, key and value.

    `fields_of` is given the keys of a node in the file and its path, the ids from the root down, and returns the fields
    of its type.
    """
    if not path and _is_too_large(value):
        faults.append(f"the tree has more than {MAX_NODES} nodes, or is deeper than {MAX_DEPTH} levels. Shorten it.")
        return None
    node = value if isinstance(value, Mapping) else {}
    path = path or child_paths("", [node.get("id")])[0]
    fields = fields_of(node, path)
    if isinstance(below := fields.get("sub_tasks"), list):
        ids = [task.get("id") if isinstance(task, Mapping) else None for task in below]
        paths = child_paths(fields["path"], ids)
        fields["sub_tasks"] = tuple(
            parse_tree(kind, task, fields_of, faults, at) for task, at in zip(below, paths, strict=True)
        )
    try:
        return kind.validate_python(fields)
    except ValidationError as error:
        wrong = {str(fault["loc"][0]): fault for fault in error.errors(include_url=False)}
    for key, fault in wrong.items():
        if key != "sub_tasks" or len(fault["loc"]) == 1:  # else it is the fault of a sub-task, noted above
            value_shown = f", found {quoted(fields[key])}" if key in fields else ""
            faults.append(f"{path}: {key!r}: {_message(fault)}{value_shown}.")
    return None


def _is_too_large(value: Any) -> bool:
    nodes, level = 1, [value]
    for _ in range(MAX_DEPTH):
        sub_tasks = [node.get("sub_tasks") for node in level if isinstance(node, Mapping)]
        below = [tasks for tasks in sub_tasks if isinstance(tasks, list)]
        nodes += sum(map(len, below))
        if nodes > MAX_NODES:
            return True
        level = list(chain.from_iterable(below))
    return bool(level)


def _message(fault: Mapping[str, Any]) -> str:
    return str(fault["msg"]).removeprefix("Value error, ")[:400]


def quoted(value: Any) -> str:
    """Return a value for a message, with at most sixty characters and no control characters."""
    if isinstance(value, list | tuple | Mapping):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 62 else f"{text[:59]}..."
