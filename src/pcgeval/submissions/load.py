"""Load the submissions: each team has a folder below data/submissions, which is checked when it is read.

A submission holds `README.md` and either a program, which is Python that uses the competition's interface, or a prompt:
`prompt.txt` with the token `<OBJECT>`. The folder is exactly what was handed in: the organiser's decisions about a team
stand in params.yaml, and the lock of a program's packages in data/locks. The submission of a paper's reproduction has
a `reproduce.sh`, which a `Computer` runs.
"""

import ast
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Protocol

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import tree_sha256
from pcgeval.core.text import listed, printable_line
from pcgeval.core.untrusted import UntrustedFileError, open_regular, path_below, read_bytes, read_text, walk
from pcgeval.formats.layout import SUBMISSIONS, packages_lock
from pcgeval.formats.params import PARAMS_FILE, Team

INTERFACE_PACKAGES = ("chatgpt4pcg", "llm4pcg", "llms4pcg")
MAX_SOURCE_BYTES = 256 * 2**10
MAX_PARSED_BYTES = 4 * 2**20  # of all sources of a program
_MAX_NAME = 200  # characters of an imported name, with its dots
_README_NAMES = ("readme.md", "readme.txt", "readme.rst", "readme")  # in lower case, the best first
_FOREIGN_FOLDERS = {"__pycache__", "__MACOSX", "site-packages", "node_modules", *INTERFACE_PACKAGES}
_STARTS = re.compile(rb"TrialLoop|(run_evaluation)")
_SLOW_ENCODING = b"punycode"  # decoding takes quadratic time

PLACEHOLDER = "<OBJECT>"
PROMPT_FILE = "prompt.txt"
MAX_PROMPT_BYTES = 1_000_000  # far above any prompt within the word limit; a larger file is a mistake or an attack
_README_BYTES = 256 * 2**10  # searched for a command
_README_COMMAND = re.compile(
    r"""\b(?:python[0-9.]*|py|uv run)(?:\.exe)?[ \t]+(?:-\w+[ \t]+){0,3}["']?([^\s"'`]{1,200}\.py)\b"""
)
_PROGRAM = (
    "A program imports TrialLoop, chat_with_llm and run_evaluation from llms4pcg.competition, has a class of TrialLoop "
    'with `run(ctx, target_character)`, and calls run_evaluation("team", Class) under `if __name__ == "__main__":`'
)
_NAME_ENTRY = f"let the organiser name the file that starts the program as the team's `entry` in {PARAMS_FILE}"
# the characters that the competition's qualification rules allow, besides the placeholder; to JavaScript, in which they
# are written, U+FEFF is white space
_ALLOWED = re.compile("[A-Za-z0-9 ~/\\\\+,\\-*'\"`.!@#$%^&()_=\\[\\]{}|<>:;?\u2018\u2019\u201c\u201d\u2014\\s\ufeff]")
_NO_DECISIONS = Team()

REPRODUCE_SCRIPT, REPRODUCE_LOG = "reproduce.sh", "reproduce.log"
CREATION_TIME = f"{REPRODUCE_LOG}.creation_time"  # PaperBench: when reproduce.sh was started, in seconds since 1970


class SubmissionError(PcgevalError):
    """A submission is missing, incomplete or unreadable."""

    def __init__(self, folder: Path, place: str, text: str) -> None:
        """Name the file with the fault, perhaps with `:line` (empty: the whole), and a text that follows the name."""
        super().__init__(f"{folder / place}: {text}.")
        self.place, self.text = place, text


@dataclass(frozen=True)
class PythonFile:
    """A Python file of a program; without a fault, its syntax is known."""

    name: str  # relative to the program's folder, with forward slashes
    fault: str = ""  # why it was not parsed, in words that follow the place
    is_read: bool = True  # False for one that is too large to look into, which Python may still import
    place: str = ""  # its name, with `:line` if the fault has one
    uses_interface: bool = False  # mentions TrialLoop or run_evaluation and, if parsed, imports an interface package
    evaluates: bool = False  # mentions run_evaluation
    has_main: bool = False  # compares `__name__` with "__main__"
    imports: Mapping[str, int] = field(default_factory=dict)  # the first line of each module that it may import
    needs: frozenset[str] = frozenset()  # the modules of these that it imports whenever it starts
    tries: frozenset[str] = frozenset()  # those that it imports in a `try`
    functions: tuple[tuple[int, str], ...] = ()  # in place of a TrialLoop: the line of run_evaluation, and the name

    @property
    def imports_interface(self) -> bool:
        """Whether it imports an interface package."""
        return not self.imports.keys().isdisjoint(INTERFACE_PACKAGES)


@dataclass(frozen=True)
class Prompt:
    """One text that the model is asked once a trial."""

    text: str

    def for_letter(self, letter: str) -> str:
        """Return the prompt with every placeholder replaced by the letter."""
        return self.text.replace(PLACEHOLDER, letter)


@dataclass(frozen=True)
class Program:
    """Python that talks to the model itself, started as `python ENTRY` in its folder."""

    folder: Path
    entry: str  # relative to the folder, with forward slashes
    lock: Path | None = None  # of its packages, which need not exist; None outside a competition

    def files(self) -> list[str]:
        """Return the names of its files, as `submission_files`."""
        return submission_files(self.folder)


@dataclass(frozen=True)
class Submission:
    """One team's submission as it will be run."""

    team: str
    work: Prompt | Program
    decisions: Team = _NO_DECISIONS  # of the organiser

    @property
    def title(self) -> str:
        """The team as people read it: its title on one line, or its name."""
        return printable_line(self.decisions.title or "") or self.team

    @property
    def prompt_length(self) -> int | None:
        """Length of the prompt in characters, which breaks ties: the shorter is ranked first; None for a program."""
        return len(self.work.text) if isinstance(self.work, Prompt) else None


@dataclass(frozen=True)
class ReproductionRun:
    """The result of running a submission's reproduce.sh."""

    folder: Path  # a copy of the submission as it was after the run, with reproduce.log
    log: str  # the output, cut in the middle if it is long, the files left out, and how it ended; without times
    exit_code: int | None  # the script's, 128 + the signal's number for a signal; None if it was stopped or not started
    reason: str | None  # why it was stopped or never started, or which signal ended it
    seconds: float  # how long it ran
    # seconds since 1970 by the clock of the disk: the files of the run are as old or newer, those handed in look older
    started_at: float


class Computer(Protocol):
    """An environment that may run untrusted code.

    An attribute `identity`, a text, may name the settings that decide how a run ends: a run that was kept counts for
    the same identity only.
    """

    def reproduce(self, submission: Path, into: Path) -> ReproductionRun:
        """Copy a submission into the folder `into` and run its reproduce.sh there."""


def computer_identity(computer: Computer) -> str:
    """Return the identity of a computer; empty if it has none."""
    return str(getattr(computer, "identity", ""))


def load_submission(folder: Path, decisions: Team = _NO_DECISIONS) -> Submission:
    """Read a team's folder in a competition; its name is the team.

    Raises:
        SubmissionError: The folder is missing, holds a link, or holds neither a prompt nor one program.
    """
    if not folder.is_dir():
        text = f"team {folder.name!r} has no submission there. Add the folder, or take the team out of params.yaml"
        raise SubmissionError(folder, "", text)
    submission_files(folder)
    work = load_work(folder, decisions.entry, python_files(folder))
    if isinstance(work, Program):
        work = replace(work, lock=packages_lock(folder))
    return Submission(folder.name, work, decisions)


def load_submissions(teams: Mapping[str, Team], root: Path = SUBMISSIONS) -> dict[str, Submission]:
    """Read the submissions of all teams, in the order of params.yaml."""
    return {team: load_submission(root / team, decisions) for team, decisions in teams.items()}


def submission_files(folder: Path) -> list[str]:
    """Return the names of all files of a submission in byte order.

    Raises:
        SubmissionError: It holds a link, or something else than files and folders, or one of them cannot be read.
    """
    names = []
    for entry in walk(folder):
        if not entry.is_file:
            text = entry.fault or "is a link, a pipe, a socket or a device"
            raise SubmissionError(folder, entry.name, f"{text}. Remove it, or put the file itself there")
        names.append(entry.name)
    return sorted(names, key=os.fsencode)


def submission_sha256(folder: Path) -> str:
    """Return the SHA-256 of a submission, as `pcgeval submit`, its page and an audit print it.

    It is the `tree_sha256` of all its files.

    Raises:
        SubmissionError: As `submission_files`.
        FileError: A file cannot be read.
    """
    return tree_sha256(folder, submission_files(folder))


def prompt_findings(prompt: str, words: int) -> list[str]:
    """Return a message for each qualification rule that a prompt violates; it may have so many words."""
    findings = []
    if PLACEHOLDER not in prompt:
        findings.append(f"the prompt lacks the token {PLACEHOLDER}; write it where the letter belongs")
    if (length := len(prompt.split())) > words:
        findings.append(f"the prompt has {length} words; {words} are allowed")
    if strange := sorted(character for character in set(prompt) if not _ALLOWED.fullmatch(character)):
        shown = listed([f"{character} (U+{ord(character):04X})" for character in strange], 10)
        findings.append(f"the prompt has characters that the rules do not allow: {shown}")
    return findings


def load_work(folder: Path, entry: str | None, files: Sequence[PythonFile]) -> Prompt | Program:
    """Return the program, if the organiser names its entry or a file starts one, else the prompt.

    Raises:
        SubmissionError: There is neither, or it is not clear which file starts the program.
    """
    if entry is not None:
        return _program(folder, entry, "")
    if entry := _find_entry(folder, files):
        return _program(folder, entry, entry)
    # as written, even if the disk ignores case
    if any(item.name == PROMPT_FILE for item in walk(folder, enter=lambda _: False)):
        return Prompt(load_prompt(folder / PROMPT_FILE))
    raise _neither(folder, files)


def _find_entry(folder: Path, files: Sequence[PythonFile]) -> str | None:
    """Return the name of the file that starts the program; None if there is no program.

    It is the file that uses the interface, or takes run_evaluation from a file here that does, and has a block under
    `if __name__ == "__main__"`. Of several, it is the one that the README starts with `python FILE`, or the only one
    that names run_evaluation.
    """
    modules = {_module(file.name) for file in files if file.uses_interface}
    uses = [file for file in files if file.uses_interface or (file.evaluates and file.imports.keys() & modules)]
    if broken := next((file for file in uses if file.fault), None):  # an old copy must not take its place
        text = f"{broken.fault}. Correct it, or {_NAME_ENTRY}"
        raise SubmissionError(folder, broken.place, text)
    names = [file.name for file in uses if file.has_main]
    if uses and not names:
        text = 'has no `if __name__ == "__main__":`, under which a program calls run_evaluation. Add it'
        raise SubmissionError(folder, uses[0].name, f"{text}, or {_NAME_ENTRY}")
    if len(names) > 1 and (readme := find_readme(folder)):
        text = read_bytes(readme, _README_BYTES, cut=True).decode("utf-8", errors="replace")
        commands = _README_COMMAND.findall(text)
        started = {command.replace("\\", "/").removeprefix("./") for command in commands}
        names = [name for name in names if name in started] or names
    if len(names) > 1:  # the others may test themselves there
        names = [file.name for file in uses if file.name in names and file.evaluates] or names
    if len(names) > 1:
        text = f"several files start a program: {listed(names, 10)}. Write `python {names[0]}` into the README"
        raise SubmissionError(folder, "", f"{text}, or {_NAME_ENTRY}")
    return names[0] if names else None


def _module(name: str) -> str:
    """Return the name by which a program at the top imports a file."""
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def load_prompt(path: Path) -> str:
    """Read a prompt's file.

    Raises:
        SubmissionError: It is missing, a link, too large, empty or not UTF-8.
    """
    try:
        prompt = read_text(path, MAX_PROMPT_BYTES)
    except UntrustedFileError as error:
        raise SubmissionError(path.parent, path.name, f"{error.reason}. {error.remedy.removesuffix('.')}") from error
    if not prompt.strip():
        raise SubmissionError(path.parent, path.name, "is empty. Put the team's prompt there")
    return prompt


def _program(folder: Path, entry: str, place: str) -> Program:
    """Return a program, if its entry, of `place` or of the organiser, is a regular file without links on the way."""
    path, named = PurePosixPath(entry), f"entry {entry!r}" if place else f"entry {entry!r} of {PARAMS_FILE}"
    if "\\" in entry or path.as_posix().startswith("-") or path.suffix != ".py":  # python would take -x for an option
        text = f"{named} is not the name of a .py file in it, with / between folders. Correct it"
        raise SubmissionError(folder, place, text)
    try:
        with open_regular(path_below(folder, entry)):
            return Program(folder, path.as_posix())
    except UntrustedFileError as error:
        text = f"{named} {error.reason}. {error.remedy.removesuffix('.')}"
        raise SubmissionError(folder, place, text) from error


def _neither(folder: Path, files: Sequence[PythonFile]) -> SubmissionError:
    """Return why there is neither a prompt nor a program, by the file that is nearest to one."""
    if broken := next((file for file in files if file.fault), None):
        return SubmissionError(folder, broken.place, f"{broken.fault}, and no other file is a program. Correct it")
    if using := next((file for file in files if file.imports_interface), None):
        return SubmissionError(folder, using.name, f"names neither TrialLoop nor run_evaluation. {_PROGRAM}")
    for entry in walk(folder, enter=lambda _: False):
        if entry.is_file and entry.name.lower().startswith("prompt"):
            return SubmissionError(folder, entry.name, f"is not read. Name it {PROMPT_FILE}")
    if files:
        text = f"is no program: it imports none of {', '.join(INTERFACE_PACKAGES)}"
        return SubmissionError(folder, files[0].name, f"{text}. {_PROGRAM}")
    return SubmissionError(
        folder, "", f"holds neither {PROMPT_FILE}, with {PLACEHOLDER} for the letter, nor a program. {_PROGRAM}"
    )


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
            content = read_bytes(folder / entry.name, min(MAX_SOURCE_BYTES, left))
        except UntrustedFileError as error:
            files.append(replace(file, fault=f"{error.reason} and was not parsed", is_read=False))
            continue
        left -= len(content)
        starts = set(_STARTS.findall(content))
        file = replace(file, uses_interface=bool(starts), evaluates=b"run_evaluation" in starts)
        try:
            files.append(_with_syntax(file, _parse(content)))
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


def _with_syntax(file: PythonFile, tree: ast.Module) -> PythonFile:
    """Add what the syntax tree shows."""
    nodes = list(ast.walk(tree))
    imports, has_main = _imported(nodes), False
    for node in nodes:
        if isinstance(node, ast.Compare):
            sides = (getattr(side, "id", getattr(side, "value", None)) for side in (node.left, node.comparators[0]))
            has_main |= isinstance(node.ops[0], ast.Eq) and set(sides) == {"__name__", "__main__"}
    tried = [statement for node in nodes if isinstance(node, ast.Try) for statement in node.body]
    return replace(
        file,
        uses_interface=file.uses_interface and not imports.keys().isdisjoint(INTERFACE_PACKAGES),
        has_main=has_main,
        imports=imports,
        needs=frozenset(_imported(tree.body)),
        tries=frozenset(_imported(tried)),
        functions=tuple(_functions_for_loops(tree, nodes)),
    )


def _functions_for_loops(tree: ast.Module, nodes: Sequence[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the plain function that each call of run_evaluation gets in place of a class, with the line of the call."""
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    functions -= {_name(part) for node in nodes if isinstance(node, ast.Assign) for part in ast.walk(node)}
    for node in nodes:
        if isinstance(node, ast.Call) and _name(node.func) == "run_evaluation":
            loops = [*node.args[1:2], *(option.value for option in node.keywords if option.arg == "fn")]
            yield from ((node.lineno, name) for name in map(_name, loops) if name in functions)


def _name(node: ast.AST) -> str:
    """Return a name, or the last part of one with dots; empty for other nodes."""
    return getattr(node, "id", getattr(node, "attr", ""))


def _imported(nodes: Sequence[ast.AST]) -> dict[str, int]:
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
