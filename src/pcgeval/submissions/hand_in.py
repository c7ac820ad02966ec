"""The files that are handed in, as a folder or a zip file, and those of them that make up the submission."""

import os
import posixpath
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISLNK, S_ISREG
from tempfile import TemporaryDirectory

from pcgeval.core.archives import unpack
from pcgeval.core.errors import PcgevalError
from pcgeval.core.untrusted import open_regular, walk
from pcgeval.submissions.findings import SubmissionFinding, error, note
from pcgeval.submissions.names import MAX_DEPTH, VENV_FILE, collisions, left_out, name_fault, with_parents

MAX_FILES = 10_000
MAX_BYTES = 2**30  # the competition's rule: a program has at most 1 GB with all its data
_MAX_ENTRIES = 4 * MAX_FILES  # with the folders and with what is left out


class HandInError(PcgevalError):
    """A path is neither a folder nor a zip file."""


@dataclass(frozen=True)
class SelectedFiles:
    """The files of a submission, and what is wrong with what was handed in.

    Files whose names cannot be stored are missing, so that the others can be checked all the same.

    Attributes:
        folder: Where they lie: the folder that was handed in, or the one in it that holds everything.
        sizes: Bytes by name, relative to the folder, with forward slashes and in the order of the names.
        is_bounded: Whether they are few and small enough to be read.
        findings: What is wrong, and what was left out.
    """

    folder: Path
    sizes: dict[str, int]
    is_bounded: bool
    findings: tuple[SubmissionFinding, ...]


@contextmanager
def opened(path: Path) -> Iterator[Path]:
    """Return the folder that was handed in; a zip file is unpacked until the end of the block.

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
        unpack(path, Path(folder, path.stem), max_files=_MAX_ENTRIES, max_bytes=MAX_BYTES)
        yield Path(folder, path.stem)


def select(folder: Path) -> SelectedFiles:
    """Choose the files of a submission in a folder; no link is followed, and what is left out is not entered."""
    sizes, findings = _list(folder)
    top = posixpath.commonpath([posixpath.dirname(name) for name in sizes]) if sizes else ""  # of all the files
    if top:
        findings.append(note(f"{top}/", "holds everything; its contents were taken"))
        sizes = {name.removeprefix(f"{top}/"): size for name, size in sizes.items()}
    if not sizes and not findings:
        findings.append(error("", "holds no files", "no-files"))
    faults = [error(name, fault, "file-name") for name in sizes if (fault := name_fault(name))]
    faults += collisions(sizes)
    excess = []
    if len(sizes) > MAX_FILES:
        text = f"has {len(sizes)} files; {MAX_FILES} are allowed. Put many small ones into one"
        excess.append(error("", text, "too-many-files"))
    if (size := sum(sizes.values())) > MAX_BYTES:
        text = f"has {size} bytes; {MAX_BYTES} (1 GB) are allowed with all data. Leave out what is not read"
        excess.append(error("", text, "too-large"))
    bad = {fault.place for fault in faults}
    return SelectedFiles(
        folder=folder / top,
        sizes={name: size for name, size in sizes.items() if not _lies_in(name, bad)},
        is_bounded=bool(sizes) and not excess,
        findings=(*findings, *faults, *excess),
    )


def copy_files(selected: SelectedFiles, target: Path) -> None:
    """Copy the selected files into a folder.

    Raises:
        UntrustedFileError: A file has become something else since it was listed, or cannot be read.
    """
    for name in selected.sizes:
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with open_regular(selected.folder / name) as source, place.open("xb") as copy:
            shutil.copyfileobj(source, copy)


def _list(folder: Path) -> tuple[dict[str, int], list[SubmissionFinding]]:
    """Return the sizes of the regular files below a folder by name, in order, and what is wrong or left out."""

    def is_entered(name: str) -> bool:
        return left_out(name) is None and not os.path.lexists(folder / name / VENV_FILE)

    sizes: dict[str, int] = {}
    findings: list[SubmissionFinding] = []
    inodes: dict[tuple[int, int, int], list[str]] = {}  # the names here of each file that has several anywhere
    for entry in walk(folder, limit=_MAX_ENTRIES, depth=MAX_DEPTH, enter=is_entered):
        name, status = entry.name, entry.status
        if part := left_out(name):
            findings.append(note(part[0], f"was left out (of {part[1]})"))
        elif entry.is_folder:
            text = "was left out (a virtual environment; requirements.txt lists what the program needs)"
            findings.append(note(name, text))
        elif status is None:
            findings.append(error(name, f"{entry.fault}; remove it", "unreadable"))
        elif fault := _file_fault(folder / name, status):
            findings.append(error(name, fault, "not-a-file"))
        else:
            sizes[name] = status.st_size
            if status.st_nlink > 1:
                inodes.setdefault((status.st_dev, status.st_ino, status.st_nlink), []).append(name)
    for (_, _, links), names in inodes.items():
        if links > len(names):  # its other name may be that of somebody's secret
            text = "is a hard link to a file outside of the submission; copy the file"
            findings.append(error(min(names), text, "hard-link"))
    return {name: sizes[name] for name in sorted(sizes, key=os.fsencode)}, findings


def _file_fault(path: Path, status: os.stat_result) -> str | None:
    if S_ISLNK(status.st_mode):
        return "is a link; put the file itself there"
    if not S_ISREG(status.st_mode):
        return "is a pipe, a socket or a device; remove it"
    return None if os.access(path, os.R_OK) else "cannot be read; make it readable"


def _lies_in(name: str, paths: Iterable[str]) -> bool:
    return any(path in paths for path in with_parents(name))
