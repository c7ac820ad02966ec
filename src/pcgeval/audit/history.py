"""The commit, and earlier contents of folders, from git and from DVC's cache.

dvc.lock holds one hash a folder. To name the file that differs, the folder's old list of files is needed: DVC's cache
has it for what a stage made, git for what is committed; failing both, a single file that was added is found by leaving
out each in turn.
"""

import hashlib
import json
import os
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISLNK
from typing import Annotated
from zipfile import ZipFile

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pcgeval.audit.pipeline import Pipeline
from pcgeval.audit.workspace import Listing, folder_md5, is_below, printable
from pcgeval.core.errors import FileError
from pcgeval.core.files import MAX_BYTES
from pcgeval.core.layout import is_ignored
from pcgeval.core.untrusted import UntrustedFileError, read_bounded

_PLAIN = {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_REPLACE_OBJECTS": "1"}  # change nothing, and show what was committed
RECENT_COMMITS = 20  # how far back a folder's earlier contents are looked for
_MOST_TRIED = 3000  # files of a folder in which a single added one is searched; each try hashes the whole list


@dataclass(frozen=True)
class GitState:
    """The commit, and the paths that differ from it or are not in it; `commit` None and why if there is none.

    `date` is when it was committed, in UTC.
    """

    commit: str | None
    changed: tuple[str, ...]
    reason: str | None = None
    date: str | None = None


class Git:
    """The git repository around a folder, if there is one; every method answers without one too."""

    def __init__(self, root: Path) -> None:
        """Look for a repository around `root`; all paths are relative to `root`."""
        self.root = root
        self._md5s: dict[str, str] = {}
        self.tracked = frozenset(_names(self._run("ls-files", "-z")))

    def state(self) -> GitState:
        """Return the commit and what differs from it below the root."""
        inside = self._run("rev-parse", "--is-inside-work-tree")
        if inside is None:
            return GitState(None, (), "no git")
        head = self._run("log", "-1", "--format=%H %ct", "HEAD")
        if head is None:
            return GitState(None, (), "git, but no commit yet")
        commit, seconds = head.decode().split()
        date = datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        entries = _names(self._run("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", "."))
        prefix = os.fsdecode(self._run("rev-parse", "--show-prefix") or b"").strip()  # of the root in the repository
        changed = tuple(sorted(entry[3:].removeprefix(prefix) for entry in entries))
        return GitState(commit, changed, date=date)

    def uncommitted(self, paths: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield the files that are not as the last commit holds them, and in which way, in words that follow the name.

        Bytes are compared, whatever git was told of a file: `git status` does not look at one that is marked
        `skip-worktree` or `assume-unchanged`, and at none that is ignored. Such marked files are compared wherever they
        lie, all others only below `paths`. Nothing comes where there is no commit of the folder.
        """
        marks = {each[2:]: each[0] for each in _names(self._run("ls-files", "-v", "-z"))}
        marked = {path: mark for path, mark in marks.items() if mark == "S" or mark.islower()}
        committed: dict[str, str] = {}
        for entry in _names(self._run("ls-tree", "-r", "-z", "HEAD")):
            meta, _, path = entry.partition("\t")
            committed[path] = meta.split()[2]
        inside = {path for path in committed if any(is_below(path, each) for each in paths)}
        present = {path for each in paths for path in self._files(each)} if committed else set()
        for path in sorted(inside | present | (marked.keys() & committed.keys())):
            what = None
            if path not in committed:
                what = "is not in the last commit"
            elif not os.path.lexists(self.root / path):  # elsewhere it may be left out of a sparse checkout
                what = "is in the last commit and not here" if path in inside else None
            elif self._blob(path, len(committed[path])) != committed[path]:
                what = "is not as in the last commit"
            if what and path in marked:
                option = "skip-worktree" if marked[path] == "S" else "assume-unchanged"
                shown = shlex.quote(printable(path))
                what += f", and `git status` is told not to look: `git update-index --no-{option} {shown}` undoes that"
            if what:
                yield path, what

    def _files(self, path: str) -> Iterator[str]:
        """Yield a file, or the files below a folder that can be part of a hash, relative to the root."""
        place = self.root / path
        if not place.is_dir() and os.path.lexists(place):
            yield path
        for parent, folders, names in os.walk(place):
            folders[:] = [name for name in folders if not is_ignored(name)]
            yield from (Path(parent, name).relative_to(self.root).as_posix() for name in names if not is_ignored(name))

    def _blob(self, path: str, digits: int) -> str | None:
        """Return git's hash of a file as it is, without any filter; None if it cannot be read."""
        place = self.root / path
        try:
            content = os.fsencode(place.readlink()) if place.is_symlink() else read_bounded(place, MAX_BYTES)
        except (OSError, UntrustedFileError):
            return None
        algorithm = hashlib.sha1 if digits == 40 else hashlib.sha256
        return algorithm(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()

    def earlier(self, folder: str) -> Iterator[dict[str, str]]:
        """Yield the MD5 of each file below a folder, by relative path, for the last commits that changed the folder."""
        listed = self._run("log", f"-{RECENT_COMMITS}", "--format=%H", "HEAD", "--", folder)
        for commit in (listed or b"").decode().split():
            found = {}
            for entry in _names(self._run("ls-tree", "-r", "-z", commit, "--", f"{folder}/")):
                meta, _, path = entry.partition("\t")
                _, kind, blob = meta.split()
                if kind == "blob":
                    if blob not in self._md5s:
                        content = self._run("cat-file", "blob", blob) or b""
                        self._md5s[blob] = hashlib.md5(content, usedforsecurity=False).hexdigest()
                    found[path.removeprefix(folder + "/")] = self._md5s[blob]
            yield found

    def commit_of(self, revision: str) -> str | None:
        """Return the hash of the commit that a revision names; None if it names none."""
        if revision.startswith("-"):  # git would take it for an option
            return None
        found = self._run("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        return found.decode().strip() if found else None

    def export(self, commit: str, paths: Iterable[str], folder: Path) -> None:
        """Write the files of a commit below some paths into a folder; what is not there is left out, links too.

        Args:
            commit: Its hash.
            paths: Files and folders, relative to the root.
            folder: An empty folder.

        Raises:
            FileError: Git cannot make an archive of them.
        """
        there = [each for each in paths if self._run("ls-tree", "--name-only", "-z", commit, "--", each)]
        if not there:
            return
        archive = folder / ".archive.zip"
        options = ("--format=zip", "-0", f"--output={archive.resolve()}")
        if self._run("archive", *options, commit, "--", *there) is None:
            raise FileError(f"{commit}: git cannot archive {', '.join(there)}. Run `git fsck`.")
        with ZipFile(archive) as files:
            plain = [each for each in files.infolist() if not S_ISLNK(each.external_attr >> 16)]
            files.extractall(folder, plain)
        archive.unlink()

    def _run(self, *words: str) -> bytes | None:
        """Return what git prints, None if it fails or is not installed."""
        environment = {
            key: value for key, value in os.environ.items() if not key.startswith("GIT_")
        }  # a hook sets them
        command = ["git", "-C", str(self.root), "-c", "core.fsmonitor=false", "--literal-pathspecs", *words]
        try:
            run = subprocess.run(command, capture_output=True, check=False, env={**environment, **_PLAIN})
        except OSError:
            return None
        return run.stdout if run.returncode == 0 else None


def _names(output: bytes | None) -> list[str]:
    return [os.fsdecode(each) for each in (output or b"").split(b"\0") if each]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    relpath: str


_MANIFEST = TypeAdapter(list[_Entry])


@dataclass(frozen=True)
class FolderChange:
    """The files of a folder, by relative path, that are not as they were."""

    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


def folder_difference(pipeline: Pipeline, git: Git, now: Listing, md5: str, files: int | None) -> FolderChange | None:
    """Return how a folder differs from what it held when DVC hashed it; None if neither cache nor git tells.

    Args:
        pipeline: Where DVC's cache is, and what .dvcignore names.
        git: The repository whose last commits are looked through.
        now: The folder as it is.
        md5: DVC's hash of the folder as it was.
        files: How many files it had then, if known.
    """
    present = now.by_name()

    def candidates() -> Iterator[Mapping[str, str]]:
        if manifest := read_manifest(cache_path(pipeline.cache, md5)):
            yield manifest
        for committed in git.earlier(now.path):
            place = git.root / now.path
            yield {name: each for name, each in committed.items() if not pipeline.ignores(place / name)}
        if files is not None and files == len(present) - 1 and len(present) <= _MOST_TRIED:
            for left_out in present:
                yield {name: each for name, each in present.items() if name != left_out}

    before = next((each for each in candidates() if folder_md5(each) == md5), None)
    return None if before is None else compare(before, present)


def compare(before: Mapping[str, str], now: Mapping[str, str]) -> FolderChange:
    """Return how two lists of files differ."""
    return FolderChange(
        changed=tuple(sorted(name for name in before.keys() & now.keys() if before[name] != now[name])),
        missing=tuple(sorted(before.keys() - now.keys())),
        added=tuple(sorted(now.keys() - before.keys())),
    )


def cache_path(cache: Path, md5: str) -> Path:
    """Return where DVC's cache keeps an object: under the first two digits of its hash."""
    return cache / md5[:2] / md5[2:]


def read_manifest(path: Path) -> dict[str, str] | None:
    """Return the list of a folder's files from the cache; None if it is not there or is no such list."""
    try:
        entries = _MANIFEST.validate_python(json.loads(path.read_bytes()))
    except (OSError, ValidationError, ValueError, RecursionError):
        return None
    return {each.relpath: each.md5 for each in entries}
