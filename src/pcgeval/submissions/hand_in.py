"""Choose the files of a submission in the folder or zip file that a team hands in, and collect findings about them.

A filed submission goes into git and onto other people's disks, so a name must mean the same file on all of them.
"""

import os
import posixpath
import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISLNK
from tempfile import TemporaryDirectory
from typing import Literal, get_args

from pcgeval.core.archives import unpack
from pcgeval.core.errors import PcgevalError
from pcgeval.core.untrusted import listed, open_regular, printable_name, walk
from pcgeval.submissions.load import NOTES_FILE

MAX_FILES = 10_000
MAX_BYTES = 2**30  # the competition's rule: a program has at most 1 GB with all its data
_MAX_ENTRIES = 4 * MAX_FILES  # with the folders and with what is left out
MAX_NAME_BYTES = 255  # UTF-8, of one part of a path: what common file systems take
MAX_PATH_BYTES = 400  # UTF-8
MAX_DEPTH = 20  # folders in one another
_NOT_ON_WINDOWS = re.compile(
    r'[<>:"|?*\\]|[. ](/|$)|(^|/)(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])[ ]*(\.|/|$)', re.IGNORECASE
)
_LEFT_OUT = {
    "version control": re.compile(r"\.git|\.svn|\.hg|\.gitignore|\.gitattributes|\.gitmodules"),
    # a pipeline of the team would run, or hide files from ours
    "DVC": re.compile(r"\.dvc|\.dvcignore|dvc\.yaml|dvc\.lock|.*\.dvc"),
    "the operating system": re.compile(r"__macosx|\.ds_store|\._.*|thumbs\.db|desktop\.ini|\.trashes|\.spotlight-v100"),
    "Python": re.compile(r"__pycache__|.*\.py[co]|.*\.egg-info|\.ipynb_checkpoints|\.(mypy|pytest|ruff)_cache|\.venv"),
    "the organiser": re.compile(r"requirements-lock\.txt"),
    "an editor": re.compile(r"\.idea|\.vscode|.*\.swp|\..*\.part"),
}
_SHOWN_PLACES = 5  # of findings with the same text
_MAX_TEXT = 1000  # characters of a finding

Severity = Literal["error", "warning", "note"]


class HandInError(PcgevalError):
    """A path is neither a folder nor a zip file."""


@dataclass(frozen=True)
class SubmissionFinding:
    """One finding.

    Attributes:
        severity: An error refuses the submission, a warning may be intended, a note says what was done.
        place: A file of the submission, perhaps with `:line`; empty for the whole.
        text: The problem and what to do about it; may quote hostile text.
        code: The kind of an error in a word that does not change.
    """

    severity: Severity
    place: str
    text: str
    code: str = ""


def error(place: str, text: str, code: str) -> SubmissionFinding:
    """Return a finding that refuses the submission."""
    return SubmissionFinding("error", place, text, code)


def warning(place: str, text: str) -> SubmissionFinding:
    """Return a finding that may be intended."""
    return SubmissionFinding("warning", place, text)


def in_order(findings: Iterable[SubmissionFinding]) -> list[SubmissionFinding]:
    """Return each finding once, errors first, then warnings, then notes."""
    return sorted(dict.fromkeys(findings), key=lambda finding: get_args(Severity).index(finding.severity))


def printable_findings(findings: Iterable[SubmissionFinding]) -> list[str]:
    """Return a line for each text, errors first, with the places that it is about and an error's code."""
    places: dict[tuple[Severity, str, str], list[str]] = {}
    for finding in in_order(findings):
        places.setdefault((finding.severity, finding.text, finding.code), []).append(finding.place)
    lines = []
    for (severity, text, code), names in places.items():
        prefix = f"{listed(names, _SHOWN_PLACES)}: " if any(names) else ""
        suffix = f" [{code}]" if code else ""
        lines.append(f"{severity}: {prefix}{printable_name(text, _MAX_TEXT)}{suffix}")
    return lines


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Yield the folder that was handed in; a zip file is unpacked until the end of the block.

    Raises:
        HandInError: It is neither a folder nor a zip file.
        UntrustedFileError: The zip file is damaged, unpacks to too much, or names a place outside of its folder.
    """
    if path.is_dir():
        yield path
        return
    if not path.exists():
        raise HandInError(f"{path}: does not exist. Name a submission's folder or its zip file.")
    if path.suffix.lower() != ".zip":
        raise HandInError(f"{path}: is neither a folder nor a zip file. Pack the submission as a .zip file.")
    with TemporaryDirectory(prefix="pcgeval-") as folder:
        unpack(path, Path(folder, "submission"), max_files=_MAX_ENTRIES, max_bytes=MAX_BYTES)
        yield Path(folder, "submission")


def select(folder: Path) -> tuple[Path, dict[str, int], list[SubmissionFinding]]:
    """Choose the files of a submission in a folder; links are not followed, and ignored folders are not entered.

    Returns:
        The folder with the files: the one that was handed in, or the one in it that holds everything; the bytes of each
        file that can be stored, by its name in that folder; and what is wrong, and what was left out.
    """
    sizes: dict[str, int] = {}
    findings: list[SubmissionFinding] = []
    entries = walk(folder, limit=_MAX_ENTRIES, depth=MAX_DEPTH, enter=lambda name: _left_out(folder / name) is None)
    for entry in entries:
        if entry.status is None:
            findings.append(error(entry.name, f"{entry.fault}; remove it", "unreadable"))
        elif reason := _left_out(folder / entry.name):
            findings.append(SubmissionFinding("note", entry.name, f"was left out ({reason})"))
        elif entry.is_file:
            sizes[entry.name] = entry.status.st_size
        elif S_ISLNK(entry.status.st_mode):
            findings.append(error(entry.name, "is a link; put the file itself there", "not-a-file"))
        else:
            findings.append(error(entry.name, "is a pipe, a socket or a device; remove it", "not-a-file"))
    if not sizes:
        return folder, sizes, [*findings, error("", "holds no files", "no-files")]
    if top := posixpath.commonpath([posixpath.dirname(name) for name in sizes]):  # of all the files
        findings.append(SubmissionFinding("note", f"{top}/", "holds everything; its contents were taken"))
        sizes = {name.removeprefix(f"{top}/"): size for name, size in sizes.items()}
    faults = dict(_name_faults(sizes))
    storable = {name: size for name, size in sizes.items() if name not in faults}
    return folder / top, storable, [*findings, *faults.values()]


def copy_files(folder: Path, names: Iterable[str], target: Path) -> None:
    """Copy the selected files of a folder into another.

    Raises:
        UntrustedFileError: A file has become something else since it was listed, or cannot be read.
    """
    for name in names:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with open_regular(folder / name) as source, place.open("xb") as copy:
            shutil.copyfileobj(source, copy)


def name_fault(name: str) -> str | None:
    """Return why a relative path cannot be stored everywhere, in words that follow it; None if it can."""
    if not all(character.isprintable() or unicodedata.category(character) == "Zs" for character in name):
        return "has unprintable characters; rename it"
    if len(name.encode()) > MAX_PATH_BYTES or name.count("/") > MAX_DEPTH:
        return f"is over {MAX_PATH_BYTES} bytes long or over {MAX_DEPTH} folders deep; shorten it"
    if max(len(part.encode()) for part in name.split("/")) > MAX_NAME_BYTES:
        return f"has a name over {MAX_NAME_BYTES} bytes; shorten it"
    if _NOT_ON_WINDOWS.search(name):
        return "has a name that Windows cannot store; rename it"
    if re.search("(^|/)[- ]", name):
        return "has a name that begins with - or a space; rename it"
    return None


def _left_out(path: Path) -> str | None:
    """Return why a file or folder is no part of a submission; None if it is one."""
    if os.path.lexists(path / "pyvenv.cfg"):
        return "a virtual environment; requirements.txt lists what the program needs"
    owners = (owner for owner, rule in _LEFT_OUT.items() if rule.fullmatch(path.name.casefold()))
    return next((f"of {owner}" for owner in owners), None)


def _name_faults(names: Iterable[str]) -> Iterator[tuple[str, SubmissionFinding]]:
    """Yield the files that some disk cannot store, or takes for another one by case or Unicode form, with the error."""
    # the organiser's decisions are read from the notes, which no other file may become on another disk
    paths_by_form = {NOTES_FILE: NOTES_FILE}
    for name in names:
        if fault := name_fault(name):
            yield name, error(name, fault, "file-name")
            continue
        for path in map(str, (PurePosixPath(name), *PurePosixPath(name).parents)):
            form = unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())
            other = paths_by_form.setdefault(form, path)
            if other != path:
                text = f"has on some disks the same name as {printable_name(other)}; rename one of them"
                yield name, error(path, text, "same-name")
