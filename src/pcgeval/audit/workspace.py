"""The files as they are now, each read once in blocks and hashed afresh.

DVC's hash of a file is the MD5 of its bytes, and its hash of a folder the MD5 of a JSON list of `{md5, relpath}` sorted
by relpath, with `.dir` behind it.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pcgeval.audit.pipeline import Walk
from pcgeval.core.untrusted import UntrustedFileError, open_regular, printable_name

_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileHash:
    """One file: its path relative to the root and its hashes."""

    path: str
    md5: str
    sha256: str


@dataclass(frozen=True)
class PathProblem:
    """Something that is not a readable regular file or folder: why, and what to do."""

    path: str
    reason: str  # goes on after "<path>: "
    remedy: str
    hides: bool  # whether the hash of a folder that holds it is unknown


@dataclass(frozen=True)
class Listing:
    """A file, or all files below a folder in order of their paths; `exists` is whether there is anything at all."""

    path: str
    exists: bool
    is_folder: bool
    files: tuple[FileHash, ...]
    problems: tuple[PathProblem, ...]

    @property
    def md5(self) -> str | None:
        """DVC's hash of the file or folder; None if it is not there or not all of it can be read."""
        if not self.exists or any(each.hides for each in self.problems):
            return None
        return folder_md5(self.by_name()) if self.is_folder else self.files[0].md5

    def by_name(self) -> dict[str, str]:
        """Return the MD5 of each file by its path relative to the folder."""
        return {each.path.removeprefix(self.path + "/"): each.md5 for each in self.files}


class Workspace:
    """The competition's folder; remembers what it has hashed."""

    def __init__(self, root: Path, walk: Walk) -> None:
        """Look at a folder; `walk` is os.walk without what .dvcignore names."""
        self.root = root.resolve()
        self._walk = walk
        self._listings: dict[str, Listing] = {}
        self._files: dict[str, FileHash | PathProblem] = {}

    @property
    def hashed(self) -> int:
        """How many files were hashed so far."""
        return len(self._files)

    def listing(self, path: str) -> Listing:
        """Return what is at a path now, with every file hashed."""
        if path not in self._listings:
            place = self.root / path
            exists, is_folder, found = os.path.lexists(place), place.is_dir(), list[FileHash | PathProblem]()
            if is_folder:
                found += [*([_link(path)] if place.is_symlink() else []), *self._hidden(place)]
                found += [
                    each for at, _, names in self._walk(place) for name in names for each in self._file(at / name)
                ]
            elif exists:
                found += self._file(place)
            files = sorted((each for each in found if isinstance(each, FileHash)), key=lambda each: each.path)
            problems = tuple(each for each in found if isinstance(each, PathProblem))
            self._listings[path] = Listing(path, exists, is_folder, tuple(files), problems)
        return self._listings[path]

    def names(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder, relative to the root, without reading them."""
        for place, _, files in self._walk(self.root / folder):
            yield from (self._relative(place / name) for name in files)

    def _hidden(self, folder: Path) -> Iterator[PathProblem]:
        """Yield what keeps DVC from seeing files: folders that are links or DVC workspaces, and rules for ignoring."""
        for parent, folders, files in os.walk(folder):
            for name in sorted(folders + files):
                place = Path(parent, name)
                if name in {".dvc", ".dvcignore"}:
                    yield PathProblem(self._relative(place), "hides files from DVC", "Delete it.", hides=True)
                elif name in folders and place.is_symlink():
                    reason = "is a link to a folder, which DVC does not look into"
                    yield PathProblem(self._relative(place), reason, "Put the folder itself there.", hides=False)

    def _file(self, place: Path) -> Iterator[FileHash | PathProblem]:
        path = self._relative(place)
        if place.is_symlink():
            yield _link(path)
        if path not in self._files:
            self._files[path] = hash_file(place, path)
        yield self._files[path]

    def _relative(self, place: Path) -> str:
        return place.relative_to(self.root).as_posix()


def _link(path: str) -> PathProblem:
    return PathProblem(path, "is a link where the bytes themselves should be", "Put the bytes there.", hides=False)


def hash_file(place: Path, path: str) -> FileHash | PathProblem:
    """Hash a file, which may be a link to one."""
    md5, sha256 = hashlib.md5(usedforsecurity=False), hashlib.sha256()
    try:
        with open_regular(place, follow_link=True) as file:
            while block := file.read(_BLOCK):
                md5.update(block)
                sha256.update(block)
    except UntrustedFileError as error:
        return PathProblem(path, error.reason, "Check what it is and its permissions.", hides=True)
    return FileHash(path, md5.hexdigest(), sha256.hexdigest())


def folder_md5(md5s: Mapping[str, str]) -> str:
    """Return DVC's hash of a folder that holds files with these MD5s by relative path."""
    entries = [{"md5": md5s[name], "relpath": name} for name in sorted(md5s)]
    return hashlib.md5(json.dumps(entries, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is a folder itself or lies below it."""
    return path == folder or path.startswith(folder + "/")


def overlap(one: str, other: str) -> bool:
    """Return whether one of two paths contains the other."""
    return is_below(one, other) or is_below(other, one)


def printable(text: str) -> str:
    """Return text with escapes for backslashes and for what cannot be printed, so that no other text looks the same."""
    return printable_name(text.replace("\\", r"\\"), max(1, 2 * len(text)))
