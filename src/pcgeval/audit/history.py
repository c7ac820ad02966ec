"""Which file of a folder differs from what it was: dvc.lock holds one hash a folder, so its old list must be found.

The list is in DVC's cache for what a stage made, in git for what is committed; failing both, a single file that was
added is found by leaving out each in turn.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pcgeval.audit.git import Git
from pcgeval.audit.pipeline import Pipeline
from pcgeval.audit.workspace import Listing, folder_md5

_MOST_TRIED = 3000  # files of a folder in which a single added one is searched; each try hashes the whole list


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    relpath: str


_MANIFEST = TypeAdapter(list[_Entry])


@dataclass(frozen=True)
class Difference:
    """The files of a folder, by relative path, that are not as they were."""

    changed: tuple[str, ...]
    missing: tuple[str, ...]
    added: tuple[str, ...]


class History:
    """Finds what a folder held when DVC hashed it."""

    def __init__(self, pipeline: Pipeline, git: Git) -> None:
        """Look in DVC's cache and in git."""
        self._pipeline = pipeline
        self._git = git

    def difference(self, now: Listing, md5: str, files: int | None) -> Difference | None:
        """Return how a folder differs from the one with this hash; None if that cannot be told.

        Args:
            now: The folder as it is.
            md5: DVC's hash of the folder as it was.
            files: How many files it had then, if known.
        """
        present = now.by_name()
        for before in self._candidates(now.path, present, md5, files):
            if folder_md5(before) == md5:
                return compare(before, present)
        return None

    def _candidates(
        self, folder: str, present: dict[str, str], md5: str, files: int | None
    ) -> Iterator[Mapping[str, str]]:
        manifest = read_manifest(cache_path(self._pipeline.cache, md5))
        if manifest is not None:
            yield manifest
        for committed in self._git.earlier(folder):
            place = self._git.root / folder
            yield {name: each for name, each in committed.items() if not self._pipeline.ignores(place / name)}
        if files is not None and files == len(present) - 1 and len(present) <= _MOST_TRIED:
            for left_out in present:
                yield {name: each for name, each in present.items() if name != left_out}


def compare(before: Mapping[str, str], now: Mapping[str, str]) -> Difference:
    """Return how two lists of files differ."""
    return Difference(
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
