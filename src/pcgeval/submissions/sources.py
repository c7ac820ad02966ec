"""Read the Python files of a submission without running them: which file starts it, and what the files use.

A syntax tree takes up to a thousand times the space of its source, so sources are bounded and trees are not kept.
"""

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from pcgeval.core.trials import Flag
from pcgeval.core.untrusted import UntrustedFileError, printable_line, read_bounded, walk

INTERFACE_PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")
MAX_SOURCE_BYTES = 256 * 2**10
MAX_PARSED_BYTES = 4 * 2**20  # of all sources of a program
_MAX_NAME = 200  # characters of an imported name, with its dots
_MAX_ATTRIBUTES = 4  # in a chain such as `numpy.random.default_rng`
_MAX_SEED_NODES = 1_000  # of the arguments of a seeding call
_README_NAMES = ("readme.md", "readme.txt", "readme.rst", "readme")  # in lower case, the best first
_FOREIGN_FOLDERS = {"__pycache__", "__MACOSX", "site-packages", "node_modules", *INTERFACE_PACKAGES}
_STARTS = re.compile(rb"TrialLoop|run_evaluation")
_SLOW_ENCODING = b"punycode"  # decoding takes quadratic time
_GENERATORS = ("random", "numpy.random")
_UNREPEATABLE = ("secrets", "os.urandom", "os.getrandom", "random.SystemRandom", "uuid.uuid1", "uuid.uuid4")
_CHANGING = (*_UNREPEATABLE, "time", "datetime", "os.getpid")  # a seed from these differs in every run
_SEEDING_FUNCTIONS = """
    random.seed random.Random
    numpy.random.seed numpy.random.default_rng numpy.random.RandomState numpy.random.Generator
"""


@dataclass(frozen=True)
class PythonFile:
    """A Python file of a program; without a fault, its syntax is known."""

    name: str  # relative to the program's folder, with forward slashes
    fault: str = ""  # why it was not parsed, in words that follow the place
    place: str = ""  # its name, with `:line` if the fault has one
    uses_interface: bool = False  # mentions TrialLoop or run_evaluation and, if parsed, imports an interface package
    has_main: bool = False  # compares `__name__` with "__main__"
    imports: Mapping[str, int] = field(default_factory=dict)  # the first line of each module that it may import
    draws: Mapping[str, str] = field(default_factory=dict)  # the first use of each source of random numbers, in words
    seeded: frozenset[str] = frozenset()  # the generators of random numbers that it gives a fixed seed


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


def unseeded_random(files: Sequence[PythonFile]) -> tuple[Flag, ...]:
    """Return a flag for each source of random numbers that a repetition would not reproduce.

    These are generators that no file gives a fixed seed, and the randomness of the system. A seed in any file counts
    for all files: this finds what was forgotten, not what is hidden.
    """
    seeded = frozenset().union(*(file.seeded for file in files))
    draws = {source: text for file in reversed(files) for source, text in file.draws.items()}
    return tuple(Flag("unseeded-random", text) for source, text in draws.items() if source not in seeded)


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
    known, imports = _imported(nodes)
    seeded: set[str] = set()
    draws: dict[str, str] = {}
    has_main = False
    for node in nodes:
        name, place = _dotted_name(node, known), f"{file.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*" and not node.level:
            name = node.module or ""
        if source := _part_of(_UNREPEATABLE, name):
            draws.setdefault(source, f"{place} uses {name}, which differs in every run")
        elif generator := _part_of(_GENERATORS, name):
            draws.setdefault(generator, f"{place} uses {generator} without a fixed seed")
        if isinstance(node, ast.Compare):
            sides = (getattr(side, "id", getattr(side, "value", None)) for side in (node.left, node.comparators[0]))
            has_main |= isinstance(node.ops[0], ast.Eq) and set(sides) == {"__name__", "__main__"}
        elif isinstance(node, ast.Call):
            function = _dotted_name(node.func, known)
            if function in _SEEDING_FUNCTIONS.split() and _is_fixed_seed(node, known):
                seeded.add(_part_of(_GENERATORS, function))
    return replace(
        file,
        uses_interface=file.uses_interface and not imports.keys().isdisjoint(INTERFACE_PACKAGES),
        has_main=has_main,
        imports=imports,
        draws=draws,
        seeded=frozenset(seeded),
    )


def _is_fixed_seed(call: ast.Call, known: dict[str, str]) -> bool:
    """Return whether a call has an argument that is not None, and none that differs in every run."""
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    # bounded, because seeding calls within one another would make this quadratic
    parts = [part for value in values for part in islice(ast.walk(value), _MAX_SEED_NODES)]
    is_changing = any(_part_of(_CHANGING, _dotted_name(part, known)) for part in parts)
    return not is_changing and any(getattr(value, "value", value) is not None for value in values)


def _imported(nodes: list[ast.AST]) -> tuple[dict[str, str], dict[str, int]]:
    """Return the full dotted name of each imported name, and the first line of each module with its parents.

    Relative imports are left out.
    """
    known: dict[str, str] = {}
    lines: dict[str, int] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [(alias.asname, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [(alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names]
        else:
            continue
        for bound, name in names:
            parts = name[:_MAX_NAME].split(".")
            known[bound or parts[0]] = name[:_MAX_NAME] if bound else parts[0]
            for end in range(1, len(parts) + 1):
                lines.setdefault(".".join(parts[:end]), node.lineno)
    return known, lines


def _dotted_name(node: ast.AST, known: dict[str, str]) -> str:
    """Return the full dotted name of a name or a short chain of attributes; empty if it is not a known one."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute) and len(attributes) < _MAX_ATTRIBUTES:
        attributes.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return ""
    return ".".join([known[node.id], *reversed(attributes)])


def _part_of(modules: tuple[str, ...], name: str) -> str:
    """Return the first of some modules or functions that a dotted name is, or lies in; empty if there is none."""
    return next((module for module in modules if f"{name}.".startswith(f"{module}.")), "")
