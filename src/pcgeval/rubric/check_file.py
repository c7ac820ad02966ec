"""Checks for leaves of a published rubric, in a file beside it: `checks.yaml`.

It is YAML: by a leaf's path, or by its id where no other leaf has it, a check as a leaf of our rubrics names it.

    79cdbf21-6ad9: {name: result_value, arguments: {path: results.json, key: accuracy, at_least: 0.9}}
"""

import difflib
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pcgeval.checks.checks import LeafCheck, check_fault
from pcgeval.core.files import sha256_bytes
from pcgeval.core.untrusted import parse_yaml, printable_line, read_bounded_text
from pcgeval.rubric.loading import load_rubric, quoted
from pcgeval.rubric.tree import RubricError, RubricFault, TaskNode, leaves

CHECKS_FILE = "checks.yaml"
MAX_BYTES = 500_000  # a check for each leaf of the largest published rubric
_MOST_HINTS = 20  # faults with a guess at what was meant, which takes long
_Named = dict[str, dict[str, TaskNode]]  # leaves by what may name them, path or id, and by their path
_CHECKS: TypeAdapter[dict[str, LeafCheck]] = TypeAdapter(dict[str, LeafCheck])


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
    text = read_bounded_text(path, MAX_BYTES, follow_link=True)
    named: _Named = defaultdict(dict)
    for leaf in leaves(rubric):
        named[leaf.path][leaf.path] = named[leaf.id][leaf.path] = leaf
    checks: dict[str, LeafCheck] = {}
    faults: list[RubricFault] = []
    for name, check in _read_checks(path, text).items():
        found = named.get(name, {})
        likely = named if len(faults) < _MOST_HINTS else {}
        faults += [RubricFault(quoted(name), message) for message in _faults(name, check, named, checks, likely)]
        checks |= dict.fromkeys(found, check)
    if faults:
        raise RubricError(str(path), faults)

    def placed(task: TaskNode) -> TaskNode:
        below = tuple(map(placed, task.sub_tasks))
        return replace(task, sub_tasks=below, check=checks.get(task.path, task.check))

    return placed(rubric), sha256_bytes(text.encode())


def _faults(name: str, check: LeafCheck, named: _Named, taken: Container[str], likely: Iterable[str]) -> Iterator[str]:
    """Yield what is wrong with one entry; `taken` has the paths of leaves that an entry before it gave a check."""
    if name not in named:
        close = difflib.get_close_matches(name[:100], likely, n=1)
        yield "no leaf of the rubric has this id or path. " + (
            f"Did you mean {quoted(close[0])}?" if close else "`pcgeval rubric leaves` lists them."
        )
    elif len(named[name]) > 1:
        yield f"{len(named[name])} leaves have this id. Give the path of one: {', '.join(list(named[name])[:5])}."
    elif any(path in taken or leaf.check for path, leaf in named[name].items()):
        yield "this leaf has a check already. Keep one."
    if message := check_fault(check):
        yield f"check {quoted(check.name)}: {message}"


def _read_checks(path: Path, text: str) -> dict[str, LeafCheck]:
    try:
        values = parse_yaml(text)
        return _CHECKS.validate_python({} if values is None else values)
    except ValidationError as error:
        faults = [
            RubricFault(quoted(".".join(map(str, each["loc"]))), f"{each['msg']:.200}. Give {{name, arguments}}.")
            for each in error.errors(include_url=False, include_input=False)
        ]
    except ValueError as error:
        faults = [RubricFault("the file", f"not valid YAML: {printable_line(str(error))}. Correct it.")]
    raise RubricError(str(path), faults)
