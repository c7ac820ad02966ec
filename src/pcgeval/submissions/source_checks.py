"""Check a program's Python files for what would fail, or be held against it, where it is run.

Nothing is run: these are hints from the syntax, so nearly all are warnings.
"""

import ast
import random
import re
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import TypeGuard

from pcgeval.core.trials import Flag
from pcgeval.core.untrusted import printable_name
from pcgeval.submissions.entry_point import describe
from pcgeval.submissions.findings import SubmissionFinding, error, warning
from pcgeval.submissions.sources import (
    INTERFACE_PACKAGES,
    dotted_name,
    imported_names,
    python_files,
    python_sources,
)

MAX_IN_A_FILE = 50  # findings, and imports of other people's packages
MAX_PARSED_BYTES = 2**20  # of all sources of a program
MAX_RANDOM_BYTES = 4 * 2**20  # of all sources that name random numbers
# these reach other machines; the program's only way out is the interface package
_NETWORK = {
    *("aiohttp", "anthropic", "boto3", "ftplib", "groq", "httpx", "huggingface_hub", "litellm", "mistralai", "ollama"),
    *("paramiko", "playwright", "requests", "selenium", "smtplib", "socket", "together", "urllib3", "websocket"),
    *("websockets", "http.client", "urllib.request", "google.generativeai", "google.genai", "openai"),
}
_COUNTERS = {"add_prompt_token_count", "add_output_token_count"}
_ABSOLUTE_PATH = re.compile(
    r"(?:/(?:home|Users|root|mnt|media|content|workspace|kaggle)/|[A-Za-z]:[\\/]|~/)[^\n]{1,200}"
)
_OPENERS = {"open", "Path", "read_csv", "read_json"}
_GENERATORS = ("random", "numpy.random")
_UNREPEATABLE = ("secrets", "os.urandom", "os.getrandom", "random.SystemRandom", "uuid.uuid1", "uuid.uuid4")
_CHANGING = (*_UNREPEATABLE, "time", "datetime", "os.getpid")  # a seed of these is another one in every run
_SEEDED_BY_ARGUMENT = {
    *("random.seed", "numpy.random.seed", "random.Random"),
    *("numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.Generator"),
}


def check_sources(folder: Path, entry: str | None, findings: list[SubmissionFinding]) -> dict[str, str]:
    """Check a program's Python files.

    Args:
        folder: The program's folder.
        entry: The file that starts it; None if that is not known.
        findings: What is found is added here.

    Returns:
        The other people's packages that some file cannot run without, each with the place of its first import.
    """
    # every part of a file's path is a name by which the program may import it
    own = {part.removesuffix(".py") for name in python_files(folder) for part in name.split("/")}
    packages: dict[str, str] = {}
    runs = False
    for source in python_sources(folder, MAX_PARSED_BYTES):
        if source.tree is None:
            is_fatal = source.name == entry and source.content is not None
            place, fault = source.place, source.fault
            findings.append(error(place, fault, "syntax") if is_fatal else warning(place, fault))
            runs = True  # perhaps
            continue
        nodes = list(ast.walk(source.tree))
        in_file = _node_findings(folder, source.name, nodes)
        findings += [warning(place, text) for place, text in islice(in_file, MAX_IN_A_FILE)]
        calls = sum(isinstance(node, ast.Call) and _called(node) == "run_evaluation" for node in nodes)
        runs = runs or calls > 0
        if source.name == entry:
            findings += _entry_findings(source.name, source.tree, calls)
        for package, place in islice(_required_packages(source.name, nodes), MAX_IN_A_FILE):
            if package not in own:
                packages.setdefault(package, place)
    if entry is not None and not runs:
        findings.append(warning(entry, "never calls run_evaluation, without which no trial is run"))
    for package in INTERFACE_PACKAGES:
        if (folder / package).is_dir() or (folder / f"{package}.py").is_file():
            findings.append(warning(package, "is not used: the competition's own package replaces it; remove the copy"))
    return packages


def _entry_findings(name: str, tree: ast.Module, calls: int) -> Iterator[SubmissionFinding]:
    """Yield what is odd about how the file that starts a program starts it."""
    if calls > 1:
        yield warning(name, f"calls run_evaluation {calls} times; a submission is one program, the first call")
    if calls and not describe(name, tree).has_main:
        text = 'has no `if __name__ == "__main__":`; put the call of run_evaluation under it, as the rules ask'
        yield warning(name, text)


def names_file(folder: Path, name: str) -> bool:
    """Return whether a program's source has a file's name in it, as one that reads the file would."""
    return any(name.encode() in (source.content or b"") for source in python_sources(folder, MAX_PARSED_BYTES))


def unseeded_random(folder: Path) -> tuple[Flag, ...]:
    """Return a flag for each source of random numbers of a program that gives others in another run.

    These are generators that the program uses and nowhere seeds or seeds with the time or the like, and the system's
    own randomness.

    Args:
        folder: The program's folder. A seed in any of its files counts for all of them: this finds what was forgotten,
            not what is hidden.
    """
    used: dict[str, str] = {}
    seeded: set[str] = set()
    others: dict[str, str] = {}  # that no seed makes repeatable
    for source in python_sources(folder, MAX_RANDOM_BYTES, re.compile(b"random|secrets|uuid")):
        if source.tree is None:
            continue
        known = imported_names(source.tree, lambda module: random.__all__ if module == "random" else ())
        for node in ast.walk(source.tree):
            place = f"{source.name}:{getattr(node, 'lineno', '')}"
            if isinstance(node, ast.Call) and (name := dotted_name(node.func, known)) in _SEEDED_BY_ARGUMENT:
                seeds = [*node.args, *(keyword.value for keyword in node.keywords)]
                generator = _first_of(_GENERATORS, name)
                names = [dotted_name(each, known) for seed in seeds for each in ast.walk(seed) if _is_name(each)]
                if changing := next((each for each in names if _first_of(_CHANGING, each)), None):
                    others.setdefault(changing, f"{place} seeds {generator} with {changing}, another in every run")
                if any(not isinstance(seed, ast.Constant) or seed.value is not None for seed in seeds):
                    seeded.add(generator)
            elif _is_name(node) and (name := dotted_name(node, known)):
                if other := _first_of(_UNREPEATABLE, name):
                    others.setdefault(other, f"{place} uses {name}, which gives other values in every run")
                elif generator := _first_of(_GENERATORS, name):
                    used.setdefault(generator, place)
    unseeded = [(place, each) for each, place in sorted(used.items()) if each not in seeded]
    details = [f"{place} uses {each}, which no file of the program gives a seed" for place, each in unseeded]
    return tuple(Flag("unseeded-random", detail) for detail in [*details, *others.values()])


def _is_name(node: ast.AST) -> TypeGuard[ast.Name | ast.Attribute]:
    return isinstance(node, ast.Name | ast.Attribute)


def _first_of(modules: tuple[str, ...], name: str) -> str:
    """Return the first of some modules or functions that a dotted name is, or is part of; empty if none is."""
    return next((each for each in modules if f"{name}.".startswith(f"{each}.")), "")


def _node_findings(folder: Path, name: str, nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each warning about a file's syntax."""
    for node in nodes:
        place = f"{name}:{getattr(node, 'lineno', '')}"
        reached = [each for each in _modules(node) if each in _NETWORK or each.partition(".")[0] in _NETWORK]
        if reached:
            module = printable_name(reached[0])
            yield place, f"imports {module}: there is no network; the model is asked through chat_with_llm only"
        elif isinstance(node, ast.Attribute) and node.attr in _COUNTERS:
            yield place, "counts tokens itself; the rules forbid to change the counter"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _ABSOLUTE_PATH.fullmatch(node.value):
            path = printable_name(node.value, 80)
            yield place, f"names {path!r}, a path of one computer; make it relative to the folder"
        elif isinstance(node, ast.Call) and (problem := _opened_file_fault(folder, name, node)):
            yield place, problem


def _opened_file_fault(folder: Path, name: str, call: ast.Call) -> str | None:
    """Return what is wrong with a file that a call opens by a literal name; absolute ones are checked as constants."""
    first = call.args[0] if call.args else None
    path = first.value if isinstance(first, ast.Constant) and _called(call) in _OPENERS else None
    is_relative = isinstance(path, str) and 0 < len(path) <= 200 and "\0" not in path and not path.startswith("/")
    if not isinstance(path, str) or not is_relative or _ABSOLUTE_PATH.fullmatch(path):
        return None
    modes = [*call.args[1:2], *(each.value for each in call.keywords if each.arg == "mode")]
    letters = {letter for each in modes if isinstance(each, ast.Constant) for letter in str(each.value)}
    shown, problem = printable_name(path, 80), None
    if ".." in path.split("/"):
        problem = f"names {shown!r}, which leads out of the submission"
    elif "\\" in path:
        problem = f"names {shown!r} with backslashes; write / between folders"
    elif letters & set("wax+"):
        problem = f"writes {shown!r}, but the program's folder is read-only; write to /tmp"
    elif PurePosixPath(path).suffix and not any((start / path).exists() for start in (folder, (folder / name).parent)):
        problem = f"names {shown!r}, which does not exist; upper and lower case count"
    return problem


def _required_packages(name: str, nodes: list[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield the package and the place of each import that no `try` makes optional and the standard library lacks."""
    tried = {id(each) for node in nodes if isinstance(node, ast.Try) and node.handlers for each in node.body}
    for node in nodes:
        if id(node) not in tried:
            for package in {module.partition(".")[0]: None for module in _modules(node)}:
                if package not in sys.stdlib_module_names and package not in INTERFACE_PACKAGES:
                    yield package, f"{name}:{getattr(node, 'lineno', '')}"


def _modules(node: ast.AST) -> list[str]:
    """Return the full names of the modules that a node may import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def _called(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
