"""The files that are handed in, as a folder or a zip file, and those of them that make up the submission."""

import os
import posixpath
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from stat import S_ISLNK, S_ISREG

from pcgeval.core.errors import PcgevalError
from pcgeval.core.untrusted import UntrustedFileError, open_regular, walk
from pcgeval.submissions.findings import SubmissionFinding, error, note
from pcgeval.submissions.names import (
    MAX_DEPTH,
    VENV_FILE,
    collisions,
    escape_fault,
    left_out,
    name_fault,
    with_parents,
)

CHUNK = 2**18  # bytes
MAX_FILES = 10_000
MAX_BYTES = 2**30  # the competition's rule: a program has at most 1 GB with all its data
_MAX_ENTRIES = 4 * MAX_FILES  # with the folders and with what is left out


class HandInError(PcgevalError):
    """A path is neither a folder nor a zip file; or a file in it cannot be read."""


@dataclass(frozen=True)
class HandInFile:
    """One file as the folder or the zip file lists it.

    `chunks` yields its bytes, at most CHUNK at a time, or raises HandInError; the message follows the file's name.
    """

    name: str  # with forward slashes
    size: int  # bytes, as listed
    chunks: Callable[[], Iterator[bytes]]


@dataclass(frozen=True)
class HandInListing:
    """The regular files of a folder or zip file by name and size, and what is wrong with them already."""

    files: tuple[HandInFile, ...]
    findings: tuple[SubmissionFinding, ...]
    is_readable: bool = True  # whether the files' bytes may be read at all


def list_folder(folder: Path) -> HandInListing:
    """List a folder's files in the order of their names; no link is followed, and what is left out is not entered."""

    def is_entered(name: str) -> bool:
        return left_out(name) is None and not os.path.lexists(folder / name / VENV_FILE)

    files: list[HandInFile] = []
    findings: list[SubmissionFinding] = []
    inodes: dict[tuple[int, int, int], list[str]] = {}  # the names here of each file that has several anywhere
    for entry in walk(folder, limit=_MAX_ENTRIES, depth=MAX_DEPTH, enter=is_entered):
        name, status = entry.name, entry.status
        size = 0
        if entry.is_folder:
            name = name if left_out(name) else f"{name}/{VENV_FILE}"
        elif left_out(name) and status is not None:
            pass
        elif status is None:
            findings.append(error(name, f"{entry.fault}; remove it", "unreadable"))
            continue
        elif fault := _file_fault(folder / name, status):
            findings.append(error(name, fault, "not-a-file"))
            continue
        else:
            size = status.st_size
            if status.st_nlink > 1:
                inodes.setdefault((status.st_dev, status.st_ino, status.st_nlink), []).append(name)
        files.append(HandInFile(name, size, partial(_chunks, folder / name)))
    for (_, _, count), names in inodes.items():
        if count > len(names):  # its other name may be that of somebody's secret
            text = "is a hard link to a file outside of the submission; copy the file"
            findings.append(error(min(names), text, "hard-link"))
    return HandInListing(
        tuple(sorted(files, key=lambda file: os.fsencode(file.name))),
        tuple(sorted(findings, key=lambda finding: os.fsencode(finding.place))),
    )


def _chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a listed file, which may have become something else since."""
    try:
        with open_regular(path) as opened:
            while chunk := opened.read(CHUNK):
                yield chunk
    except UntrustedFileError as fault:
        raise HandInError(f"{fault.reason}; hand in the file itself") from fault


def _file_fault(path: Path, status: os.stat_result) -> str | None:
    if S_ISLNK(status.st_mode):
        return "is a link; put the file itself there"
    if not S_ISREG(status.st_mode):
        return "is a pipe, a socket or a device; remove it"
    return None if os.access(path, os.R_OK) else "cannot be read; make it readable"


@dataclass(frozen=True)
class SelectedFiles:
    """The submission's files by name, in the order of the names, and what is wrong with what was handed in.

    Files whose names cannot be stored are missing, so that the others can be checked all the same.
    """

    files: dict[str, HandInFile]
    prefix: str  # the folder that they lie in where they were handed in, with a final slash, or empty
    is_bounded: bool  # whether they are few and small enough to be read
    findings: tuple[SubmissionFinding, ...]

    @property
    def size(self) -> int:
        """Bytes in all files, as listed."""
        return sum(file.size for file in self.files.values())


def select(listing: HandInListing) -> SelectedFiles:
    """Choose the files of a submission and give them their names in it."""
    findings = list(listing.findings)
    named: list[tuple[str, HandInFile]] = []
    for file in listing.files:
        name = file.name.removeprefix("./")
        if fault := escape_fault(name):
            findings.append(error(file.name, fault, "unsafe-path"))
        else:
            named.append((name, file))
    ignored: dict[str, str] = {}  # paths that are no part of the submission, and whose they are
    for name, _ in named:
        if part := left_out(name):
            ignored[part[0]] = f"of {part[1]}"
        elif name.endswith(f"/{VENV_FILE}"):
            ignored[posixpath.dirname(name)] = "a virtual environment; requirements.txt lists what the program needs"
    findings += [note(path, f"was left out ({owner})") for path, owner in ignored.items()]
    named = [(name, file) for name, file in named if not _lies_in(name, ignored)]
    folder = posixpath.commonpath([posixpath.dirname(name) for name, _ in named]) if named else ""  # of all the files
    prefix = f"{folder}/" if folder else ""
    if prefix:
        findings.append(note(prefix, "holds everything; its contents were taken"))
    named = sorted(((name.removeprefix(prefix), file) for name, file in named), key=lambda each: each[0])
    if not named and not findings:
        findings.append(error("", "holds no files", "no-files"))
    faults = [error(name, fault, "file-name") for name, _ in named if (fault := name_fault(name))]
    faults += collisions(name for name, _ in named)
    bad = {fault.place for fault in faults}
    excess = []
    if len(named) > MAX_FILES:
        text = f"has {len(named)} files; {MAX_FILES} are allowed. Put many small ones into one"
        excess.append(error("", text, "too-many-files"))
    if (size := sum(file.size for _, file in named)) > MAX_BYTES:
        excess.append(error("", _too_large(f"{size} bytes in all"), "too-large"))
    return SelectedFiles(
        files={name: file for name, file in named if not _lies_in(name, bad)},
        prefix=prefix,
        is_bounded=listing.is_readable and bool(named) and not excess,
        findings=(*findings, *faults, *excess),
    )


def copy_files(selected: SelectedFiles, target: Path) -> list[SubmissionFinding]:
    """Copy the selected files into an empty folder; return what went wrong, after which some are missing.

    No more bytes are written than are allowed, whatever the listing says.
    """
    left = MAX_BYTES
    for name, listed in selected.files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                for chunk in listed.chunks():
                    left -= len(chunk)
                    if left < 0:
                        return [error("", _too_large("more bytes than listed"), "too-large")]
                    file.write(chunk)
        except HandInError as fault:
            return [error(name, str(fault), "unreadable")]
    return []


def _lies_in(name: str, paths: Iterable[str]) -> bool:
    return any(path in paths for path in with_parents(name))


def _too_large(amount: str) -> str:
    return f"has {amount}; {MAX_BYTES} (1 GB) are allowed with all data. Leave out what the program does not read"
