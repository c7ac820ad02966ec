"""Compare the workspace, dvc.lock and DVC's cache: outputs, inputs, params, files that no stage made."""

import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from pcgeval.audit.history import Difference, Git, History, cache_path, read_manifest
from pcgeval.audit.lineage import owner_of
from pcgeval.audit.pipeline import Artifact, Param, Pipeline, PipelineStage
from pcgeval.audit.workspace import FileHash, Listing, Workspace, folder_md5, hash_file, is_below, overlap, printable
from pcgeval.core.layout import DATA, EVIDENCE
from pcgeval.core.params import Params

AGAIN = "run `make final-eval`"
_REDO = f"Delete it and {AGAIN} to make it again"
_HASH_SHOWN = 8  # hexadecimal digits of a hash in a message
_NEWER_SHOWN = 5
Kind = Literal[
    "changed",  # a file differs from dvc.lock
    "missing",
    "untracked",  # a file that no stage made
    "link",  # a link, a pipe or an unreadable file
    "params",  # params.yaml has other values than a stage ran with
    "stage",  # a stage never ran, or its definition or an input of it changed since
    "cache",
    "result",  # the ranking cannot be read
    "left over",
    "packages",
]


@dataclass(frozen=True)
class AuditFinding:
    """One statement; `path` is None if it is not about one file."""

    kind: Kind
    path: str | None
    message: str


def finding(kind: Kind, path: str | None, message: str) -> AuditFinding:
    """Return a finding whose message starts with its path, made printable."""
    return AuditFinding(kind, path, f"{printable(path)}: {message}" if path is not None else message)


def named(stages: Iterable[str]) -> str:
    """Return the first of some stages' names and how many more there are."""
    first, *more = stages
    return f"stage {printable(first)}" + (f" (and {len(more)} more)" if more else "")


@dataclass(frozen=True)
class _Change:
    """A change of an input file since stages read it."""

    what: Literal["problem", "missing", "added", "changed"]
    path: str
    detail: str = ""


@dataclass(frozen=True)
class Checker:
    """Compares the workspace with dvc.lock; `untracked` are files below the outputs' folders that no stage made."""

    pipeline: Pipeline
    workspace: Workspace
    history: History
    git: Git
    untracked: frozenset[str] = field(default_factory=frozenset)

    def check(self) -> tuple[AuditFinding, ...]:
        """Return every fault, in the order of the pipeline: stages, outputs, inputs, params."""
        found = [*self._stages(), *self._outputs()]
        broken = frozenset(each.path for each in found if each.path is not None)
        found += self._inputs(broken)
        found += _params(self.pipeline.stages)
        return tuple(dict.fromkeys(found))

    def _stages(self) -> Iterator[AuditFinding]:
        for stage in self.pipeline.stages:
            if not stage.ran:
                yield finding("stage", None, f"{named([stage.name])} has never run: {AGAIN}.")
            elif stage.redefined:
                yield finding("stage", None, f"{named([stage.name])} was changed in dvc.yaml since it ran: {AGAIN}.")

    def _outputs(self) -> Iterator[AuditFinding]:
        for stage in self.pipeline.stages:
            for out in stage.outs:
                if stage.ran and out.md5 is not None:
                    yield from self._output(stage, out, out.md5)

    def _output(self, stage: PipelineStage, out: Artifact, md5: str) -> Iterator[AuditFinding]:
        now, producer = self.workspace.listing(out.path), named([stage.name])
        for each in now.problems:
            yield finding("link", each.path, f"{each.reason}. {_REDO}.")
        if not now.exists:
            yield finding("missing", out.path, f"is missing; {producer} made it. {AGAIN.capitalize()}.")
        elif now.is_folder != out.is_folder:
            message = f"is {_sort(now)} now, {producer} made {_sort(out)}. {_REDO}."
            yield finding("changed", out.path, message)
        elif now.md5 is not None and now.md5 != md5:
            difference = self.history.difference(now, md5, out.files) if now.is_folder else None
            if difference is not None:
                yield from self._changed_files(producer, out.path, difference)
            else:
                detail = "neither cache nor git tells which file" if now.is_folder else _hashes(now.md5, md5)
                message = f"is not what {producer} wrote ({detail}). {_REDO}{self._restore_hint(out.path)}."
                yield finding("changed", out.path, message)

    def _changed_files(self, producer: str, folder: str, difference: Difference) -> Iterator[AuditFinding]:
        for path in (f"{folder}/{name}" for name in difference.changed):
            message = f"is not what {producer} wrote: another program or a person changed it. {_REDO}"
            yield finding("changed", path, f"{message}{self._restore_hint(path)}.")
        for path in (f"{folder}/{name}" for name in difference.missing):
            message = f"is missing; {producer} wrote it. {AGAIN.capitalize()}{self._restore_hint(path)}."
            yield finding("missing", path, message)
        for path in (f"{folder}/{name}" for name in difference.added):
            yield finding(
                "untracked", path, f"was not written by {producer}, in whose output it lies. Delete it or move it away."
            )

    def _inputs(self, broken: frozenset[str]) -> Iterator[AuditFinding]:
        outputs = [out for stage in self.pipeline.stages for out in stage.outs]
        changes: dict[_Change, list[str]] = defaultdict(list)
        for (path, md5, files), stages in _readers(self.pipeline.stages).items():
            now = self.workspace.listing(path)
            if any(overlap(path, out.path) for out in outputs):
                yield from self._fed_input(now, md5, stages, broken)
            else:
                for change in self._changes(now, md5, files):
                    changes[change] += stages
        for change, stages in changes.items():
            yield self._changed_input(change, named(dict.fromkeys(stages)))

    def _fed_input(self, now: Listing, md5: str, stages: list[str], broken: frozenset[str]) -> Iterator[AuditFinding]:
        """Check an input that other stages make: a file that is not theirs is named already, a stale reader is not."""
        known = {name: each for name, each in now.by_name().items() if f"{now.path}/{name}" not in self.untracked}
        explained = any(overlap(now.path, each) for each in broken)
        if not explained and md5 not in {now.md5, folder_md5(known) if now.is_folder else None}:
            yield finding("stage", now.path, f"was made again after {named(stages)} read it. {AGAIN.capitalize()}.")

    def _changes(self, now: Listing, md5: str, files: int | None) -> Iterator[_Change]:
        """Yield the changes of an input that no stage makes, since its hash was `md5`."""
        yield from (_Change("problem", each.path, f"{each.reason}. {each.remedy}") for each in now.problems)
        if not now.exists:
            yield _Change("missing", now.path)
        elif now.md5 is not None and now.md5 != md5:
            difference = self.history.difference(now, md5, files) if now.is_folder else None
            if difference is None:
                detail = self._newer(now) if now.is_folder else f" ({_hashes(now.md5, md5)})"
                yield _Change("changed", now.path, detail)
            else:
                yield from (_Change("changed", f"{now.path}/{name}") for name in difference.changed)
                yield from (_Change("missing", f"{now.path}/{name}") for name in difference.missing)
                yield from (_Change("added", f"{now.path}/{name}") for name in difference.added)

    def _changed_input(self, change: _Change, readers: str) -> AuditFinding:
        path, back = change.path, self._restore_hint(change.path)
        match change.what:
            case "problem":
                return finding("link", path, change.detail)
            case "missing":
                return finding("missing", path, f"is missing; {readers} read it. Put it back{back}, then {AGAIN}.")
            case "added":
                message = (
                    f"was not there when {readers} ran. {AGAIN.capitalize()} to evaluate with it, or take it away."
                )
                return finding("changed", path, message)
            case "changed":
                message = f"changed since {readers} read it{change.detail}. {AGAIN.capitalize()} to evaluate with it"
                return finding("changed", path, f"{message}{back or ', or put the old one back'}.")

    def _newer(self, now: Listing) -> str:
        """Return which files were written after dvc.lock, where no list of the folder's old files is known."""
        lock = (self.workspace.root / "dvc.lock").stat().st_mtime_ns
        newer = [each.path for each in now.files if (self.workspace.root / each.path).stat().st_mtime_ns > lock]
        shown = ", ".join(printable(path) for path in newer[:_NEWER_SHOWN])
        return f" (newer than dvc.lock: {shown}{', ...' if len(newer) > _NEWER_SHOWN else ''})" if newer else ""

    def _restore_hint(self, path: str) -> str:
        in_git = any(is_below(each, path) for each in self.git.tracked)
        return f", or get it back with `git restore {shlex.quote(printable(path))}`" if in_git else ""


def _readers(stages: Iterable[PipelineStage]) -> dict[tuple[str, str, int | None], list[str]]:
    """Return the stages that read each path, apart for each hash that it had when they ran."""
    readers: dict[tuple[str, str, int | None], list[str]] = defaultdict(list)
    for stage in stages:
        for dep in stage.deps:
            if dep.md5 is not None:
                readers[dep.path, dep.md5, dep.files].append(stage.name)
    return readers


def _params(stages: Iterable[PipelineStage]) -> Iterator[AuditFinding]:
    changed: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for stage in stages:
        then = {each.name: each for each in stage.locked_params}
        now = {each.name: each for each in stage.current_params}
        for name in sorted(then.keys() | now.keys()) if stage.ran else ():
            if then.get(name) != now.get(name):
                changed[name, _value(then.get(name)), _value(now.get(name))].append(stage.name)
    for (name, old, new), names in changed.items():
        what = f"params.yaml: {printable(name)} is {printable(new)}; {named(names)} ran with {printable(old)}"
        yield finding("params", None, f"{what}. {AGAIN.capitalize()}, or set it back.")


def _value(param: Param | None) -> str:
    return "absent" if param is None else repr(param.value)


def _sort(what: Listing | Artifact) -> str:
    return "a folder" if what.is_folder else "a file"


def _hashes(now: str | None, then: str) -> str:
    return f"md5 {(now or '')[:_HASH_SHOWN]}, then {then[:_HASH_SHOWN]}"


@dataclass(frozen=True)
class UntrackedFiles:
    """Files that no stage of dvc.yaml made; folders of former teams or models are only noted."""

    paths: frozenset[str]
    faults: tuple[AuditFinding, ...]
    notes: tuple[AuditFinding, ...]


def find_untracked(stages: Iterable[PipelineStage], workspace: Workspace, params: Params) -> UntrackedFiles:
    """Look through the folders that outputs lie in, such as data/levels and results."""
    outputs = frozenset(out.path for stage in stages for out in stage.outs)
    # outputs have siblings in data/<stage folder>, and in the first folder of other paths
    areas = {"/".join(Path(out).parts[: 2 if out.startswith(f"{DATA}/") else 1]) for out in outputs}
    found = [path for area in sorted(areas) for path in sorted(workspace.names(area))]
    paths = [path for path in found if not outputs & {path, *map(str, PurePosixPath(path).parents)}]
    left_over = {path: place for path in paths if (place := _former_place(path, params)) is not None}
    message = "no stage made it. Delete it or move it away."
    faults = tuple(finding("untracked", path, message) for path in paths if path not in left_over)
    reason = "left over from a team or model that is not in params.yaml; it counts for nothing and may be deleted."
    notes = tuple(finding("left over", place, reason) for place in sorted(set(left_over.values())))
    return UntrackedFiles(frozenset(paths), faults, notes)


def _former_place(path: str, params: Params) -> str | None:
    """Return the folder (of evidence: the file) of a former team or model that a file is part of, None if of none."""
    parts = PurePosixPath(path).parts
    is_evidence = parts[:2] == EVIDENCE.parts and len(parts) == 4
    for place in ("/".join(parts[:depth]) for depth in range(3, len(parts) + is_evidence)):
        owner = owner_of(place)
        if owner.model not in (None, *params.models) or owner.team not in (None, *params.teams):
            return place
    return None


@dataclass(frozen=True)
class CacheCheck:
    """The number of objects that were looked for, and the findings about them."""

    objects: int
    faults: tuple[AuditFinding, ...]
    notes: tuple[AuditFinding, ...]


def check_cache(pipeline: Pipeline, root: Path) -> CacheCheck:
    """Hash every object of the cache that dvc.lock's outputs need; `root` is the competition's folder."""
    kept = [out for stage in pipeline.stages for out in stage.outs if out.cached and out.md5 is not None]
    needed = {md5: path for out in kept for md5, path in _objects(pipeline.cache, out)}
    faults, notes, missing = [], [], 0
    for md5, path in sorted(needed.items()):
        place = cache_path(pipeline.cache, md5)
        if not os.path.lexists(place):
            missing += 1
            continue
        now = hash_file(place, str(place))
        if place.is_symlink() or not isinstance(now, FileHash) or now.md5 != md5.removesuffix(".dir"):
            shown = place.relative_to(root) if place.is_relative_to(root) else place
            message = f"the bytes kept for {printable(path)} are not those of their name. Delete that file and {AGAIN}."
            faults.append(finding("cache", shown.as_posix(), message))
    if missing:
        kept_now = "nothing" if missing == len(needed) else f"{len(needed) - missing} of {len(needed)} objects"
        message = (
            f"the cache holds {kept_now} of what the stages made; nothing is lost, `make final-eval` computes it again."
        )
        notes.append(finding("cache", None, message))
    return CacheCheck(len(needed), tuple(faults), tuple(notes))


def _objects(cache: Path, out: Artifact) -> Iterator[tuple[str, str]]:
    """Yield the hash and the path of an output's objects: for a folder its list of files, then each of them."""
    if out.md5 is None:
        return
    yield out.md5, out.path
    manifest = read_manifest(cache_path(cache, out.md5)) if out.is_folder else None
    if manifest is not None and folder_md5(manifest) == out.md5:
        for name, md5 in manifest.items():
            yield md5, f"{out.path}/{name}"
