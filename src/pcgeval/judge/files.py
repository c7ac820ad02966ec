"""The files of a submission as a judge reads them, and the log of reproduce.sh, condensed.

Both are hostile input. The log loses time stamps, progress bars and repeats, and keeps its values.
"""

import codecs
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from stat import S_ISLNK

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.core.text import truncate
from pcgeval.core.untrusted import FolderEntry, UntrustedFileError, open_regular, read_bytes, walk
from pcgeval.rubric.grades import RefusedFile
from pcgeval.rubric.tree import RESULT_ANALYSIS, SUBTREE, TaskNode

_CODE = (  # configuration among it, as in PaperBench
    "bash c cc cfg conf config cpp cu cuh cxx f90 go h hpp hs hxx ini ipynb java jl js json kt lua m ml php pl py pyx "
    "r rb rmd rs scala sh sql swift toml ts yaml yml"
)
_TABLES = "arff csv htm html json jsonl libsvm psv svm tex toml tsv xml yaml yml"
DOCUMENTS = frozenset({".md", ".txt", ".rst"})  # PaperBench's
CODE = frozenset(f".{name}" for name in _CODE.split())
TABLES = frozenset(f".{name}" for name in _TABLES.split())
_NAMES = {"readme": ".md", "makefile": ".sh", "dockerfile": ".sh"}  # files without a suffix, and their kind
# folders with these in their names are not offered, as in PaperBench; .pcgeval is where pcgeval keeps its own
SKIPPED_FOLDERS = (".egg-info", ".env", ".git", ".pcgeval", "__pycache__", "node_modules", "venv", "wandb")
MAX_OFFERED = 1000  # documents, and as many programs, and as many tables
MAX_VISITED = 100_000  # files and folders; also within one folder
MAX_NAME = 300  # characters, as shown
MAX_REFUSED = 50  # of which the reason is kept
MAX_HEAD = 300_000  # bytes of a file
MAX_TAIL = 100_000
MAX_NOTEBOOK = 64_000_000  # bytes, most of them pictures
_SNIFFED = 4096
_CONTINUATION = bytes(range(0x80, 0xC0))  # the later bytes of a character in UTF-8
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# control characters but for tabs and line ends; an escape begins a colour or a movement
_CONTROLS = re.compile(r"\x1b\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

MAX_ALIKE = 50  # lines of a log that differ in their numbers alone
MAX_LINE = 2000  # characters; of a longer line the beginning and the end are kept
# 2024-05-01 12:00:00,123 or 2024-05-01T12:00:00Z or [12:00:00], perhaps several, at the beginning of a line
_TIME = r"[0-9]{1,2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_STAMP = re.compile(
    rf"^(?:[\[(]?(?:[0-9]{{4}}[-/][0-9]{{2}}[-/][0-9]{{2}}[T ]{{1,2}})?{_TIME}[\])]?[ \t:|-]{{0,4}}){{1,4}}"
)
_NUMBERS = re.compile(r"[0-9][0-9.,]*(?:e[-+]?[0-9]+)?")
# 45%|####  | 9/20 or 9/20 [====>.....] or a thin bar: what common tools print once a step; a table has none of these
_PROGRESS = re.compile(
    r"[0-9]%\|[^|]{0,200}\| {0,9}[0-9][0-9.kMG]{0,12}/|[0-9]/[0-9]{1,12} {1,4}\[[=>.\s]{5,200}\]|[━█]{5}"
)


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
    """A file's text, and a note if it was cut, is not UTF-8, or cannot be read."""

    text: str
    note: str = ""


def list_files(folder: Path) -> SubmissionFiles:
    """List the files of a submission, sorted by name: of each kind those nearest to the top, at most a thousand."""
    try:
        os.scandir(folder).close()
    except OSError as error:
        return SubmissionFiles((), fault=f"the submission cannot be read ({error.strerror})")
    offered: dict[str, list[SubmissionFile]] = {"documents": [], "programs": [], "tables": []}
    refused: list[RefusedFile] = []
    for entry in walk(folder, limit=MAX_VISITED, enter=_is_entered):
        base = PurePosixPath(entry.name.casefold())
        suffix = _NAMES.get(base.name) or base.suffix
        if entry.is_folder or not (entry.fault or suffix in DOCUMENTS | CODE | TABLES):
            continue
        kind = "documents" if suffix in DOCUMENTS else "programs" if suffix in CODE else "tables"
        if not entry.fault and len(offered[kind]) > MAX_OFFERED:
            continue
        if reason := entry.fault or _fault(folder, entry):
            name = shown_name(entry.name) or "(more files)"
            refused.append(RefusedFile(name=truncate(name, MAX_NAME + 3), reason=reason))
        elif entry.status is not None:
            file = SubmissionFile(shown_name(entry.name), folder / entry.name, suffix, entry.status.st_mtime)
            offered[kind].append(file)
    for kind, files in offered.items():  # each for itself, so that many results hide no program
        if len(files) > MAX_OFFERED:
            reason = f"only the {MAX_OFFERED} nearest to the top are offered"
            refused.insert(0, RefusedFile(name=f"(more {kind})", reason=reason))
    shown = [file for files in offered.values() for file in files[:MAX_OFFERED]]
    shown.sort(key=lambda file: os.fsencode(file.path))
    return SubmissionFiles(tuple(shown), tuple(sorted(refused[:MAX_REFUSED], key=lambda file: file.name)))


def _is_entered(folder: str) -> bool:
    base = folder.rpartition("/")[2]
    return not any(name in base for name in SKIPPED_FOLDERS)


def _fault(folder: Path, entry: FolderEntry) -> str:
    """Return why a file is not shown, or nothing."""
    if not entry.is_file:
        is_link = entry.status is not None and S_ISLNK(entry.status.st_mode)
        return "is a link, which is not followed" if is_link else "is no regular file"
    if len(shown_name(entry.name)) > MAX_NAME:
        return f"has a name of more than {MAX_NAME} characters"
    try:
        start = read_bytes(folder / entry.name, _SNIFFED, cut=True)
    except UntrustedFileError as error:
        return error.reason
    return "is binary" if b"\0" in start and not start.startswith(_UTF16) else ""


def offered(files: tuple[SubmissionFile, ...], leaf: TaskNode, run: PaperEvidence | None) -> tuple[SubmissionFile, ...]:
    """Return the files that a leaf of its category may be judged by.

    Development and Execution are judged by documents and code, Result Analysis by documents and by tables that
    reproduce.sh wrote, and a node that stands for several criteria by all of these (PaperBench). An entry in the
    competition, which has no run, is judged by all its files.
    """
    if run is None:
        return files
    category = leaf.task_category
    return tuple(
        file
        for file in files
        if file.suffix in DOCUMENTS
        or (file.suffix in CODE and category != RESULT_ANALYSIS)
        or (file.suffix in TABLES and category in (RESULT_ANALYSIS, SUBTREE) and may_be_made_by(run, file))
    )


def may_be_made_by(run: PaperEvidence, file: SubmissionFile) -> bool:
    """Return whether reproduce.sh may have written a file: it ran, and the file is no older than that run."""
    return run.log is not None and file.written >= run.started_at


def shown_name(path: str) -> str:
    """Return a path as the judge sees it; one with unusual characters is quoted, with escapes instead of them."""
    plain = path.isprintable() and not any(character in path for character in "\"'`\\<>") and path == path.strip()
    return path if plain else json.dumps(path).replace("<", "\\u003c").replace(">", "\\u003e")


def read_file(path: Path) -> FileText:
    """Read a file's text, of a huge one the beginning and the end; of a notebook, the sources of its cells.

    A file that is not UTF-8 is read as Latin-1, as in PaperBench.
    """
    is_notebook = path.suffix.casefold() == ".ipynb"
    tail, left_out = b"", 0
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            most = MAX_NOTEBOOK if is_notebook else MAX_HEAD + MAX_TAIL
            head = file.read(most if size <= most else MAX_HEAD)
            if size > most:
                file.seek(size - MAX_TAIL)
                tail, left_out = file.read(MAX_TAIL), size - MAX_HEAD - MAX_TAIL
    except UntrustedFileError as error:
        return FileText("", error.reason)
    notes = []
    try:
        decoder = codecs.getincrementaldecoder("utf-16" if head.startswith(_UTF16) else "utf-8-sig")()
        text, end = decoder.decode(head, final=not left_out), tail.lstrip(_CONTINUATION).decode()
    except UnicodeDecodeError:
        text, end = head.decode("latin-1"), tail.decode("latin-1")
        notes.append("is not UTF-8, and is read as Latin-1")
    if is_notebook and not left_out:
        text = _notebook(text)
        if left_out := max(0, len(text) - MAX_HEAD - MAX_TAIL):
            text, end = text[:MAX_HEAD], text[-MAX_TAIL:]
    if left_out:
        text = f"{text}\n[... {left_out} bytes left out ...]\n{end}"
        notes.insert(0, f"{left_out} bytes in the middle left out")
    return FileText(clean(text), "; ".join(notes))


def clean(text: str) -> str:
    """Return text with one kind of line end and without control characters and terminal colours."""
    return _CONTROLS.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _notebook(text: str) -> str:
    """Return the sources of a notebook's cells; the text as it is if it is none."""
    try:
        return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
    except (ValueError, RecursionError, TypeError, KeyError):
        return text


def condensed(log: str) -> str:
    """Return a log without the times of its lines, with only the last of adjacent progress, and repeats counted.

    Lines that differ in their numbers alone, such as those of epochs, are thinned evenly, so that a curve stays one. A
    line that was overwritten in place, as with a carriage return, is kept as it was last. The result depends on the
    log alone, and takes linear time.
    """
    lines = map(_line, log.replace("\r\n", "\n").split("\n"))
    without_progress: list[str] = []
    for is_progress, run in groupby(lines, key=lambda line: _PROGRESS.search(line) is not None):
        *earlier, last = run
        # of adjacent progress, what says that something is done, and the last line
        without_progress += [*(line for line in earlier if not is_progress or "100%" in line), last]
    shown: list[str] = []
    for line, repeats in groupby(without_progress):
        times = sum(1 for _ in repeats)
        shown += [line, f"[the line above {times} times]"] if times > 1 and line else [line]
    return "\n".join(_thinned(shown))


def _line(line: str) -> str:
    if not line:  # a hostile log may have millions
        return line
    line = line.rstrip("\r \t").rpartition("\r")[2]
    if len(line) > MAX_LINE:
        half = MAX_LINE // 2
        line = f"{line[:half]} [... {len(line) - 2 * half} characters left out ...] {line[-half:]}"
    return _STAMP.sub("", clean(line))


def _thinned(lines: list[str]) -> Iterator[str]:
    """Yield lines, of those that differ in their numbers alone at most fifty, evenly spread, the first and last too."""
    alike: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        alike.setdefault(_NUMBERS.sub("0", line), []).append(number)
    shown: set[int] = set()
    for places in alike.values():
        last, most = len(places) - 1, min(len(places), MAX_ALIKE)
        shown |= {places[number * last // max(most - 1, 1)] for number in range(most)}
    for is_shown, run in groupby(range(len(lines)), key=shown.__contains__):
        numbers = list(run)
        yield from (lines[at] for at in numbers) if is_shown else [f"[{len(numbers)} lines like these left out]"]
