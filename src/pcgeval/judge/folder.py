"""Finding the files of a submission that a judge may be shown, whatever its author put into it.

Links are not followed and only regular files are offered, so that nothing outside the submission can be reached. What
is found does not depend on the order of the files on the disk.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISLNK, S_ISREG

from pcgeval.judge.reading import looks_binary
from pcgeval.rubric.record import RefusedFile

_CODE = (
    "bash c cc cfg cpp cu cuh cxx f90 go h hpp hs ini ipynb java jl js kt lua m ml php pl py pyx r rb rmd rs scala sh "
    "sql swift toml ts yaml yml"
)
_TABLES = "csv htm html json jsonl psv tex tsv xml yaml yml"
DOCUMENTS = frozenset({".md", ".txt", ".rst"})  # PaperBench's
CODE = frozenset(f".{name}" for name in _CODE.split())
TABLES = frozenset(f".{name}" for name in _TABLES.split())
_NAMES = {"readme": ".md", "makefile": ".sh", "dockerfile": ".sh"}  # files without a suffix, and what they are like
# not the submitter's own work; .pcgeval is where the judge keeps its own
SKIPPED_FOLDERS = frozenset({".git", ".pcgeval", ".venv", "venv", "node_modules", "__pycache__"})
MAX_OFFERED = 1000
MAX_VISITED = 100_000  # files and folders; also within one folder
MAX_DEPTH = 40
MAX_NAME = 300  # characters, as shown
MAX_REFUSED = 50  # of which the reason is kept


@dataclass(frozen=True)
class FoundFile:
    """A file that may be shown; `name` is how it is written for the judge, on one line and without any trick."""

    name: str
    path: Path
    suffix: str
    written: float  # seconds since 1970


@dataclass(frozen=True)
class Contents:
    """A submission's files: those that may be shown, and what else must be known about the rest.

    `fault` says why the submission itself cannot be read.
    """

    files: tuple[FoundFile, ...]
    refused: tuple[RefusedFile, ...] = ()
    fault: str | None = None


def shown_name(path: str) -> str:
    """Return a path as the judge sees it; one with unusual characters is quoted, with escapes instead of them."""
    plain = path.isprintable() and not any(character in path for character in "\"'`\\<>") and path == path.strip()
    return path if plain else json.dumps(path).replace("<", "\\u003c").replace(">", "\\u003e")


def contents(folder: Path) -> Contents:
    """Look through a submission: the files nearest to the top first, at most a thousand, sorted by name."""
    search = _Search(folder)
    try:
        found = sorted(search.files(), key=lambda file: os.fsencode(file.path))
    except OSError as error:  # of the submission's own folder
        return Contents((), fault=f"the submission cannot be read ({error.strerror})")
    return Contents(tuple(found), tuple(sorted(search.refused, key=lambda each: each.name)))


class _Search:
    """One walk through a submission, level by level, which also gathers what is refused."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.refused: list[RefusedFile] = []
        self._visited = 0

    def files(self) -> Iterator[FoundFile]:
        offered = 0
        for name, status in self._entries():
            if (suffix := _suffix(name)) is None:
                continue
            if (reason := self._fault(name, status)) is not None:
                self._refuse(name, reason)
            elif offered == MAX_OFFERED:
                self._refuse("(more files)", f"only the {MAX_OFFERED} nearest to the top are offered")
                return
            else:
                offered += 1
                yield FoundFile(shown_name(name), self._folder / name, suffix, status.st_mtime)

    def _entries(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yield all that is no folder, level by level, each level sorted; raises OSError for the top folder alone."""
        level = [""]
        for depth in range(MAX_DEPTH + 1):
            deeper: list[str] = []
            for folder in level:
                for name in self._listed(folder, is_top=depth == 0):
                    self._visited += 1
                    if self._visited > MAX_VISITED:
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
                    if len(names) > MAX_VISITED:  # which of them come first is the disk's whim: none is taken
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
            return "is binary" if looks_binary(self._folder / name) else None
        except OSError as error:
            return f"cannot be read ({error.strerror})"

    def _refuse(self, name: str, reason: str) -> None:
        if len(self.refused) < MAX_REFUSED:
            shown = shown_name(name)
            self.refused.append(
                RefusedFile(name=shown if len(shown) <= MAX_NAME else f"{shown[:MAX_NAME]}...", reason=reason)
            )


def _suffix(name: str) -> str | None:
    """Return the suffix in lower case that says what a file is; None for a kind that no judge is shown."""
    base = PurePosixPath(name).name.casefold()
    suffix = _NAMES.get(base) or PurePosixPath(base).suffix
    return suffix if suffix in DOCUMENTS | CODE | TABLES else None
