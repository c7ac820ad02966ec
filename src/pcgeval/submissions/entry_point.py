"""The file that starts a program: found in the syntax of its files, none of which is run.

A program is started as `python FILE`. FILE has a subclass of the interface's TrialLoop and a block under
`if __name__ == "__main__"`; where the class lies in another module, the file that calls `run_evaluation` counts. Of
several such files, the one that the README starts with `python FILE` is meant.
"""

import ast
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from pcgeval.submissions.python_source import SourceFault, parse_source, read_source

INTERFACE_PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")
README_NAMES = ("readme.md", "readme.txt", "readme.rst", "readme")  # in lower case, the best first
SCANNED_FILES = 10_000  # of a program, in the order of their names; a submission may not have more
SCANNED_BYTES = 2**20  # of sources that speak of the interface
_README_BYTES = 256 * 2**10
_FOREIGN_FOLDERS = {"__pycache__", "__MACOSX", "site-packages", "node_modules", *INTERFACE_PACKAGES}
_TELLTALES = re.compile(rb"TrialLoop|run_evaluation|__main__")
_LONGEST_PATH = 200  # of a name in the interface, in characters
STARTED_WITH_PYTHON = re.compile(
    r"""\b(?:python[0-9.]*|py|uv[ ]run)(?:\.exe)?[ \t]+(?:-[a-zA-Z][ \t]+){0,3}"""
    r"""(?:"([^"\n]{1,200}\.py)"|'([^'\n]{1,200}\.py)'|([^\s"'`]{1,200}\.py)\b)"""
)


@dataclass(frozen=True)
class Part:
    """A file of a program that uses the interface."""

    name: str  # relative to the program's folder, with forward slashes
    has_loop: bool = False  # a subclass of TrialLoop
    has_main: bool = False  # a block under `if __name__ == "__main__"`
    runs: bool = False  # calls run_evaluation, or imports a module of the program that does
    imports: frozenset[str] = frozenset()  # the last words of all that it imports
    fault: SourceFault | None = None  # why nothing else is known of it

    @property
    def may_start(self) -> bool:
        """Whether the program might be meant to be started with this file."""
        return self.runs or (self.has_loop and self.has_main) or self.fault is not None

    @property
    def description(self) -> str:
        """The name, and with a fault where and what it is."""
        if self.fault is None:
            return self.name
        return f"{self.name}{f':{self.fault.line}' if self.fault.line else ''} ({self.fault.reason})"


@dataclass(frozen=True)
class EntrySearch:
    """What was found: the entry, or None and the files among which somebody must choose or mend."""

    entry: str | None
    candidates: tuple[Part, ...]

    @property
    def is_program(self) -> bool:
        """Whether anything here looks like a program."""
        return bool(self.candidates)


def find_entry(folder: Path) -> EntrySearch:
    """Look for the file that starts the program in a folder; links and the interface's own packages are left out."""
    parts = list(_parts(folder))
    running = {Path(part.name).stem for part in parts if part.runs}
    parts = [replace(part, runs=part.runs or (part.has_main and bool(part.imports & running))) for part in parts]
    candidates = tuple(part for part in parts if part.may_start)
    chosen = _choose(candidates, _started_by_readme(folder))
    return EntrySearch(chosen.name if chosen and chosen.fault is None else None, candidates)


def python_files(folder: Path) -> list[str]:
    """Return the names of a program's own .py files, those at the top first; at most SCANNED_FILES."""
    names: list[str] = []
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each not in _FOREIGN_FOLDERS and not each.startswith("."))
        names += [Path(place, each).relative_to(folder).as_posix() for each in files if each.endswith(".py")]
        if len(names) > SCANNED_FILES:
            break
    return sorted(names, key=lambda name: (name.count("/"), os.fsencode(name)))[:SCANNED_FILES]


def find_readme(folder: Path) -> Path | None:
    """Return the README of a submission, in whichever of the usual spellings; None if there is none."""
    try:
        found = {name.lower(): folder / name for name in sorted(os.listdir(folder))}  # noqa: PTH208 - names, not paths
    except OSError:
        return None
    return next((found[name] for name in README_NAMES if name in found and found[name].is_file()), None)


def describe(name: str, tree: ast.Module) -> Part:
    """Return what a file has of what makes it the entry."""
    known = _interface_names(tree)
    nodes = list(ast.walk(tree))
    bases = [base for node in nodes if isinstance(node, ast.ClassDef) for base in node.bases]
    return Part(
        name=name,
        has_loop=any(_means(base, "TrialLoop", known) for base in bases),
        has_main=any(_is_main_test(node.test) for node in nodes if isinstance(node, ast.If)),
        runs=any(_means(node.func, "run_evaluation", known) for node in nodes if isinstance(node, ast.Call)),
        imports=frozenset(_imported(nodes)),
    )


def _parts(folder: Path) -> Iterator[Part]:
    left = SCANNED_BYTES
    for name in python_files(folder):
        content = read_source(folder / name)
        if isinstance(content, SourceFault):
            continue
        words = set(_TELLTALES.findall(content.replace(b"\0", b"")))  # without its NULs, UTF-16 text shows them too
        if not words:
            continue
        left -= len(content)
        tree = parse_source(content) if left >= 0 else SourceFault("comes after too much other source")
        if not isinstance(tree, SourceFault):
            yield describe(name, tree)
        elif words != {b"__main__"}:
            yield Part(name, fault=tree)


def _choose(candidates: tuple[Part, ...], started: set[str]) -> Part | None:
    """Choose by the README; then by what the files have, if all could be read."""
    if len(candidates) == 1:
        return candidates[0]
    named = [part for part in candidates if part.name in started]
    if len(named) == 1:
        return named[0]
    if any(part.fault for part in candidates):
        return None
    for kind in (
        [part for part in candidates if part.has_main and part.has_loop and part.runs],
        [part for part in candidates if part.has_main and part.runs],
        [part for part in candidates if part.has_main],
        list(candidates),
    ):
        if kind:
            return kind[0] if len(kind) == 1 else None
    return None


def _started_by_readme(folder: Path) -> set[str]:
    readme = find_readme(folder)
    if readme is None or readme.is_symlink():
        return set()
    try:
        with readme.open("rb") as file:
            text = file.read(_README_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return set()
    names = ("".join(match.groups(default="")) for match in STARTED_WITH_PYTHON.finditer(text))
    return {name.replace("\\", "/").removeprefix("./") for name in names}


def _interface_names(tree: ast.Module) -> dict[str, str]:
    """Return what each imported or assigned name stands for, as its full path, as far as that is in the interface."""
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= dict(_bound_by_import(node))
        elif isinstance(node, ast.ImportFrom):
            known |= dict(_bound_by_import_from(node))
        elif (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and (path := _path(node.value, known))
        ):
            known[node.targets[0].id] = path
    return known


def _bound_by_import(node: ast.Import) -> Iterator[tuple[str, str]]:
    for alias in node.names:
        root = alias.name.split(".")[0]
        if root in INTERFACE_PACKAGES:
            yield (alias.asname, alias.name) if alias.asname else (root, root)


def _bound_by_import_from(node: ast.ImportFrom) -> Iterator[tuple[str, str]]:
    module = node.module or ""
    if not node.level and module.split(".")[0] in INTERFACE_PACKAGES:
        for alias in node.names:
            names = ("TrialLoop", "run_evaluation") if alias.name == "*" else (alias.name,)
            yield from ((alias.asname or name, f"{module}.{name}") for name in names)


def _imported(nodes: list[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.rpartition(".")[2]


def _means(node: ast.expr, wanted: str, known: dict[str, str]) -> bool:
    path = _path(node, known)
    return path is not None and path.rpartition(".")[2] == wanted


def _path(node: ast.expr, known: dict[str, str]) -> str | None:
    """Return the full path that a name or a chain of attributes stands for; None if it is not the interface's."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return None
    path = ".".join([known[node.id], *reversed(attributes)])
    return path if len(path) <= _LONGEST_PATH else None


def _is_main_test(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq)
        and {"__name__", "__main__"} == {_word(node.left), _word(node.comparators[0])}
        for node in ast.walk(test)
    )


def _word(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
