"""Load the submissions: each team has a folder below data/submissions, which is checked when it is read.

A submission holds `README.md` and either a program, which is Python that uses the competition's interface, or a prompt:
`prompt.txt` with the token `<OBJECT>`. `submission.yaml` may give the team's title, and the kind and the entry where
these cannot be told; the organiser also notes the team's role and its disqualification there.

A program is started as `python FILE`. FILE has a subclass of the interface's TrialLoop and a block under
`if __name__ == "__main__"`; where the class lies in another module, the file that calls `run_evaluation` counts. Of
several such files, the one that the README starts with `python FILE` is taken.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.core.console import count
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
STARTED_WITH_PYTHON = re.compile(
    r"""\b(?:python[0-9.]*|py|uv[ ]run)(?:\.exe)?[ \t]+(?:-[a-zA-Z][ \t]+){0,3}"""
    r"""(?:"([^"\n]{1,200}\.py)"|'([^'\n]{1,200}\.py)'|([^\s"'`]{1,200}\.py)\b)"""
)
_README_BYTES = 256 * 2**10  # in which a command is looked for
_KNOWN_KEYS = "Known keys: title, kind (prompt or program), entry, role (participant or baseline), disqualified"
_PROMPT_LIKE = re.compile(r"_?pro?m?p?ts?(\.(txt|text|md|rtf|docx?|pdf))*", re.IGNORECASE)  # probably meant
# the characters that the competition's qualification rules allow, besides white space and the placeholder
_ALLOWED = re.compile("[A-Za-z0-9 ~/\\\\+,\\-*'\"`.!@#$%^&()_=\\[\\]{}|<>:;?\u2018\u2019\u201c\u201d\u2014\\s]")


class SubmissionError(PcgevalError):
    """A submission is missing, incomplete or unreadable.

    Attributes:
        place: The file that is at fault, relative to the folder, perhaps with `:line`; empty for the whole.
        text: What is wrong and what to do, in words that follow the place, without the last full stop.
        code: The kind of the fault in a word that does not change.
    """

    def __init__(self, folder: Path, place: str, text: str, code: str = "not-runnable") -> None:
        """Name the file of the submission and what is wrong with it."""
        super().__init__(f"{folder / place}: {text}.")
        self.place, self.text, self.code = place, text, code


class Notes(BaseModel):
    """The keys of submission.yaml; those from `role` on are the organiser's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, Field(max_length=200)] | None = None
    kind: Literal["prompt", "program"] | None = None  # where a folder could be taken for both
    entry: Annotated[str, Field(max_length=400)] | None = None  # the file that starts the program
    role: Literal["participant", "baseline"] = "participant"
    disqualified: Annotated[str, Field(max_length=2000)] | None = None

    @property
    def of_participant(self) -> "Notes":
        """The notes without the organiser's keys."""
        return Notes(title=self.title, kind=self.kind, entry=self.entry)


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
        """Length of the prompt in characters: equal scores are ranked by it, the shorter first.

        None for a program, whose prompts are made while it runs; that breaks no tie.
        """
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

    It is that of the canonical JSON of `[[name, SHA-256 of the file], ...]` in byte order of the names, which are
    relative to the folder. Left out are submission.yaml and requirements-lock.txt, in which the organiser writes; what
    DVC ignores, such as Python's caches; and links, which are no part of a submission.

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


def prompt_findings(prompt: str, words: int) -> dict[str, str]:
    """Return the qualification rules that a prompt violates: a message for each code.

    Args:
        prompt: The whole prompt.
        words: The most words that it may have; words are separated by white space.
    """
    findings = {}
    if PLACEHOLDER not in prompt:
        text = f"the prompt lacks the token {PLACEHOLDER}; write it where the letter belongs"
        findings["prompt-without-object"] = text
    if (length := len(prompt.split())) > words:
        findings["prompt-too-long"] = f"the prompt has {length} words; {words} are allowed"
    if strange := sorted(character for character in set(prompt) if not _ALLOWED.fullmatch(character)):
        shown = listed([f"{character} (U+{ord(character):04X})" for character in strange], 10)
        text = f"the prompt has {count(len(strange), 'character')} that the rules do not allow: {shown}"
        findings["prompt-characters"] = text
    return findings


def load_work(folder: Path, notes: Notes, files: Sequence[PythonFile]) -> Prompt | Program:
    """Return what is run: a program if one of the Python files starts it, else the prompt; the notes may decide.

    Raises:
        SubmissionError: There is neither, or it is not clear which file starts the program.
    """
    if notes.entry is not None:
        return _program(folder, notes.entry, NOTES_FILE)
    # as written, where case counts or not
    names = [entry.name for entry in walk(folder, enter=lambda _: False) if not entry.is_folder]
    if notes.kind != "prompt" and (entry := _find_entry(folder, files, has_prompt=PROMPT_FILE in names)):
        return _program(folder, entry, entry)
    if notes.kind == "prompt" or (notes.kind is None and PROMPT_FILE in names):
        return Prompt(load_prompt(folder / PROMPT_FILE))
    if alike := [name for name in names if notes.kind is None and _PROMPT_LIKE.fullmatch(name)]:
        text = f"is not read as the prompt; save it as {PROMPT_FILE}, in plain text and lower case"
        raise SubmissionError(folder, alike[0], text, "prompt-name")
    if broken := next((file for file in files if file.fault), None):
        text = f"{broken.fault}. Correct it: no other file here starts a program"
        raise SubmissionError(folder, broken.place, text, "syntax")
    missing = "no program" if notes.kind else f"neither {PROMPT_FILE} nor a program"
    text = (
        f"holds {missing}. A program has one .py file with a subclass of TrialLoop and run_evaluation(...) under "
        f'`if __name__ == "__main__":`; name one that is started otherwise as `entry:` in {NOTES_FILE}'
    )
    raise SubmissionError(folder, "", text)


def _find_entry(folder: Path, files: Sequence[PythonFile], *, has_prompt: bool) -> str | None:
    """Return the name of the file that starts the program; None if there is no program."""
    otherwise = f". Or write `kind: prompt` in {NOTES_FILE} to hand in {PROMPT_FILE}" if has_prompt else ""
    starting = {Path(file.name).stem for file in files if file.starts}

    def starts(file: PythonFile) -> bool:
        imported = {module.rpartition(".")[2] for _, module in file.modules}
        return file.starts > 0 or (file.has_main and not starting.isdisjoint(imported))

    def rank(file: PythonFile) -> int:
        return file.has_main + (file.has_main and starts(file)) + (file.has_main and starts(file) and file.loop != "")

    # an old copy must not be taken in the place of a file that is no Python
    broken = [file for file in files if file.fault and file.names_interface]
    candidates = [file for file in files if starts(file) or (file.loop and file.has_main) or file in broken]
    if not candidates:
        if idle := next((file for file in files if file.loop), None):
            text = (
                f"has {idle.loop}, a subclass of TrialLoop, but nothing starts it. End the file with "
                f'`if __name__ == "__main__":` and under it `run_evaluation("TEAM", {idle.loop})`'
            )
            raise SubmissionError(folder, idle.name, text + otherwise, "no-main")
        return None
    in_readme = _started_by_readme(folder)
    best = [file for file in candidates if file.name in in_readme]
    if len(best) != 1 and not broken:
        best = [file for file in candidates if rank(file) == max(map(rank, candidates))]
    if len(best) == 1 and not best[0].fault:
        return best[0].name
    first = candidates[0]
    if len(candidates) == 1:  # it was not taken because it cannot be read
        raise SubmissionError(folder, first.place, first.fault + otherwise, "syntax")
    names = listed([f"{file.place} {file.fault}" if file.fault else file.name for file in candidates], 10)
    text = f"it is not clear which file starts the program: {names}. Name it in {NOTES_FILE}, such as `entry: "
    raise SubmissionError(folder, "", f"{text}{first.name}`{otherwise}")


def _started_by_readme(folder: Path) -> set[str]:
    readme = find_readme(folder)
    text = read_start(readme, _README_BYTES).decode("utf-8", errors="replace") if readme else ""
    names = ("".join(match.groups(default="")) for match in STARTED_WITH_PYTHON.finditer(text))
    return {name.replace("\\", "/").removeprefix("./") for name in names}


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
    is_odd = "\\" in entry or path.as_posix().startswith("-")  # python would take it for an option
    if is_odd or path.is_absolute() or ".." in path.parts or path.suffix != ".py":
        text = f"entry {entry!r} is not the name of a .py file in it, with / between folders. Correct it"
        raise SubmissionError(folder, place, text)
    try:
        with open_regular(path_below(folder, entry)):
            return Program(folder, path.as_posix())
    except UntrustedFileError as error:
        text = f"entry {entry!r} {error.reason}. {error.remedy.removesuffix('.')}"
        raise SubmissionError(folder, place, text) from error
