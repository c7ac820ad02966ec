"""Find the file that starts a program in the syntax of its files, none of which is run.

A program is started as `python FILE`. FILE has a subclass of the interface's TrialLoop and a block under
`if __name__ == "__main__"`; where the class lies in another module, the file that calls `run_evaluation` counts. Of
several such files, the one that the README starts with `python FILE` is taken.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pcgeval.core.untrusted import UntrustedFileError, read_start
from pcgeval.submissions.sources import (
    INTERFACE_PACKAGES,
    dotted_name,
    find_readme,
    imported_names,
    python_sources,
)

MAX_PARSED_BYTES = 2**20  # of sources that name the interface
_MAX_NAME = 80  # characters of a class's name
_README_BYTES = 256 * 2**10
_TELLTALES = re.compile(rb"TrialLoop|run_evaluation|__main__")
STARTED_WITH_PYTHON = re.compile(
    r"""\b(?:python[0-9.]*|py|uv[ ]run)(?:\.exe)?[ \t]+(?:-[a-zA-Z][ \t]+){0,3}"""
    r"""(?:"([^"\n]{1,200}\.py)"|'([^'\n]{1,200}\.py)'|([^\s"'`]{1,200}\.py)\b)"""
)


@dataclass(frozen=True)
class EntryCandidate:
    """A file of a program that uses the interface.

    Attributes:
        name: Relative to the program's folder, with forward slashes.
        loop: The name of its first subclass of TrialLoop; empty without one.
        has_main: Whether it has a block under `if __name__ == "__main__"`.
        runs: Whether it calls run_evaluation, or imports a module of the program that does.
        imports: The last parts of all names that it imports.
        fault: Why nothing else is known of it, in words that follow its place.
        place: Its name, with `:line` where the fault has one.
    """

    name: str
    loop: str = ""
    has_main: bool = False
    runs: bool = False
    imports: frozenset[str] = frozenset()
    fault: str = ""
    place: str = ""

    @property
    def has_loop(self) -> bool:
        """Whether it has a subclass of TrialLoop."""
        return bool(self.loop)

    @property
    def may_start(self) -> bool:
        """Whether the program might be meant to be started with this file."""
        return self.runs or (self.has_loop and self.has_main) or bool(self.fault)


@dataclass(frozen=True)
class EntrySearch:
    """The entry, or None and the candidates from which somebody must choose; without candidates it is no program.

    `idle` are the files with a subclass of TrialLoop where there are no candidates: nothing starts them.
    """

    entry: str | None
    candidates: tuple[EntryCandidate, ...]
    idle: tuple[EntryCandidate, ...] = ()


def find_entry(folder: Path) -> EntrySearch:
    """Look for the file that starts the program; links and the interface's own packages are left out."""
    found = []
    for source in python_sources(folder, MAX_PARSED_BYTES, _TELLTALES):
        if source.tree is not None:
            found.append(describe(source.name, source.tree))
        # a file that is no Python counts if it names the interface: an old copy must not be taken in its place
        elif source.content and set(_TELLTALES.findall(source.content.replace(b"\0", b""))) != {b"__main__"}:
            found.append(EntryCandidate(source.name, fault=source.fault, place=source.place))
    running = {Path(each.name).stem for each in found if each.runs}
    found = [replace(each, runs=each.runs or (each.has_main and bool(each.imports & running))) for each in found]
    candidates = tuple(each for each in found if each.may_start)
    chosen = _choose(candidates, _started_by_readme(folder))
    idle = tuple(each for each in found if each.has_loop and not candidates)
    return EntrySearch(chosen.name if chosen and not chosen.fault else None, candidates, idle)


def describe(name: str, tree: ast.Module) -> EntryCandidate:
    """Return what a file has of what makes it the entry."""
    nodes = list(ast.walk(tree))
    names = imported_names(tree, lambda module: ("TrialLoop", "run_evaluation") if _is_interface(module) else ())
    known = {bound: path for bound, path in names.items() if _is_interface(path)}
    for node in nodes:  # `Base = llms4pcg.models.trial_loop.TrialLoop`
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and dotted_name(node.value, known):
            known[node.targets[0].id] = dotted_name(node.value, known)

    def means(node: ast.expr, wanted: str) -> bool:
        return dotted_name(node, known).rpartition(".")[2] == wanted

    imports = [alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    imports += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    loops = [each.name for each in classes if any(means(base, "TrialLoop") for base in each.bases)]
    return EntryCandidate(
        name=name,
        loop=loops[0][:_MAX_NAME] if loops else "",
        has_main=any(_is_main_test(node.test) for node in nodes if isinstance(node, ast.If)),
        runs=any(means(node.func, "run_evaluation") for node in nodes if isinstance(node, ast.Call)),
        imports=frozenset(each.rpartition(".")[2] for each in imports),
    )


def _is_interface(dotted: str) -> bool:
    return dotted.partition(".")[0] in INTERFACE_PACKAGES


def _is_main_test(test: ast.expr) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq):
            sides = (node.left, node.comparators[0])
            names = [side.id for side in sides if isinstance(side, ast.Name)]
            values = [side.value for side in sides if isinstance(side, ast.Constant)]
            if (names, values) == (["__name__"], ["__main__"]):
                return True
    return False


def _choose(candidates: Sequence[EntryCandidate], started: set[str]) -> EntryCandidate | None:
    """Choose by the README; then by what the files have, if all could be read."""
    if len(candidates) == 1:
        return candidates[0]
    named = [each for each in candidates if each.name in started]
    if len(named) == 1:
        return named[0]
    if any(each.fault for each in candidates):
        return None
    for best in (
        [each for each in candidates if each.has_main and each.has_loop and each.runs],
        [each for each in candidates if each.has_main and each.runs],
        [each for each in candidates if each.has_main],
        candidates,
    ):
        if best:
            return best[0] if len(best) == 1 else None
    return None


def _started_by_readme(folder: Path) -> set[str]:
    readme = find_readme(folder)
    try:
        text = read_start(readme, _README_BYTES).decode("utf-8", errors="replace") if readme else ""
    except UntrustedFileError:
        return set()
    names = ("".join(match.groups(default="")) for match in STARTED_WITH_PYTHON.finditer(text))
    return {name.replace("\\", "/").removeprefix("./") for name in names}
