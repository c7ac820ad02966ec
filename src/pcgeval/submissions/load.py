"""Load the submissions: each team has a folder below data/submissions, which is checked when it is read.

A submission holds `README.md` and either a program, which is Python that uses the competition's interface, or a prompt:
`prompt.txt` with the token `<OBJECT>`. `submission.yaml` may give the team's title and the file that starts the program
(`entry`); the organiser also notes the team's role and its disqualification there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import sha256_file, sha256_json
from pcgeval.core.layout import SUBMISSIONS, is_ignored
from pcgeval.core.untrusted import (
    UntrustedFileError,
    files_below,
    listed,
    open_regular,
    parse_yaml,
    path_below,
    printable_line,
    read_bounded_text,
    read_start,
    walk,
)
from pcgeval.submissions.packages import LOCK as REQUIREMENTS_LOCK
from pcgeval.submissions.sources import PythonFile, find_readme, python_files

PLACEHOLDER = "<OBJECT>"
PROMPT_FILE = "prompt.txt"
NOTES_FILE = "submission.yaml"
MAX_NOTES_BYTES = 16 * 2**10
MAX_PROMPT_BYTES = 1_000_000  # far above any prompt within the word limit; a larger file is a mistake or an attack
_README_BYTES = 256 * 2**10  # searched for a command
_README_COMMAND = re.compile(
    r"""\b(?:python[0-9.]*|py|uv run)(?:\.exe)?[ \t]+(?:-\w+[ \t]+){0,3}["']?([^\s"'`]{1,200}\.py)\b"""
)
_KNOWN_KEYS = "Known keys: title, entry, role (participant or baseline), disqualified"
# the characters that the competition's qualification rules allow, besides white space and the placeholder
_ALLOWED = re.compile("[A-Za-z0-9 ~/\\\\+,\\-*'\"`.!@#$%^&()_=\\[\\]{}|<>:;?\u2018\u2019\u201c\u201d\u2014\\s]")


class SubmissionError(PcgevalError):
    """A submission is missing, incomplete or unreadable."""

    def __init__(self, folder: Path, place: str, text: str) -> None:
        """Name the file with the fault, perhaps with `:line` (empty: the whole), and a text that follows the name."""
        super().__init__(f"{folder / place}: {text}.")
        self.place, self.text = place, text


class Notes(BaseModel):
    """The keys of submission.yaml; those from `role` on are the organiser's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, Field(max_length=200)] | None = None
    entry: Annotated[str, Field(max_length=400)] | None = None  # the file that starts the program
    role: Literal["participant", "baseline"] = "participant"
    disqualified: Annotated[str, Field(max_length=2000)] | None = None


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
    original: Path | None = None  # of a copy: the folder that messages name

    def files(self) -> list[str]:
        """Return the names of its files in byte order, without the organiser's notes and Python's caches."""
        names = (path.relative_to(self.folder) for path in files_below(self.folder))
        return [name.as_posix() for name in names if name != Path(NOTES_FILE) and "__pycache__" not in name.parts]


@dataclass(frozen=True)
class Submission:
    """One team's submission as it will be run."""

    team: str
    work: Prompt | Program
    notes: Notes = field(default_factory=Notes)

    @property
    def title(self) -> str:
        """The team as people read it: its title on one line, or its name."""
        return printable_line(self.notes.title or "") or self.team

    @property
    def prompt_length(self) -> int | None:
        """Length of the prompt in characters, which breaks ties: the shorter is ranked first; None for a program."""
        return len(self.work.text) if isinstance(self.work, Prompt) else None


def load_submission(folder: Path) -> Submission:
    """Read a team's folder; its name is the team.

    Raises:
        SubmissionError: The folder is missing, its notes are unreadable, or it holds neither a prompt nor one program.
    """
    if not folder.is_dir():
        text = f"team {folder.name!r} has no submission there. Add the folder, or take the team out of params.yaml"
        raise SubmissionError(folder, "", text)
    notes = load_notes(folder)
    return Submission(folder.name, load_work(folder, notes, python_files(folder)), notes)


def load_submissions(teams: tuple[str, ...], root: Path = SUBMISSIONS) -> dict[str, Submission]:
    """Read the submissions of all teams, in the order of params.yaml."""
    return {team: load_submission(root / team) for team in teams}


def submission_sha256(folder: Path) -> str:
    """Return the SHA-256 of a submission, as `pcgeval submit`, its page and an audit print it.

    It is the hash of the canonical JSON of `[[name, SHA-256 of the file], ...]` in byte order of the relative names. It
    leaves out submission.yaml and requirements-lock.txt, which the organiser writes, links, and what DVC ignores.

    Raises:
        FileError: The folder or a file in it cannot be read.
    """
    hashes = []
    for path in files_below(folder):
        name = path.relative_to(folder)
        if name.as_posix() not in {NOTES_FILE, REQUIREMENTS_LOCK} and not any(map(is_ignored, name.parts)):
            try:
                hashes.append([name.as_posix(), sha256_file(path)])
            except OSError as error:
                raise FileError(f"{path}: cannot be read ({error.strerror}). Make it readable.") from error
    return sha256_json(hashes)


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


def load_work(folder: Path, notes: Notes, files: Sequence[PythonFile]) -> Prompt | Program:
    """Return the program, if a file starts one, else the prompt.

    Raises:
        SubmissionError: There is neither, or it is not clear which file starts the program.
    """
    if notes.entry is not None:
        return _program(folder, notes.entry, NOTES_FILE)
    if entry := _find_entry(folder, files):
        return _program(folder, entry, entry)
    # as written, even if the disk ignores case
    if any(item.name == PROMPT_FILE for item in walk(folder, enter=lambda _: False)):
        return Prompt(load_prompt(folder / PROMPT_FILE))
    text = (
        f"holds neither {PROMPT_FILE} nor a program, which has one .py file with a subclass of TrialLoop and "
        f'run_evaluation(...) under `if __name__ == "__main__":`, or a file named as `entry:` in {NOTES_FILE}'
    )
    faults = [f"{file.place} {file.fault}" for file in files if file.fault]
    raise SubmissionError(folder, "", f"{text}; {listed(faults, 3)}" if faults else text)


def _find_entry(folder: Path, files: Sequence[PythonFile]) -> str | None:
    """Return the name of the file that starts the program; None if there is no program.

    It is the file that uses the interface and has a block under `if __name__ == "__main__"`. Of several, it is the one
    that the README starts with `python FILE`.
    """
    uses = [file for file in files if file.uses_interface]
    if broken := next((file for file in uses if file.fault), None):  # an old copy must not take its place
        text = f"{broken.fault}. Correct it, or name the file that starts the program as `entry:` in {NOTES_FILE}"
        raise SubmissionError(folder, broken.place, text)
    names = [file.name for file in uses if file.has_main]
    if uses and not names:
        text = 'uses the interface, but no file starts a program under `if __name__ == "__main__":`'
        raise SubmissionError(folder, uses[0].name, f"{text}. Name the one that does as `entry:` in {NOTES_FILE}")
    if len(names) > 1 and (readme := find_readme(folder)):
        commands = _README_COMMAND.findall(read_start(readme, _README_BYTES).decode("utf-8", errors="replace"))
        started = {command.replace("\\", "/").removeprefix("./") for command in commands}
        names = [name for name in names if name in started] or names
    if len(names) > 1:
        text = f"several files start a program: {listed(names, 10)}. Name one in {NOTES_FILE}, such as `entry: "
        raise SubmissionError(folder, "", f"{text}{names[0]}`")
    return names[0] if names else None


def load_prompt(path: Path) -> str:
    """Read a prompt's file.

    Raises:
        SubmissionError: It is missing, a link, too large, empty or not UTF-8.
    """
    try:
        prompt = read_bounded_text(path, MAX_PROMPT_BYTES)
    except UntrustedFileError as error:
        raise _unreadable(path, error) from error
    if not prompt.strip():
        raise SubmissionError(path.parent, path.name, "is empty. Put the team's prompt there")
    return prompt


def load_notes(folder: Path) -> Notes:
    """Read a folder's submission.yaml; without one, every key has its default.

    Raises:
        SubmissionError: The file is no regular file, too large, not YAML, or has unknown keys or values.
    """
    path = folder / NOTES_FILE
    try:
        values = parse_yaml(read_bounded_text(path, MAX_NOTES_BYTES))
        return Notes.model_validate({} if values is None else values)
    except UntrustedFileError as error:
        if error.kind == "missing":
            return Notes()
        raise _unreadable(path, error) from error
    except ValidationError as error:
        fault = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
    except ValueError as error:
        fault = str(error)
    raise SubmissionError(folder, NOTES_FILE, f"{printable_line(fault, 500)}. {_KNOWN_KEYS}")


def _unreadable(path: Path, error: UntrustedFileError) -> SubmissionError:
    return SubmissionError(path.parent, path.name, f"{error.reason}. {error.remedy.removesuffix('.')}")


def _program(folder: Path, entry: str, place: str) -> Program:
    """Return a program, if the entry that `place` gives is a regular file without links on the way."""
    path = PurePosixPath(entry)
    if "\\" in entry or path.as_posix().startswith("-") or path.suffix != ".py":  # python would take -x for an option
        text = f"entry {entry!r} is not the name of a .py file in it, with / between folders. Correct it"
        raise SubmissionError(folder, place, text)
    try:
        with open_regular(path_below(folder, entry)):
            return Program(folder, path.as_posix())
    except UntrustedFileError as error:
        text = f"entry {entry!r} {error.reason}. {error.remedy.removesuffix('.')}"
        raise SubmissionError(folder, place, text) from error
