"""Read the Python files of a submission, once and without running any of them, and tell what their syntax shows.

A syntax tree takes up to a thousand times the space of its source, so sources are bounded and trees are not kept.
Sources are decoded here, because some of the encodings that a source may declare take quadratic time.
"""

import ast
import codecs
import io
import random
import re
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeGuard

from pcgeval.core.untrusted import UntrustedFileError, read_bounded, walk

INTERFACE_PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")
MAX_PYTHON_FILES = 10_000  # of a program, in order; a submission may not have more files
MAX_SOURCE_BYTES = 256 * 2**10
MAX_PARSED_BYTES = 4 * 2**20  # of all sources of a program
_MAX_NAME = 80  # characters of a class's name
_MAX_DOTTED = 200  # characters of a dotted name
_README_NAMES = ("readme.md", "readme.txt", "readme.rst", "readme")  # in lower case, the best first
_FOREIGN_FOLDERS = {"__pycache__", "__MACOSX", "site-packages", "node_modules", *INTERFACE_PACKAGES}
_INTERFACE = re.compile(rb"TrialLoop|run_evaluation")
ANY = re.compile(rb"")
ENTRY = re.compile(rb"TrialLoop|run_evaluation|__main__")  # stands in every file that may start a program
RANDOM = re.compile(rb"random|secrets|uuid")  # stands in every file that draws random numbers
_PLAIN_ENCODINGS = {
    codecs.lookup(name).name
    for name in (
        *("ascii", "utf-8", "utf-8-sig", "latin-1", "iso8859-2", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r"),
        *("shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5", "tis-620"),
    )
}
_GENERATORS = ("random", "numpy.random")
_UNREPEATABLE = ("secrets", "os.urandom", "os.getrandom", "random.SystemRandom", "uuid.uuid1", "uuid.uuid4")
_CHANGING = (*_UNREPEATABLE, "time", "datetime", "os.getpid")  # a seed of these is another one in every run
_SEEDED_BY_ARGUMENT = {
    *("random.seed", "numpy.random.seed", "random.Random"),
    *("numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"),
}


class SourceError(Exception):
    """A source has no syntax tree; the message follows the file's name."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        """Keep the reason, and the line that it is about."""
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True)
class PythonFile:
    """A Python file of a program.

    Attributes:
        name: Relative to the program's folder, with forward slashes.
        fault: Why its syntax is not known, in words that follow the place; empty if it is.
        place: Its name, with `:line` where the fault has one.
        is_read: Whether its bytes could be read.
        names_interface: Whether TrialLoop or run_evaluation stands anywhere in it.
        names_prompt: Whether prompt.txt does.
        loop: The name of its first subclass of the interface's TrialLoop; empty without one.
        has_main: Whether it has a block under `if __name__ == "__main__"`.
        starts: How often it calls the interface's run_evaluation.
        modules: The modules that it may import, each with the line.
        imports: The last parts of all names that it imports.
        generators: The generators of random numbers that it uses, each with the first line.
        seeded: Those that it gives a seed.
        unrepeatable: Each source of random numbers that no seed makes repeatable, with the line and what is odd.
    """

    name: str
    fault: str = ""
    place: str = ""
    is_read: bool = True
    names_interface: bool = False
    names_prompt: bool = False
    loop: str = ""
    has_main: bool = False
    starts: int = 0
    modules: tuple[tuple[int, str], ...] = ()
    imports: frozenset[str] = frozenset()
    generators: tuple[tuple[str, int], ...] = ()
    seeded: frozenset[str] = frozenset()
    unrepeatable: tuple[tuple[str, str], ...] = ()


def find_readme(folder: Path) -> Path | None:
    """Return the README of a submission, in whichever of the usual spellings; None if no regular file has one."""
    name = readme_among(entry.name for entry in walk(folder, enter=lambda _: False) if entry.is_file)
    return None if name is None else folder / name


def readme_among(names: Iterable[str]) -> str | None:
    """Return the README's name among those of a submission's files, the best if there are several."""
    spelt = {name.lower(): name for name in names}
    return next((spelt[name] for name in _README_NAMES if name in spelt), None)


def python_files(folder: Path, telltale: re.Pattern[bytes] = ANY) -> Iterator[PythonFile]:
    """Yield a program's own Python files, those at the top first; links and the interface's packages are left out.

    The first file beyond MAX_PARSED_BYTES has a fault and is the last.

    Args:
        folder: The program's folder.
        telltale: Only files in which it is found are parsed, counted and yielded, and those that cannot be read.
    """

    def is_own(path: str) -> bool:
        name = path.rpartition("/")[2]
        return name not in _FOREIGN_FOLDERS and not name.startswith(".")

    names = (entry.name for entry in walk(folder, enter=is_own) if entry.is_file and entry.name.endswith(".py"))
    budget = MAX_PARSED_BYTES
    for name in islice(names, MAX_PYTHON_FILES):
        try:
            content = read_bounded(folder / name, MAX_SOURCE_BYTES)
        except UntrustedFileError as error:
            yield PythonFile(name, error.reason, name, is_read=False)
            continue
        if not telltale.search(content.replace(b"\0", b"")):  # without its NULs, UTF-16 text shows its words, too
            continue
        budget -= len(content)
        if budget < 0:
            fault = "comes after too much other source and was not parsed"
            yield PythonFile(name, fault, name, names_interface=bool(_INTERFACE.search(content)))
            return
        yield python_file(name, content)


def python_file(name: str, content: bytes) -> PythonFile:
    """Return what a source shows."""
    plain = content.replace(b"\0", b"")  # so that UTF-16 text shows its words, too
    file = PythonFile(
        name, names_interface=bool(_INTERFACE.search(plain)), names_prompt=b"prompt.txt" in plain, place=name
    )
    try:
        tree = parse_source(content)
    except SourceError as error:
        return replace(file, fault=str(error), place=f"{name}:{error.line}" if error.line else name)
    nodes = list(ast.walk(tree))
    return _with_randomness(_with_interface(file, nodes), nodes)


def parse_source(content: bytes) -> ast.Module:
    """Return the syntax tree of a source as this interpreter reads it.

    Raises:
        SourceError: It is no Python, or in an encoding that is not read.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise SourceError("is UTF-16 text, which Python does not run; save it as UTF-8")
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if codecs.lookup(encoding).name not in _PLAIN_ENCODINGS:
            raise SourceError(f"declares the encoding {encoding[:40]!r}; save it as UTF-8")
        text = content.decode(encoding)
    except SyntaxError as error:
        raise SourceError(f"cannot be decoded ({error.msg[:200]}); save it as UTF-8") from error
    except UnicodeDecodeError as error:
        raise SourceError(f"is not {error.encoding} text (byte {error.start}); save it as UTF-8") from error
    try:
        with warnings.catch_warnings():  # such as that of an invalid escape; the author is not here to read it
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        raise SourceError(f"is not valid Python ({error.msg[:200]})", error.lineno) from error
    except ValueError as error:
        raise SourceError(f"is not valid Python ({str(error)[:200]})") from error
    except (RecursionError, MemoryError) as error:
        raise SourceError("is nested too deeply to be run") from error


def _with_interface(file: PythonFile, nodes: Sequence[ast.AST]) -> PythonFile:
    """Add what makes a file the entry, and what it imports."""
    names = _imported_names(nodes, lambda module: ("TrialLoop", "run_evaluation") if _is_interface(module) else ())
    known = {bound: path for bound, path in names.items() if _is_interface(path)}
    for node in nodes:  # `Base = llms4pcg.models.trial_loop.TrialLoop`
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and _dotted_name(node.value, known):
            known[node.targets[0].id] = _dotted_name(node.value, known)

    def means(node: ast.expr, wanted: str) -> bool:
        return _dotted_name(node, known).rpartition(".")[2] == wanted

    imports = [alias.name for node in nodes if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names]
    imports += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    loops = [node.name for node in classes if any(means(base, "TrialLoop") for base in node.bases)]
    return replace(
        file,
        loop=loops[0][:_MAX_NAME] if loops else "",
        has_main=any(_is_main_test(node.test) for node in nodes if isinstance(node, ast.If)),
        starts=sum(means(node.func, "run_evaluation") for node in nodes if isinstance(node, ast.Call)),
        modules=tuple((getattr(node, "lineno", 0), module) for node in nodes for module in _modules(node)),
        imports=frozenset(name.rpartition(".")[2] for name in imports),
    )


def _with_randomness(file: PythonFile, nodes: Sequence[ast.AST]) -> PythonFile:
    """Add where a file draws random numbers, and what it seeds."""
    known = _imported_names(nodes, lambda module: random.__all__ if module == "random" else ())
    used: dict[str, int] = {}
    seeded: set[str] = set()
    unrepeatable: dict[str, str] = {}
    for node in nodes:
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Call) and (name := _dotted_name(node.func, known)) in _SEEDED_BY_ARGUMENT:
            seeds = [*node.args, *(keyword.value for keyword in node.keywords)]
            generator = _first_of(_GENERATORS, name)
            parts = [_dotted_name(part, known) for seed in seeds for part in ast.walk(seed) if _is_name(part)]
            if changing := next((part for part in parts if _first_of(_CHANGING, part)), None):
                text = f"{line} seeds {generator} with {changing}, another in every run"
                unrepeatable.setdefault(changing, text)
            if any(not isinstance(seed, ast.Constant) or seed.value is not None for seed in seeds):
                seeded.add(generator)
        elif _is_name(node) and (name := _dotted_name(node, known)):
            if other := _first_of(_UNREPEATABLE, name):
                unrepeatable.setdefault(other, f"{line} uses {name}, which gives other values in every run")
            elif generator := _first_of(_GENERATORS, name):
                used.setdefault(generator, line)
    return replace(
        file, generators=tuple(used.items()), seeded=frozenset(seeded), unrepeatable=tuple(unrepeatable.items())
    )


def _imported_names(nodes: Iterable[ast.AST], starred: Callable[[str], Sequence[str]]) -> dict[str, str]:
    """Return the full dotted name of each name that a module imports; relative imports are left out.

    Args:
        nodes: The module's syntax.
        starred: The names that `from MODULE import *` binds, for a MODULE.
    """
    known: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                known[alias.asname or root] = (alias.name if alias.asname else root)[:_MAX_DOTTED]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                for name in starred(node.module) if alias.name == "*" else [alias.name]:
                    known[alias.asname or name] = f"{node.module}.{name}"[:_MAX_DOTTED]
    return known


def _dotted_name(node: ast.expr, known: dict[str, str]) -> str:
    """Return the full dotted name of a name or a short chain of attributes; empty if it is not an imported one."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute) and len(attributes) < 4:
        attributes.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return ""
    return ".".join([known[node.id], *reversed(attributes)])[:_MAX_DOTTED]


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


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


def _is_name(node: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    return isinstance(node, ast.Name | ast.Attribute)


def _first_of(modules: tuple[str, ...], name: str) -> str:
    """Return the first of some modules or functions that a dotted name is, or is part of; empty if none is."""
    return next((module for module in modules if f"{name}.".startswith(f"{module}.")), "")
