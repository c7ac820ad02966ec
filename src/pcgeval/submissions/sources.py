"""Read the Python files of a submission without running them: which file starts it, and what the files use.

A syntax tree takes up to a thousand times the space of its source, so sources are bounded and trees are not kept.
"""

import ast
import codecs
import io
import random
import re
import tokenize
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pcgeval.core.trials import Flag
from pcgeval.core.untrusted import UntrustedFileError, read_bounded, walk

INTERFACE_PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")
MAX_SOURCE_BYTES = 256 * 2**10
MAX_PARSED_BYTES = 4 * 2**20  # of all sources of a program
_MAX_NAME = 200  # characters of an imported name, with its dots
_MAX_ATTRIBUTES = 4  # in a chain such as `llms4pcg.models.trial_loop.TrialLoop`
_README_NAMES = ("readme.md", "readme.txt", "readme.rst", "readme")  # in lower case, the best first
_FOREIGN_FOLDERS = {"__pycache__", "__MACOSX", "site-packages", "node_modules", *INTERFACE_PACKAGES}
_INTERFACE = re.compile(rb"TrialLoop|run_evaluation")
# others, such as punycode, may take quadratic time
_ENCODINGS = """
    utf-8 utf-8-sig ascii iso8859-1 iso8859-2 iso8859-15 cp1250 cp1251 cp1252 koi8-r
    shift_jis cp932 euc_jp euc_kr cp949 gb2312 gbk gb18030 big5 tis-620
"""
_GENERATORS = ("random", "numpy.random")
_UNREPEATABLE = ("secrets", "os.urandom", "os.getrandom", "random.SystemRandom", "uuid.uuid1", "uuid.uuid4")
_CHANGING = (*_UNREPEATABLE, "time", "datetime", "os.getpid")  # a seed from these differs in every run
_SEEDING_FUNCTIONS = """
    random.seed random.Random
    numpy.random.seed numpy.random.default_rng numpy.random.RandomState numpy.random.Generator
"""


@dataclass(frozen=True)
class PythonFile:
    """A Python file of a program.

    Attributes:
        name: Relative to the program's folder, with forward slashes.
        fault: Why its syntax is not known, in words that follow the place; empty if it is known.
        place: Its name, with `:line` where the fault has one.
        is_broken: Whether Python cannot run it, as opposed to a file that was not parsed.
        names_interface: Whether it contains TrialLoop or run_evaluation anywhere.
        names_prompt: Whether it contains prompt.txt.
        loop: The name of its first subclass of the interface's TrialLoop; empty without one.
        has_main: Whether it compares `__name__` with "__main__".
        starts: How often it calls the interface's run_evaluation.
        modules: The modules that it may import, each with the line; relative ones begin with a dot.
        draws: The first use of each source of random numbers, in words.
        seeded: The generators of random numbers that it gives a seed.
    """

    name: str
    fault: str = ""
    place: str = ""
    is_broken: bool = False
    names_interface: bool = False
    names_prompt: bool = False
    loop: str = ""
    has_main: bool = False
    starts: int = 0
    modules: Sequence[tuple[int, str]] = ()
    draws: Mapping[str, str] = field(default_factory=dict)
    seeded: frozenset[str] = frozenset()


class _SourceError(Exception):
    """A source has no syntax tree; the arguments are the reason and the line, if it is known."""


def find_readme(folder: Path) -> Path | None:
    """Return the README of a submission, in whichever of the usual spellings; None if no regular file has one."""
    names = {entry.name.lower(): entry.name for entry in walk(folder, enter=lambda _: False) if entry.is_file}
    return next((folder / names[name] for name in _README_NAMES if name in names), None)


def python_files(folder: Path) -> list[PythonFile]:
    """Return a program's own Python files, those at the top first; links and the interface's packages are left out.

    The first file beyond MAX_PARSED_BYTES has a fault and is the last.
    """
    files: list[PythonFile] = []
    left = MAX_PARSED_BYTES
    for entry in walk(folder, enter=_is_entered):
        if not (entry.is_file and entry.name.endswith(".py")):
            continue
        file = PythonFile(entry.name, place=entry.name)
        try:
            content = read_bounded(folder / entry.name, MAX_SOURCE_BYTES)
            plain = content.replace(b"\0", b"")  # without its NULs, UTF-16 text can be searched, too
            file = replace(file, names_interface=bool(_INTERFACE.search(plain)), names_prompt=b"prompt.txt" in plain)
            left -= len(content)
            if left < 0:
                return [*files, replace(file, fault="comes after too much other source and was not parsed")]
            file = _with_syntax(file, list(ast.walk(_parse(content))))
        except UntrustedFileError as error:
            file = replace(file, fault=error.reason)
        except _SourceError as error:
            reason, line = error.args
            file = replace(file, fault=reason, place=f"{file.name}:{line}" if line else file.name, is_broken=True)
        files.append(file)
    return files


def unseeded_random(files: Sequence[PythonFile]) -> tuple[Flag, ...]:
    """Return a flag for each source of random numbers that gives a program others in another run.

    These are generators that the program uses and nowhere seeds, or seeds with the time or the like, and the system's
    own randomness. A seed in any file counts for all files: this finds what was forgotten, not what is hidden.
    """
    seeded = frozenset().union(*(file.seeded for file in files))
    draws = {source: text for file in reversed(files) for source, text in file.draws.items()}
    return tuple(Flag("unseeded-random", text) for source, text in draws.items() if source not in seeded)


def _is_entered(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return name not in _FOREIGN_FOLDERS and not name.startswith(".")


def _parse(content: bytes) -> ast.Module:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise _SourceError("is UTF-16 text, which Python does not run; save it as UTF-8", None)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    except SyntaxError as error:
        raise _SourceError(f"cannot be decoded ({error.msg[:200]}); save it as UTF-8", None) from error
    if codecs.lookup(encoding).name not in _ENCODINGS.split():
        raise _SourceError(f"declares the encoding {encoding[:40]!r}; save it as UTF-8", None)
    try:
        with warnings.catch_warnings():  # such as that of an invalid escape; the author is not here to read it
            warnings.simplefilter("ignore")
            return ast.parse(content)
    except (SyntaxError, ValueError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _SourceError(f"is not valid Python ({reason[:200]})", getattr(error, "lineno", None)) from error
    except (RecursionError, MemoryError) as error:
        raise _SourceError("is nested too deeply to be run", None) from error


def _with_syntax(file: PythonFile, nodes: list[ast.AST]) -> PythonFile:
    """Add what makes a file the entry, what it imports, and where it draws random numbers."""
    known = _known_names(nodes)
    loops, modules, starts = [], [], 0
    seeded: set[str] = set()
    seeds: dict[str, str] = {}  # that differ in every run
    draws: dict[str, str] = {}
    in_seeds: set[ast.AST] = set()  # a seed inside a seed was looked at with the outer one: nested calls stay linear
    for node in nodes:
        name, place = _dotted_name(node, known), f"{file.name}:{getattr(node, 'lineno', 0)}"
        if source := _part_of(_UNREPEATABLE, name):
            draws.setdefault(source, f"{place} uses {name}, which differs in every run")
        elif generator := _part_of(_GENERATORS, name):
            draws.setdefault(generator, f"{place} uses {generator}, which no file of the program seeds")
        if isinstance(node, ast.ClassDef) and any(_is_interface(base, "TrialLoop", known) for base in node.bases):
            loops.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules += [(node.lineno, module) for module in _modules(node)]
        elif isinstance(node, ast.Call):
            starts += _is_interface(node.func, "run_evaluation", known)
            if (function := _dotted_name(node.func, known)) in _SEEDING_FUNCTIONS.split():
                generator = _part_of(_GENERATORS, function)
                values = [*node.args, *(keyword.value for keyword in node.keywords)]
                parts = [part for value in values if value not in in_seeds for part in ast.walk(value)]
                in_seeds.update(parts)
                names = (_dotted_name(part, known) for part in parts)
                if changing := next((name for name in names if _part_of(_CHANGING, name)), ""):
                    text = f"{place} seeds {generator} with {changing}, which differs in every run"
                    seeds.setdefault(changing, text)
                if any(not isinstance(value, ast.Constant) or value.value is not None for value in values):
                    seeded.add(generator)
    return replace(
        file,
        loop=loops[0] if loops else "",
        has_main=any(_is_main_test(node) for node in nodes),
        starts=starts,
        modules=modules,
        draws={**seeds, **draws, **seeds},  # seeds first, and with their own words
        seeded=frozenset(seeded),
    )


def _is_interface(node: ast.AST, last: str, known: dict[str, str]) -> bool:
    name = _dotted_name(node, known)
    return name.partition(".")[0] in INTERFACE_PACKAGES and name.rpartition(".")[2] == last


def _known_names(nodes: list[ast.AST]) -> dict[str, str]:
    """Return the full dotted name of each name that a module imports, or binds to an imported one.

    Relative imports are left out. Of `from MODULE import *` those names count that the competition or the lint knows.
    """
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                known[alias.asname or root] = (alias.name if alias.asname else root)[:_MAX_NAME]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                for name in _starred(node.module) if alias.name == "*" else [alias.name]:
                    known[alias.asname or name] = f"{node.module}.{name}"[:_MAX_NAME]
    for node in nodes:  # `Base = llms4pcg.models.trial_loop.TrialLoop`
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = _dotted_name(node.value, known)
            if name.partition(".")[0] in INTERFACE_PACKAGES:
                known[node.targets[0].id] = name[:_MAX_NAME]
    return known


def _starred(module: str) -> list[str]:
    if module.partition(".")[0] in INTERFACE_PACKAGES:
        return ["TrialLoop", "run_evaluation"]
    return random.__all__ if module == "random" else []


def _dotted_name(node: ast.AST, known: dict[str, str]) -> str:
    """Return the full dotted name of a name or a short chain of attributes; empty if it is not a known one."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute) and len(attributes) < _MAX_ATTRIBUTES:
        attributes.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return ""
    return ".".join([known[node.id], *reversed(attributes)])


def _modules(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement may import: `from a import b` may import `a` and `a.b`."""
    names = [alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return names
    module = "." * node.level + (node.module or "")
    return [module, *(f"{module}.{name}" for name in names)]


def _is_main_test(node: ast.AST) -> bool:
    if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq)):
        return False
    sides = (getattr(side, "id", getattr(side, "value", None)) for side in (node.left, node.comparators[0]))
    return set(sides) == {"__name__", "__main__"}


def _part_of(modules: tuple[str, ...], name: str) -> str:
    """Return the first of some modules or functions that a dotted name is, or lies in; empty if there is none."""
    return next((module for module in modules if f"{name}.".startswith(f"{module}.")), "")
