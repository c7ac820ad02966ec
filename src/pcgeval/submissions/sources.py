"""Python source of a submission: found, read and parsed, without running any of it.

A syntax tree takes up to a thousand times the space of its source, so sources are bounded. They are decoded here,
because some of the encodings that a source may declare take quadratic time.
"""

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pcgeval.core.untrusted import UntrustedFileError, read_bounded, walk

INTERFACE_PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")
MAX_PYTHON_FILES = 10_000  # of a program, in order; a submission may not have more files
MAX_SOURCE_BYTES = 256 * 2**10
_MAX_DOTTED = 200  # characters of a dotted name
_README_NAMES = ("readme.md", "readme.txt", "readme.rst", "readme")  # in lower case, the best first
_FOREIGN_FOLDERS = {"__pycache__", "__MACOSX", "site-packages", "node_modules", *INTERFACE_PACKAGES}
_PLAIN_ENCODINGS = {
    codecs.lookup(name).name
    for name in (
        *("ascii", "utf-8", "utf-8-sig", "latin-1", "iso8859-2", "iso8859-15", "cp1250", "cp1251", "cp1252", "koi8-r"),
        *("shift_jis", "cp932", "euc_jp", "euc_kr", "cp949", "gb2312", "gbk", "gb18030", "big5", "tis-620"),
    )
}


class SourceError(Exception):
    """A source has no syntax tree; the message follows the file's name."""

    def __init__(self, reason: str, line: int | None = None) -> None:
        """Keep the reason, and the line that it is about."""
        super().__init__(reason)
        self.line = line


@dataclass(frozen=True)
class PythonSource:
    """A Python file of a program.

    Attributes:
        name: Relative to the program's folder, with forward slashes.
        content: Its bytes; None if it cannot be read.
        tree: Its syntax tree; None if there is a fault.
        fault: Why there is no tree, in words that follow the place.
        place: Its name, with `:line` where the fault has one.
    """

    name: str
    content: bytes | None
    tree: ast.Module | None
    fault: str = ""
    place: str = ""


def find_readme(folder: Path) -> Path | None:
    """Return the README of a submission, in whichever of the usual spellings; None if no regular file has one."""
    name = readme_among(entry.name for entry in walk(folder, enter=lambda _: False) if entry.is_file)
    return None if name is None else folder / name


def readme_among(names: Iterable[str]) -> str | None:
    """Return the README's name among those of a submission's files, the best if there are several."""
    found = {name.lower(): name for name in names}
    return next((found[name] for name in _README_NAMES if name in found), None)


def python_files(folder: Path) -> list[str]:
    """Return the names of a program's own .py files, those at the top first; at most MAX_PYTHON_FILES."""

    def is_own(path: str) -> bool:
        name = path.rpartition("/")[2]
        return name not in _FOREIGN_FOLDERS and not name.startswith(".")

    found = (entry.name for entry in walk(folder, enter=is_own) if entry.is_file and entry.name.endswith(".py"))
    return list(islice(found, MAX_PYTHON_FILES))


def python_sources(folder: Path, budget: int, telltale: re.Pattern[bytes] = re.compile(b"")) -> Iterator[PythonSource]:
    """Yield a program's Python files; the first that is over the budget has a fault and is the last.

    Args:
        folder: The program's folder.
        budget: The most bytes that are parsed in all.
        telltale: Only sources in which it is found are yielded and counted, and those that cannot be read.
    """
    for name in python_files(folder):
        content = None
        try:
            content = read_bounded(folder / name, MAX_SOURCE_BYTES)
            if not telltale.search(content.replace(b"\0", b"")):  # without its NULs, UTF-16 text shows its words too
                continue
            budget -= len(content)
            if budget < 0:
                raise SourceError("comes after too much other source and was not parsed")  # noqa: TRY301 - as below
            yield PythonSource(name, content, parse_source(content))
        except UntrustedFileError as error:
            yield PythonSource(name, None, None, error.reason, name)
        except SourceError as error:
            yield PythonSource(name, content, None, str(error), f"{name}:{error.line}" if error.line else name)
            if budget < 0:
                return


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


def imported_names(tree: ast.Module, starred: Callable[[str], Sequence[str]]) -> dict[str, str]:
    """Return the full dotted name of each name that a module imports; relative imports are left out.

    Args:
        tree: The module.
        starred: The names that `from MODULE import *` binds, for a MODULE.
    """
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                known[alias.asname or root] = (alias.name if alias.asname else root)[:_MAX_DOTTED]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                for name in starred(node.module) if alias.name == "*" else [alias.name]:
                    known[alias.asname or name] = f"{node.module}.{name}"[:_MAX_DOTTED]
    return known


def dotted_name(node: ast.expr, known: dict[str, str]) -> str:
    """Return the full dotted name of a name or a short chain of attributes; empty if it is not an imported one."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute) and len(attributes) < 4:
        attributes.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return ""
    return ".".join([known[node.id], *reversed(attributes)])[:_MAX_DOTTED]
