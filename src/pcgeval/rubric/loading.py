"""Read a `rubric.json`, and the `checks.yaml` that may lie beside it, and list all that is wrong with them.

`checks.yaml` gives leaves of a published rubric checks: by a leaf's path, or by its id where no other leaf has it, a
check as a leaf of a competition's rubric names it.

    79cdbf21-6ad9: {name: result_value, arguments: {path: results.json, key: accuracy, at_least: 0.9}}
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import TypeAdapter, ValidationError

from pcgeval.checks.checks import LeafCheck, check_fault
from pcgeval.core.files import sha256_bytes
from pcgeval.core.untrusted import parse_yaml, printable_line, read_bounded_json, read_bounded_text
from pcgeval.rubric.tree import CATEGORIES, MAX_DEPTH, MAX_NODES, RubricError, TaskNode, child_paths, leaves, walk

CHECKS_FILE = "checks.yaml"
MAX_BYTES = 32_000_000
_MAX_ID = 200  # characters
_MAX_CHECKS_BYTES = 500_000  # a check for each leaf of the largest published rubric
_REQUIRED = ("id", "requirements", "weight", "sub_tasks")
_OPTIONAL = ("task_category", "finegrained_task_category", "check")
_RUBRIC: TypeAdapter[TaskNode] = TypeAdapter(TaskNode)
_CHECKS: TypeAdapter[dict[str, LeafCheck]] = TypeAdapter(dict[str, LeafCheck])
NodeOf = Callable[[Mapping[str, Any], str, int], dict[str, Any]]


def load_rubric(path: Path | str) -> TaskNode:
    """Read and check a rubric in PaperBench's node format; a leaf may have a `check` besides.

    Other keys, such as the scores of a graded tree, are ignored, unless they look like a known one that is missing.

    Raises:
        RubricError: The file is no rubric; the message lists the faults, each with the path of its node.
        FileError: The file is missing, too large, unreadable or not JSON in UTF-8.
    """
    return parse_rubric(read_bounded_json(Path(path), MAX_BYTES, follow_link=True), str(path))


def parse_rubric(value: Any, source: str) -> TaskNode:
    """Check a rubric as read from JSON; `source` is the name that messages give it.

    Raises:
        RubricError: The value is no rubric; the message lists the faults.
    """
    faults: list[str] = []
    tree = with_paths(value, partial(_rubric_node, faults))
    try:
        rubric = _RUBRIC.validate_python(tree)
    except ValidationError as error:
        raise RubricError(source, faults + node_faults(error, tree)) from error
    if (nodes := sum(1 for _ in walk(rubric))) > MAX_NODES:
        faults.append(f"{rubric.path}: the rubric has {nodes} nodes. Shorten it to at most {MAX_NODES}.")
    faults += [
        f"{leaf.path}: {fault}" for leaf in leaves(rubric) if leaf.check and (fault := _fault_of_check(leaf.check))
    ]
    if faults:
        raise RubricError(source, faults)
    return rubric


def _rubric_node(faults: list[str], value: Mapping[str, Any], path: str, level: int) -> dict[str, Any]:
    """Return the keys of a node that a rubric has, and note the faults that its types do not show."""
    node = {key: value[key] for key in _REQUIRED if key in value}
    node |= {key: value[key] for key in _OPTIONAL if value.get(key) not in (None, "")}
    unknown = [str(key)[:80] for key in value if key not in (*_REQUIRED, *_OPTIONAL)]
    faults += [
        f"{path}: unknown key {quoted(close[0])}. Did you mean {key!r}?"
        for key in (*_REQUIRED, *_OPTIONAL)
        if key not in value and (close := difflib.get_close_matches(key, unknown, n=1, cutoff=0.8))
    ]
    if isinstance(value.get("id"), str) and not _is_id(value["id"]):
        faults.append(f"{path}: 'id': Give 1 to {_MAX_ID} printable characters, found {quoted(value['id'])}.")
    if not value.get("sub_tasks"):
        if "task_category" not in node:
            faults.append(f"{path}: a leaf needs a 'task_category'. Give one of: {'; '.join(CATEGORIES)}.")
    elif not node.keys().isdisjoint({"task_category", "check"}):
        faults.append(f"{path}: has sub-tasks and a 'task_category' or 'check'. Leave these to the leaves.")
    if level > MAX_DEPTH:
        faults.append(f"{path}: lies deeper than the {MAX_DEPTH} levels that a rubric may have. Flatten it.")
        node["sub_tasks"] = []
    return {**node, "path": path}


def _fault_of_check(check: LeafCheck) -> str | None:
    fault = check_fault(check)
    return fault and f"check {quoted(check.name)}: {fault}"


def with_paths(value: Any, node_of: NodeOf, path: str = "", level: int = 1) -> dict[str, Any]:
    """Return a tree as read from JSON with the path of each node, made of the ids.

    `node_of` returns a node's keys; it is given those of the file, none for a value that is no node, with the path and
    the level.
    """
    node = node_of(value if isinstance(value, Mapping) else {}, path or _paths("", [value])[0], level)
    if isinstance(below := node.get("sub_tasks"), list):
        paths = _paths(node["path"], below)
        node["sub_tasks"] = [with_paths(task, node_of, at, level + 1) for task, at in zip(below, paths, strict=True)]
    return node


def _paths(parent: str, nodes: list[Any]) -> list[str]:
    """Return the paths of sibling nodes, with `[3]` in place of an id that the third one lacks."""
    ids = [node.get("id") if isinstance(node, Mapping) else None for node in nodes]
    return child_paths(parent, [id_ if _is_id(id_) else f"[{number}]" for number, id_ in enumerate(ids, start=1)])


def _is_id(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID and value.isprintable()


def node_faults(error: ValidationError, tree: dict[str, Any]) -> list[str]:
    """Return what is wrong with the nodes of a tree from `with_paths`, one fault a key."""
    faults: dict[tuple[str, str], str] = {}
    for fault in error.errors(include_url=False):
        node, keys = tree, list(fault["loc"])
        while keys[0] == "sub_tasks" and len(keys) > 1:
            node, keys = node["sub_tasks"][keys[1]], keys[2:]
        path, key = node["path"], str(keys[0])
        value = f", found {quoted(node[key])}" if key in node else ""
        faults[path, key] = f"{path}: {key!r}: {fault['msg']:.400}{value}."
    return list(faults.values())


def quoted(value: Any) -> str:
    """Show a value in a message: no more than sixty characters of it, and no control characters."""
    if isinstance(value, list | tuple | Mapping):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 62 else f"{text[:59]}..."


def load_rubric_with_checks(path: Path, checks_file: Path | None = None) -> tuple[TaskNode, str | None]:
    """Read a rubric with the checks of a file, by default of the `checks.yaml` beside it, and return that file's hash.

    Raises:
        RubricError: One of the two is faulty; the message lists the faults.
        FileError: The rubric, or `checks_file`, is missing, too large, unreadable or not UTF-8.
    """
    rubric, beside = load_rubric(path), path.with_name(CHECKS_FILE)
    if checks_file or beside.exists() or beside.is_symlink():
        return add_checks(rubric, checks_file or beside)
    return rubric, None


def add_checks(rubric: TaskNode, path: Path) -> tuple[TaskNode, str]:
    """Give leaves of a rubric the checks of a file; return the rubric, and the SHA-256 of the file.

    Raises:
        RubricError: The file is no mapping of leaves to checks; the message lists the faults with their entries.
        FileError: The file is missing, too large, unreadable or not UTF-8.
    """
    text = read_bounded_text(path, _MAX_CHECKS_BYTES, follow_link=True)
    try:
        entries = _CHECKS.validate_python(parse_yaml(text) or {})
    except ValidationError as error:
        faults = [
            f"{quoted('.'.join(map(str, fault['loc'])))}: {fault['msg']:.200}. Give {{name, arguments}}."
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise RubricError(path, faults) from error
    except ValueError as error:
        raise RubricError(path, [f"not valid YAML: {printable_line(str(error))}. Correct it."]) from error
    faults = []
    checks: dict[str, LeafCheck] = {}  # by path
    for name, check in entries.items():
        named = [leaf for leaf in leaves(rubric) if name in (leaf.path, leaf.id)]
        fault = _fault_of_check(check)
        if not named:
            fault = "no leaf of the rubric has this id or path. `pcgeval rubric leaves` lists them."
        elif len(named) > 1:
            paths = ", ".join(leaf.path for leaf in named[:5])
            fault = f"{len(named)} leaves have this id. Give the path of one: {paths}."
        elif named[0].check or named[0].path in checks:
            fault = "this leaf has a check already. Keep one."
        else:
            checks[named[0].path] = check
        faults += [f"{quoted(name)}: {fault}"] if fault else []
    if faults:
        raise RubricError(path, faults)

    def with_checks(task: TaskNode) -> TaskNode:
        sub_tasks = tuple(map(with_checks, task.sub_tasks))
        return replace(task, sub_tasks=sub_tasks, check=checks.get(task.path, task.check))

    return with_checks(rubric), sha256_bytes(text.encode())
