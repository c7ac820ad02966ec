"""The files of a submission that a judge may be shown, found and read whatever their author put there.

Links are not followed and only regular files are read, in bounded memory and never waiting for a pipe, so that nothing
outside the submission can be reached. The result does not depend on the order of the files on the disk.
"""

import codecs
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISLNK, S_ISREG

from pcgeval.rubric.record import RefusedFile

_CODE = (
    "bash c cc cfg cpp cu cuh cxx f90 go h hpp hs ini ipynb java jl js kt lua m ml php pl py pyx r rb rmd rs scala sh "
    "sql swift toml ts yaml yml"
)
_TABLES = "csv htm html json jsonl psv tex tsv xml yaml yml"
DOCUMENTS = frozenset({".md", ".txt", ".rst"})  # PaperBench's
CODE = frozenset(f".{name}" for name in _CODE.split())
TABLES = frozenset(f".{name}" for name in _TABLES.split())
_NAMES = {"readme": ".md", "makefile": ".sh", "dockerfile": ".sh"}  # files without a suffix, and their kind
# not the submitter's own work; .pcgeval is where pcgeval keeps its own
SKIPPED_FOLDERS = frozenset({".git", ".pcgeval", ".venv", "venv", "node_modules", "__pycache__"})
MAX_OFFERED = 1000
MAX_VISITED = 100_000  # files and folders; also within one folder
MAX_DEPTH = 40
MAX_NAME = 300  # characters, as shown
MAX_REFUSED = 50  # of which the reason is kept
MAX_HEAD = 300_000  # bytes of a file
MAX_TAIL = 100_000
_SNIFFED = 4096
_CONTINUATION = bytes(range(0x80, 0xC0))  # the later bytes of a character in UTF-8
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# keep tabs and line ends alone of the control characters; an escape begins a colour or a movement
_CONTROLS = re.compile(r"\x1b\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@dataclass(frozen=True)
class SubmissionFile:
    """A file that may be shown; `name` is as the judge sees it, on one line and free of tricks."""

    name: str
    path: Path
    suffix: str
    written: float  # seconds since 1970


@dataclass(frozen=True)
class SubmissionFiles:
    """The files of a submission that may be shown, and the others; `fault` says why the folder cannot be read."""

    files: tuple[SubmissionFile, ...]
    refused: tuple[RefusedFile, ...] = ()
    fault: str | None = None


@dataclass(frozen=True)
class FileText:
    """A file's text, and a note if it was cut, its encoding is broken, or it cannot be read."""

    text: str
    note: str = ""


def list_files(folder: Path) -> SubmissionFiles:
    """List the files of a submission: those nearest to the top, at most a thousand, sorted by name."""
    search = _Search(folder)
    try:
        found = sorted(search.files(), key=lambda file: os.fsencode(file.path))
    except OSError as error:  # of the submission's own folder
        return SubmissionFiles((), fault=f"the submission cannot be read ({error.strerror})")
    return SubmissionFiles(tuple(found), tuple(sorted(search.refused, key=lambda each: each.name)))


def shown_name(path: str) -> str:
    """Return a path as the judge sees it; one with unusual characters is quoted, with escapes instead of them."""
    plain = path.isprintable() and not any(character in path for character in "\"'`\\<>") and path == path.strip()
    return path if plain else json.dumps(path).replace("<", "\\u003c").replace(">", "\\u003e")


def read_file(path: Path) -> FileText:
    """Read a file's text, of a huge one the beginning and the end; of a notebook, the sources of its cells."""
    try:
        head, tail, left_out = _ends(path, MAX_HEAD, MAX_TAIL)
    except OSError as error:
        return FileText("", f"cannot be read ({error.strerror})")
    encoding = "utf-16" if head.startswith(_UTF16) else "utf-8-sig"
    text = codecs.getincrementaldecoder(encoding)("replace").decode(head, final=not left_out)
    notes = []
    if left_out:
        # the end of a UTF-16 file cannot be decoded without its byte order
        end = tail.lstrip(_CONTINUATION).decode("utf-8", "replace") if encoding == "utf-8-sig" else ""
        text += f"\n[... {left_out} bytes left out ...]\n{end}"
        notes.append(f"{left_out} bytes in the middle left out")
    if broken := text.count("\ufffd"):
        notes.append(f"{broken} characters are not {encoding.removesuffix('-sig').upper()}")
    if path.suffix.casefold() == ".ipynb" and not left_out:
        text = _notebook(text)
    return FileText(clean(text), "; ".join(notes))


def clean(text: str) -> str:
    """Return text with one kind of line end and without control characters and terminal colours."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


class _Search:
    """One walk through a submission, level by level, which also collects the refused files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.refused: list[RefusedFile] = []

    def files(self) -> Iterator[SubmissionFile]:
        offered = 0
        for name, status in self._entries():
            base = PurePosixPath(name).name.casefold()
            suffix = _NAMES.get(base) or PurePosixPath(base).suffix
            if suffix not in DOCUMENTS | CODE | TABLES:
                continue
            if (reason := self._fault(name, status)) is not None:
                self._refuse(name, reason)
            elif offered == MAX_OFFERED:
                self._refuse("(more files)", f"only the {MAX_OFFERED} nearest to the top are offered")
                return
            else:
                offered += 1
                yield SubmissionFile(shown_name(name), self._folder / name, suffix, status.st_mtime)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield everything but folders, level by level, each sorted; raises OSError for the top folder alone."""
        level, visited = [""], 0
        for depth in range(MAX_DEPTH + 1):
            deeper: list[str] = []
            for folder in level:
                for name in self._listed(folder, is_top=depth == 0):
                    visited += 1
                    if visited > MAX_VISITED:
                        self._refuse("(more files)", f"only {MAX_VISITED} files and folders were looked at")
                        return
                    try:
                        status = (self._folder / name).lstat()
                    except OSError as error:
                        self._refuse(name, f"cannot be read ({error.strerror})")
                        continue
                    if not S_ISDIR(status.st_mode):
                        yield name, status
                    elif PurePosixPath(name).name not in SKIPPED_FOLDERS:
                        deeper.append(name)
            level = deeper
        for folder in level:
            self._refuse(folder, f"lies deeper than {MAX_DEPTH} folders")

    def _listed(self, folder: str, *, is_top: bool) -> list[str]:
        names: list[str] = []
        try:
            with os.scandir(self._folder / folder) as entries:
                for entry in entries:
                    names.append(f"{folder}/{entry.name}" if folder else entry.name)
                    if len(names) > MAX_VISITED:  # their order is the disk's, so a choice would not be reproducible
                        self._refuse(folder or ".", f"the folder has more than {MAX_VISITED} entries")
                        return []
        except OSError as error:
            if is_top:
                raise
            self._refuse(folder, f"the folder cannot be read ({error.strerror})")
        return sorted(names, key=os.fsencode)

    def _fault(self, name: str, status: os.stat_result) -> str | None:
        if S_ISLNK(status.st_mode):
            return "is a link, which is not followed"
        if not S_ISREG(status.st_mode):
            return "is no regular file"
        if len(shown_name(name)) > MAX_NAME:
            return f"has a name of more than {MAX_NAME} characters"
        try:
            start, _, _ = _ends(self._folder / name, _SNIFFED, 0)
        except OSError as error:
            return f"cannot be read ({error.strerror})"
        return "is binary" if b"\0" in start and not start.startswith(_UTF16) else None

    def _refuse(self, name: str, reason: str) -> None:
        if len(self.refused) < MAX_REFUSED:
            shown = shown_name(name)
            name = shown if len(shown) <= MAX_NAME else f"{shown[:MAX_NAME]}..."
            self.refused.append(RefusedFile(name=name, reason=reason))


def _ends(path: Path, head: int, tail: int) -> tuple[bytes, bytes, int]:
    """Return at most so many bytes of a regular file's beginning and end, and how many lie between."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not S_ISREG(status.st_mode):
            raise OSError(0, "no regular file")
        if status.st_size <= head + tail:
            return file.read(head + tail), b"", 0
        start = file.read(head)
        file.seek(status.st_size - tail)
        return start, file.read(tail), status.st_size - head - tail


def _notebook(text: str) -> str:
    """Return the sources of a notebook's cells; the text as it is if it is none."""
    try:
        notebook = json.loads(text)
    except (ValueError, RecursionError):
        return text
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        return text
    sources = [cell.get("source") for cell in cells if isinstance(cell, dict)]
    lines = [source if isinstance(source, list) else [source] for source in sources]
    return "\n\n".join("".join(line for line in each if isinstance(line, str)) for each in lines)
