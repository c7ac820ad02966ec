"""What git knows of the competition's folder: the commit, what differs from it, and what folders held before."""

import hashlib
import io
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

RECENT_COMMITS = 20  # how far back a folder's earlier contents are looked for


@dataclass(frozen=True)
class GitState:
    """The commit, and the paths that differ from it or are not in it; `commit` None and why if there is none."""

    commit: str | None
    changed: tuple[str, ...]
    reason: str | None = None

    @property
    def dirty(self) -> bool:
        """Whether anything differs from the commit."""
        return bool(self.changed)


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
        commit = self._run("rev-parse", "--verify", "--quiet", "HEAD")
        if commit is None:
            return GitState(None, (), "git, but no commit yet")
        entries = _names(self._run("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", "--", "."))
        return GitState(commit.decode().strip(), tuple(sorted(entry[3:] for entry in entries)))

    def earlier(self, folder: str) -> Iterator[dict[str, str]]:
        """Yield the MD5 of each file below a folder, by relative path, for the last commits that changed the folder."""
        listed = self._run("log", f"-{RECENT_COMMITS}", "--format=%H", "HEAD", "--", folder)
        for commit in (listed or b"").decode().split():
            yield self._tree(commit, folder)

    def _tree(self, commit: str, folder: str) -> dict[str, str]:
        found = {}
        for entry in _names(self._run("ls-tree", "-r", "-z", commit, "--", f"{folder}/")):
            meta, _, path = entry.partition("\t")
            _, kind, blob = meta.split()
            if kind == "blob":
                found[path.removeprefix(folder + "/")] = self._blob_md5(blob)
        return found

    def _blob_md5(self, blob: str) -> str:
        if blob not in self._md5s:
            with subprocess.Popen(self._words("cat-file", "blob", blob), stdout=subprocess.PIPE, env=_plain()) as run:
                self._md5s[blob] = hashlib.file_digest(cast("io.BufferedReader", run.stdout), _md5).hexdigest()
        return self._md5s[blob]

    def _run(self, *words: str) -> bytes | None:
        """Return what git prints, None if it fails or is not installed."""
        try:
            run = subprocess.run(self._words(*words), capture_output=True, check=False, env=_plain())
        except OSError:
            return None
        return run.stdout if run.returncode == 0 else None

    def _words(self, *words: str) -> list[str]:
        return ["git", "-C", str(self.root), "--literal-pathspecs", *words]


def _md5() -> "hashlib._Hash":
    return hashlib.md5(usedforsecurity=False)


def _plain() -> dict[str, str]:
    """Return the environment without git's own variables (a hook sets them), reading only."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith("GIT_")},
        "GIT_OPTIONAL_LOCKS": "0",
    }


def _names(output: bytes | None) -> list[str]:
    return [os.fsdecode(each) for each in (output or b"").split(b"\0") if each]
