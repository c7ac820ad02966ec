"""Read a `rubric.json`, and the `checks.yaml` that may lie beside it, and list all that is wrong with them.

`checks.yaml` gives leaves of a published rubric checks: by a leaf's path, or by its id where no other leaf has it, a
check as a leaf of a competition's rubric names it.

    79cdbf21-6ad9: {name: result_value, arguments: {path: results.json, key: accuracy, at_least: 0.9}}
"""

import difflib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

from pydantic import TypeAdapter, ValidationError

from pcgeval.checks.checks import LeafCheck, check_fault
from pcgeval.core.files import sha256_bytes
from pcgeval.core.untrusted import parse_yaml, printable_line, read_bounded_json, read_bounded_text, well_formed
from pcgeval.rubric.tree import (
    CATEGORIES,
    FINEGRAINED_CATEGORIES,
    MAX_DEPTH,
    MAX_NODES,
    MAX_WEIGHT,
    SUBTREE,
    RubricError,
    TaskNode,
    child_paths,
    leaves,
    walk,
)

CHECKS_FILE = "checks.yaml"
MAX_BYTES = 32_000_000
_MAX_CHECKS_BYTES = 500_000  # a check for each leaf of the largest published rubric
_MAX_ID = 200
_REQUIRED = ("id", "requirements", "weight", "sub_tasks")
_KEYS = (*_REQUIRED, "task_category", "finegrained_task_category", "check")
_CHECK: TypeAdapter[LeafCheck] = TypeAdapter(LeafCheck)
_CHECKS: TypeAdapter[dict[str, LeafCheck]] = TypeAdapter(dict[str, LeafCheck])


def load_rubric(path: Path | str) -> TaskNode:
    """Read and check a rubric in PaperBench's node format; a leaf may have a `check` besides.

    Other keys, such as the scores of a graded tree, are ignored, unless they look like a known one that is missing.

    Raises:
        RubricError: The file is no rubric; the message lists every fault with the path of its node.
        FileError: The file is missing, too large, unreadable or not JSON in UTF-8.
    """
    return parse_rubric(read_bounded_json(Path(path), MAX_BYTES, follow_link=True), str(path))


def parse_rubric(value: Any, source: str) -> TaskNode:
    """Check a rubric as read from JSON; `source` is the name that messages give it.

    Raises:
        RubricError: All that is wrong with it.
    """
    faults: list[str] = []
    task = _task(value, _paths("", [value])[0], 1, faults)
    if task is not None and (nodes := sum(1 for _ in walk(task))) > MAX_NODES:
        faults.append(f"{task.path}: the rubric has {nodes} nodes. Shorten it to at most {MAX_NODES}.")
    if task is None or faults:
        raise RubricError(source, faults)
    return task


def load_rubric_with_checks(path: Path, checks_file: Path | None = None) -> tuple[TaskNode, str | None]:
    """Read a rubric with the checks of a file, by default of the `checks.yaml` beside it, and return that file's hash.

    Raises:
        RubricError: One of the two is faulty; the message lists every fault.
        FileError: The rubric, or `checks_file`, is missing, too large, unreadable or not UTF-8.
    """
    rubric, beside = load_rubric(path), path.with_name(CHECKS_FILE)
    if checks_file or beside.exists() or beside.is_symlink():
        return add_checks(rubric, checks_file or beside)
    return rubric, None


def add_checks(rubric: TaskNode, path: Path) -> tuple[TaskNode, str]:
    """Give leaves of a rubric the checks of a file; return the rubric, and the SHA-256 of the file.

    Raises:
        RubricError: The file is no mapping of leaves to checks; the message lists every fault with its entry.
        FileError: The file is missing, too large, unreadable or not UTF-8.
    """
    text = read_bounded_text(path, _MAX_CHECKS_BYTES, follow_link=True)
    named: dict[str, dict[str, TaskNode]] = defaultdict(dict)  # leaves by path and id, and then by path
    for leaf in leaves(rubric):
        named[leaf.path][leaf.path] = named[leaf.id][leaf.path] = leaf
    checks: dict[str, LeafCheck] = {}
    faults: list[str] = []
    for name, check in _read_checks(path, text).items():
        candidates = named.get(name, {})
        has_check = any(leaf_path in checks or leaf.check for leaf_path, leaf in candidates.items())
        messages = _entry_faults(check, list(candidates), has_check=has_check)
        faults += [f"{quoted(name)}: {message}" for message in messages]
        checks |= dict.fromkeys(candidates, check)
    if faults:
        raise RubricError(str(path), faults)

    def with_checks(task: TaskNode) -> TaskNode:
        sub_tasks = tuple(map(with_checks, task.sub_tasks))
        return replace(task, sub_tasks=sub_tasks, check=checks.get(task.path, task.check))

    return with_checks(rubric), sha256_bytes(text.encode())


def quoted(value: Any) -> str:
    """Show a value in a message: no more than sixty characters of it, and no control characters."""
    if isinstance(value, list | tuple | Mapping):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)}"
    text = ascii(value)
    return text if len(text) <= 62 else f"{text[:59]}..."


def _task(value: Any, path: str, level: int, faults: list[str]) -> TaskNode | None:
    """Check one node and all below it; None where it cannot be made."""
    if not isinstance(value, Mapping):
        faults.append(f"{path}: must be an object with {', '.join(_REQUIRED)}, not {quoted(value)}.")
        return None
    if level > MAX_DEPTH:
        faults.append(f"{path}: lies deeper than the {MAX_DEPTH} levels that a rubric may have. Flatten it.")
        return None
    below = value.get("sub_tasks")
    below = below if isinstance(below, list) else []
    messages = [*_value_faults(value), *_leaf_faults(value, is_leaf=not below)]
    faults += [f"{path}: {message}" for message in messages]
    sub_tasks = [_task(child, at, level + 1, faults) for child, at in zip(below, _paths(path, below), strict=True)]
    if messages:
        return None
    return TaskNode(
        path=path,
        id=value["id"],
        requirements=value["requirements"],
        weight=value["weight"],
        sub_tasks=tuple(task for task in sub_tasks if task is not None),
        task_category=value.get("task_category") or None,
        finegrained_task_category=value.get("finegrained_task_category") or None,
        check=_CHECK.validate_python(value["check"]) if value.get("check") else None,
    )


def _value_faults(value: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the keys of a node, and with the values that each node has."""
    unknown = [str(key)[:80] for key in value if key not in _KEYS]
    for key in _KEYS:
        if key not in value and (close := difflib.get_close_matches(key, unknown, n=1, cutoff=0.8)):
            yield f"unknown key {quoted(close[0])}. Did you mean {key!r}?"
        if key not in value and key in _REQUIRED:
            yield f"{key!r} is missing. Add it."
    id_, requirements, weight = value.get("id", "-"), value.get("requirements", ""), value.get("weight", 0)
    if not _is_id(id_):
        yield f"'id' must be printable text of 1 to {_MAX_ID} characters, not {quoted(id_)}."
    if not isinstance(requirements, str) or requirements != well_formed(requirements):
        yield f"'requirements' must be text without lone surrogates, not {quoted(requirements)}."
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= MAX_WEIGHT:
        yield f"'weight' must be a number from 0 to {MAX_WEIGHT:g}, not {quoted(weight)}."
    if not isinstance(value.get("sub_tasks", []), list):
        yield f"'sub_tasks' must be a list, not {quoted(value['sub_tasks'])}. A leaf has []."


def _leaf_faults(value: Mapping[str, Any], *, is_leaf: bool) -> Iterator[str]:
    """Yield what is wrong with the categories and the check, which only a leaf may have."""
    category, fine, check = value.get("task_category"), value.get("finegrained_task_category"), value.get("check")
    if is_leaf and category not in (*CATEGORIES, SUBTREE):
        yield f"a leaf's 'task_category' is {quoted(category)}. Give one of: {'; '.join(CATEGORIES)}."
    if fine and fine not in FINEGRAINED_CATEGORIES:
        known = "; ".join(FINEGRAINED_CATEGORIES)
        yield f"'finegrained_task_category' is {quoted(fine)}. Give one of: {known}; or null."
    if not is_leaf and (category or check):
        yield "has sub-tasks and a 'task_category' or 'check'. Leave these to the leaves."
    elif check is not None:
        try:
            if message := check_fault(_CHECK.validate_python(check)):
                yield f"check {quoted(check['name'])}: {message}"
        except ValidationError:
            yield f"'check' must be {{name, arguments}}, not {quoted(check)}."


def _paths(parent: str, values: Sequence[Any]) -> list[str]:
    """Return the paths of sibling nodes, with `[3]` standing in for an id that the third one lacks."""
    ids = [value.get("id") if isinstance(value, Mapping) else None for value in values]
    return child_paths(parent, [id_ if _is_id(id_) else f"[{number}]" for number, id_ in enumerate(ids, start=1)])


def _is_id(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= _MAX_ID and value.isprintable()


def _read_checks(path: Path, text: str) -> dict[str, LeafCheck]:
    try:
        values = parse_yaml(text)
        return _CHECKS.validate_python({} if values is None else values)
    except ValidationError as error:
        faults = [
            f"{quoted('.'.join(map(str, fault['loc'])))}: {fault['msg']:.200}. Give {{name, arguments}}."
            for fault in error.errors(include_url=False, include_input=False)
        ]
    except ValueError as error:
        faults = [f"the file: not valid YAML: {printable_line(str(error))}. Correct it."]
    raise RubricError(str(path), faults)


def _entry_faults(check: LeafCheck, paths: Sequence[str], *, has_check: bool) -> Iterator[str]:
    """Yield what is wrong with an entry of checks.yaml, which names the leaves with these paths."""
    if not paths:
        yield "no leaf of the rubric has this id or path. `pcgeval rubric leaves` lists them."
    elif len(paths) > 1:
        yield f"{len(paths)} leaves have this id. Give the path of one: {', '.join(paths[:5])}."
    elif has_check:
        yield "this leaf has a check already. Keep one."
    if message := check_fault(check):
        yield f"check {quoted(check.name)}: {message}"
