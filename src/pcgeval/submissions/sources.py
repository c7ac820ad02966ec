"""Read the Python files of a submission without running them: which file starts it, and what the files use.

A syntax tree takes up to a thousand times the space of its source, so sources are bounded and trees are not kept.
"""

import ast
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from pcgeval.core.untrusted import UntrustedFileError, printable_line, read_bounded, walk

INTERFACE_PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")
MAX_SOURCE_BYTES = 256 * 2**10
MAX_PARSED_BYTES = 4 * 2**20  # of all sources of a program
_MAX_NAME = 200  # characters of an imported name, with its dots
_README_NAMES = ("readme.md", "readme.txt", "readme.rst", "readme")  # in lower case, the best first
_FOREIGN_FOLDERS = {"__pycache__", "__MACOSX", "site-packages", "node_modules", *INTERFACE_PACKAGES}
_STARTS = re.compile(rb"TrialLoop|run_evaluation")
_SLOW_ENCODING = b"punycode"  # decoding takes quadratic time


@dataclass(frozen=True)
class PythonFile:
    """A Python file of a program; without a fault, its syntax is known."""

    name: str  # relative to the program's folder, with forward slashes
    fault: str = ""  # why it was not parsed, in words that follow the place
    place: str = ""  # its name, with `:line` if the fault has one
    uses_interface: bool = False  # mentions TrialLoop or run_evaluation and, if parsed, imports an interface package
    has_main: bool = False  # compares `__name__` with "__main__"
    imports: Mapping[str, int] = field(default_factory=dict)  # the first line of each module that it may import


def find_readme(folder: Path) -> Path | None:
    """Return the README of a submission, in any of the usual spellings; None if no regular file has one."""
    names = {entry.name.lower(): entry.name for entry in walk(folder, enter=lambda _: False) if entry.is_file}
    return next((folder / names[name] for name in _README_NAMES if name in names), None)


def python_files(folder: Path) -> list[PythonFile]:
    """Return the Python files of a program, those at the top first, without links and the interface's packages."""
    files: list[PythonFile] = []
    left = MAX_PARSED_BYTES
    for entry in walk(folder, enter=_is_entered):
        if not (entry.is_file and entry.name.endswith(".py")):
            continue
        file = PythonFile(entry.name, place=entry.name)
        try:
            content = read_bounded(folder / entry.name, min(MAX_SOURCE_BYTES, left))
        except UntrustedFileError as error:
            files.append(replace(file, fault=f"{error.reason} and was not parsed"))
            continue
        left -= len(content)
        file = replace(file, uses_interface=bool(_STARTS.search(content)))
        try:
            files.append(_with_syntax(file, list(ast.walk(_parse(content)))))
        except (SyntaxError, ValueError) as error:
            fault = error.msg if isinstance(error, SyntaxError) else str(error)
            place = f"{file.name}:{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else file.name
            files.append(replace(file, fault=f"is not valid Python ({printable_line(fault, 200)})", place=place))
        except (RecursionError, MemoryError):
            files.append(replace(file, fault="is not valid Python (nested too deeply)"))
    return files


def _is_entered(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return name not in _FOREIGN_FOLDERS and not name.startswith(".")


def _parse(content: bytes) -> ast.Module:
    if _SLOW_ENCODING in content.lower():
        raise ValueError("its encoding is not allowed; save it as UTF-8")
    with warnings.catch_warnings():  # such as that of an invalid escape; the author is not here to read it
        warnings.simplefilter("ignore")
        return ast.parse(content)


def _with_syntax(file: PythonFile, nodes: list[ast.AST]) -> PythonFile:
    """Add what the nodes of the syntax tree show."""
    imports, has_main = _imported(nodes), False
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = (getattr(side, "id", getattr(side, "value", None)) for side in (node.left, node.comparators[0]))
            has_main |= isinstance(node.ops[0], ast.Eq) and set(sides) == {"__name__", "__main__"}
    return replace(
        file,
        uses_interface=file.uses_interface and not imports.keys().isdisjoint(INTERFACE_PACKAGES),
        has_main=has_main,
        imports=imports,
    )


def _imported(nodes: list[ast.AST]) -> dict[str, int]:
    """Return the first line of each imported module with its parents, without relative imports."""
    lines: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name[:_MAX_NAME].split(".")
            for end in range(1, len(parts) + 1):
                lines.setdefault(".".join(parts[:end]), node.lineno)
    return lines
