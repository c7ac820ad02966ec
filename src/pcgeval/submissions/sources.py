"""What is looked at in a program's Python files: what would go wrong, or be held against it, where it is run.

Nothing is run: these are hints from the syntax, so nearly all are warnings.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

from pcgeval.submissions.entry_point import INTERFACE_PACKAGES, python_files
from pcgeval.submissions.findings import Finding, error, shown, warning
from pcgeval.submissions.python_source import SourceFault, parse_source, read_source

MOST_IN_A_FILE = 50  # findings, and imports of other people's packages
READ_BYTES = 2**20  # of all sources of a program
# these reach other machines; the program's only way out is the interface package
_NETWORK = {
    *("aiohttp", "anthropic", "boto3", "ftplib", "groq", "httpx", "huggingface_hub", "litellm", "mistralai", "ollama"),
    *("paramiko", "playwright", "requests", "selenium", "smtplib", "socket", "together", "urllib3", "websocket"),
    *("websockets", "http.client", "urllib.request", "google.generativeai", "google.genai", "openai"),
}
_COUNTERS = {"add_prompt_token_count", "add_output_token_count"}
_OWN_COMPUTER = re.compile(
    r"(?:/(?:home|Users|root|mnt|media|content|workspace|kaggle)/|[A-Za-z]:[\\/]|~/)[^\n]{1,200}"
)
_OPENERS = {"open", "Path", "read_csv", "read_json"}


@dataclass(frozen=True)
class Import:
    """A package that some file needs in order to run."""

    package: str  # the first part of the name
    place: str


@dataclass(frozen=True)
class Sources:
    """What was found in all Python files of a program."""

    imports: tuple[Import, ...]  # of other people's packages, each once
    findings: tuple[Finding, ...]


def look_through(folder: Path, entry: str) -> Sources:
    """Look through a program's Python files.

    Args:
        folder: The program's folder.
        entry: The file that starts it.
    """
    names = python_files(folder)
    local = _local_modules(names)
    imports: dict[str, Import] = {}
    findings: list[Finding] = []
    left = READ_BYTES
    for name in names:
        content = read_source(folder / name)
        if isinstance(content, bytes):
            left -= len(content)
        if left < 0:
            findings.append(warning(name, f"comes after {READ_BYTES} bytes of other source and was not looked into"))
            break
        tree = parse_source(content) if isinstance(content, bytes) else content
        if isinstance(tree, SourceFault):
            say = error if name == entry and isinstance(content, bytes) else warning
            findings.append(say(f"{name}:{tree.line}" if tree.line else name, tree.reason))
            continue
        file = _File(folder, name, tree)
        findings += islice(file.findings(is_entry=name == entry), MOST_IN_A_FILE)
        for each in islice(file.imports(), MOST_IN_A_FILE):
            if each.package not in local:
                imports.setdefault(each.package, each)
    findings += [
        warning(package, "is not used: the competition's own package is served in its place; take the copy out")
        for package in INTERFACE_PACKAGES
        if (folder / package).is_dir() or (folder / f"{package}.py").is_file()
    ]
    return Sources(tuple(imports.values()), tuple(findings))


def _local_modules(names: list[str]) -> set[str]:
    """Return all names under which a program's own files may be imported."""
    return {part.removesuffix(".py") for name in names for part in name.split("/")}


class _File:
    """One Python file of a program."""

    def __init__(self, folder: Path, name: str, tree: ast.Module) -> None:
        self.folder, self.name = folder, name
        self.nodes = list(ast.walk(tree))

    def imports(self) -> Iterator[Import]:
        """Yield what the file cannot do without and the standard library does not have."""
        optional = {id(each) for node in self.nodes if isinstance(node, ast.Try) for each in _tried(node)}
        for node in self.nodes:
            if id(node) not in optional:
                for module in _modules(node):
                    package = module.partition(".")[0]
                    if package not in sys.stdlib_module_names and package not in INTERFACE_PACKAGES:
                        yield Import(package, self._place(node))

    def findings(self, *, is_entry: bool) -> Iterator[Finding]:
        runs = 0
        for node in self.nodes:
            if module := next((each for each in _modules(node) if _reaches_out(each)), None):
                text = f"imports {shown(module)}: there is no network; the model is asked through chat_with_llm only"
                yield warning(self._place(node), text)
            elif isinstance(node, ast.Attribute) and node.attr in _COUNTERS:
                yield warning(self._place(node), "counts tokens itself; the rules forbid to change the counter")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _OWN_COMPUTER.fullmatch(node.value):
                text = f"names {shown(node.value, 80)!r}, a path of one computer; make it relative to the folder"
                yield warning(self._place(node), text)
            elif isinstance(node, ast.Call):
                runs += _called(node) == "run_evaluation"
                yield from self._opened(node)
        if is_entry and runs > 1:
            yield warning(self.name, f"calls run_evaluation {runs} times; a submission is one program, the first call")

    def _opened(self, call: ast.Call) -> Iterator[Finding]:
        """Yield what is wrong with a file that is opened by a name that stands there."""
        first = call.args[0] if call.args else None
        if _called(call) not in _OPENERS or not isinstance(first, ast.Constant) or not isinstance(first.value, str):
            return
        path, place = first.value, self._place(call)
        if _OWN_COMPUTER.fullmatch(path) or path.startswith("/") or not 0 < len(path) <= 200 or "\0" in path:
            return
        if ".." in path.split("/"):
            yield warning(place, f"names {shown(path, 80)!r}, which leads out of the submission")
        elif "\\" in path:
            yield warning(place, f"names {shown(path, 80)!r} with backslashes; write / between folders")
        elif _mode(call) & set("wax+"):
            yield warning(place, f"writes {shown(path, 80)!r}, but the program's folder is read-only; write to /tmp")
        elif not self._is_there(path):
            yield warning(place, f"names {shown(path, 80)!r}, which is not there; upper and lower case count")

    def _is_there(self, path: str) -> bool:
        starts = (self.folder, (self.folder / self.name).parent)
        return not PurePosixPath(path).suffix or any((start / path).exists() for start in starts)

    def _place(self, node: ast.AST) -> str:
        line = getattr(node, "lineno", None)
        return f"{self.name}:{line}" if line else self.name


def _modules(node: ast.AST) -> list[str]:
    """Return the full names of the modules that a node may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _reaches_out(module: str) -> bool:
    return module in _NETWORK or module.partition(".")[0] in _NETWORK


def _tried(node: ast.Try) -> Iterator[ast.AST]:
    """Yield the statements that stand directly under a `try` with a way out."""
    return iter(node.body if node.handlers else [])


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _mode(call: ast.Call) -> set[str]:
    """Return the letters of the mode in which a file is opened."""
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    return {
        letter
        for each in modes
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
        for letter in each.value
    }
