"""Whether the bytes in DVC's cache are what their names say; the cache may be absent, as all can be computed again."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pcgeval.audit.findings import AGAIN, Finding, finding
from pcgeval.audit.history import cache_path, read_manifest
from pcgeval.audit.paths import printable
from pcgeval.audit.pipeline import Artifact, Pipeline
from pcgeval.audit.workspace import FileHash, folder_md5, hash_file


@dataclass(frozen=True)
class CacheCheck:
    """How many objects were looked for, and what was found."""

    objects: int
    faults: tuple[Finding, ...]
    notes: tuple[Finding, ...]


def check_cache(pipeline: Pipeline, root: Path) -> CacheCheck:
    """Hash every object of the cache that dvc.lock's outputs need; `root` is the competition's folder."""
    kept = [out for stage in pipeline.stages for out in stage.outs if out.cached and out.md5 is not None]
    needed = {md5: path for out in kept for md5, path in _objects(pipeline.cache, out)}
    faults, missing = [], 0
    for md5, path in sorted(needed.items()):
        place = cache_path(pipeline.cache, md5)
        if not place.exists() and not place.is_symlink():
            missing += 1
        elif not _intact(place, md5):
            shown = place.relative_to(root) if place.is_relative_to(root) else place
            message = f"the bytes kept for {printable(path)} are not those of their name. Delete that file and {AGAIN}."
            faults.append(finding("cache", shown.as_posix(), message))
    return CacheCheck(len(needed), tuple(faults), _note(missing, len(needed)))


def _objects(cache: Path, out: Artifact) -> Iterator[tuple[str, str]]:
    """Yield the hash and the path of an output's objects: for a folder its list of files, then each of them."""
    if out.md5 is None:
        return
    yield out.md5, out.path
    manifest = read_manifest(cache_path(cache, out.md5)) if out.is_folder else None
    if manifest is not None and folder_md5(manifest) == out.md5:
        for name, md5 in manifest.items():
            yield md5, f"{out.path}/{name}"


def _intact(place: Path, md5: str) -> bool:
    found = hash_file(place, str(place))
    return not place.is_symlink() and isinstance(found, FileHash) and found.md5 == md5.removesuffix(".dir")


def _note(missing: int, needed: int) -> tuple[Finding, ...]:
    if not missing:
        return ()
    many = "nothing" if missing == needed else f"{needed - missing} of {needed} objects"
    message = f"the cache holds {many} of what the stages made; nothing is lost, `make final-eval` computes it again."
    return (finding("cache", None, message),)
