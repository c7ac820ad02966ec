"""Compare the workspace, dvc.lock and DVC's cache: outputs, inputs, params, files that no stage made."""

import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from pcgeval.audit.history import Git, cache_path, folder_difference, read_manifest
from pcgeval.audit.lineage import owner_of
from pcgeval.audit.pipeline import LOCK_FILE, Artifact, Pipeline
from pcgeval.audit.workspace import FileHash, Listing, Workspace, folder_md5, hash_file, is_below, overlap, printable
from pcgeval.core.layout import DATA, EVIDENCE, LETTERS
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
    "recomputed",  # a value is not the one that the files before it give
    "record",  # a trial was made from another submission, model, seed or limits
    "cache",
    "result",  # the ranking cannot be read
    "command",  # a stage runs something that it does not declare
    "source",  # code that stages load and do not declare
    "hidden",  # a file that .dvcignore keeps out of all hashes
    "uncommitted",  # code or params that are not as in the last commit
    "versions",  # the ranking was made with other versions than are installed
    "loaded",  # Python loads other code than that of the folder
    "hash",  # the ranking's result hash is not of what is there
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
    """A difference between a path and its hash in dvc.lock; a problem has a remedy too."""

    kind: Literal["problem", "missing", "added", "changed"]
    path: str
    detail: str = ""
    remedy: str = ""


class Checker:
    """Compares a workspace with dvc.lock and the cache, and collects what it finds.

    Attributes:
        faults: What does not agree: stages and their outputs, inputs, params, files that no stage made, the cache.
        notes: What an auditor should know beside the faults.
        cache_objects: The number of objects of the cache that were looked for.
    """

    def __init__(self, pipeline: Pipeline, workspace: Workspace, git: Git, params: Params) -> None:
        """Look for the files that no stage made, in the folders that outputs lie in, such as data/levels."""
        self.faults: list[AuditFinding] = []
        self.notes: list[AuditFinding] = []
        self.cache_objects = 0
        self._pipeline, self._workspace, self._git, self._params = pipeline, workspace, git, params
        self._outputs = frozenset(out.path for stage in pipeline.stages for out in stage.outs)
        # outputs have siblings in data/<stage folder>, and in the first folder of other paths
        areas = {"/".join(Path(out).parts[: 2 if out.startswith(f"{DATA}/") else 1]) for out in self._outputs}
        found = [path for area in sorted(areas) for path in sorted(workspace.names(area))]
        known = {*self._outputs, LETTERS.as_posix()}
        self._untracked = [path for path in found if not known & {path, *map(str, PurePosixPath(path).parents)}]

    def check(self) -> None:
        """Compare everything."""
        found = list(self._check_stages())
        broken = frozenset(each.path for each in found if each.path is not None)
        found += [*self._check_inputs(broken), *self._check_params()]
        self.faults += dict.fromkeys(found)
        self._check_untracked()
        self._check_cache()

    def _check_stages(self) -> Iterator[AuditFinding]:
        for stage in self._pipeline.stages:
            producer = named([stage.name])
            if not stage.ran:
                yield finding("stage", None, f"{producer} has never run: {AGAIN}.")
                continue
            if stage.redefined:
                yield finding("stage", None, f"{producer} was changed in dvc.yaml since it ran: {AGAIN}.")
            for change in (change for out in stage.outs if out.md5 for change in self._changes(out)):
                back = self._restore_hint(change.path)
                match change.kind:
                    case "problem":
                        yield finding("link", change.path, f"{change.detail}. {_REDO}.")
                    case "missing":
                        message = f"is missing; {producer} wrote it. {AGAIN.capitalize()}{back}."
                        yield finding("missing", change.path, message)
                    case "added":
                        message = f"was not written by {producer}, in whose output it lies. Delete it or move it away."
                        yield finding("untracked", change.path, message)
                    case "changed":
                        message = f"is not what {producer} wrote{change.detail}. {_REDO}{back}."
                        yield finding("changed", change.path, message)

    def _check_inputs(self, broken: frozenset[str]) -> Iterator[AuditFinding]:
        readers: dict[Artifact, list[str]] = defaultdict(list)
        for stage in self._pipeline.stages:
            for dep in (dep for dep in stage.deps if dep.md5):
                readers[dep].append(stage.name)
        changes: dict[_Change, list[str]] = defaultdict(list)
        for dep, stages in readers.items():
            if not any(overlap(dep.path, out) for out in self._outputs):
                for change in self._changes(dep):
                    changes[change] += stages
            elif not any(overlap(dep.path, each) for each in broken):
                # made by other stages: a file that is not theirs is an own fault, a reader that is out of date is not
                now = self._workspace.listing(dep.path)
                made = {name: md5 for name, md5 in now.by_name().items() if f"{now.path}/{name}" not in self._untracked}
                if dep.md5 not in {now.md5, folder_md5(made) if now.is_folder else None}:
                    message = f"was made again after {named(stages)} read it. {AGAIN.capitalize()}."
                    yield finding("stage", dep.path, message)
        yield from (self._input_fault(change, named(dict.fromkeys(stages))) for change, stages in changes.items())

    def _input_fault(self, change: _Change, readers: str) -> AuditFinding:
        back = self._restore_hint(change.path)
        match change.kind:
            case "problem":
                return finding("link", change.path, f"{change.detail}. {change.remedy}")
            case "missing":
                message = f"is missing; {readers} read it. Put it back{back}, then {AGAIN}."
                return finding("missing", change.path, message)
            case "added":
                message = (
                    f"was not there when {readers} ran. {AGAIN.capitalize()} to evaluate with it, or take it away."
                )
                return finding("changed", change.path, message)
            case "changed":
                message = f"changed since {readers} read it{change.detail}. {AGAIN.capitalize()} to evaluate with it"
                return finding("changed", change.path, f"{message}{back or ', or put the old one back'}.")

    def _changes(self, then: Artifact) -> Iterator[_Change]:
        """Yield how a file or folder differs from its hash in dvc.lock."""
        now, md5 = self._workspace.listing(then.path), then.md5 or ""
        for each in now.problems:
            yield _Change("problem", each.path, each.reason, each.remedy)
        if not now.exists:
            yield _Change("missing", now.path)
        elif now.md5 is not None and now.md5 != md5:
            difference = folder_difference(self._pipeline, self._git, now, md5, then.files) if now.is_folder else None
            if difference is not None:
                yield from (_Change("changed", f"{now.path}/{name}") for name in difference.changed)
                yield from (_Change("missing", f"{now.path}/{name}") for name in difference.missing)
                yield from (_Change("added", f"{now.path}/{name}") for name in difference.added)
            elif now.is_folder != then.is_folder:
                yield _Change("changed", now.path, f" (it is a {'folder' if now.is_folder else 'file'} now)")
            elif now.is_folder:
                yield _Change("changed", now.path, f" ({self._newer(now)})")
            else:
                yield _Change("changed", now.path, f" (md5 {now.md5[:_HASH_SHOWN]}, then {md5[:_HASH_SHOWN]})")

    def _newer(self, now: Listing) -> str:
        """Return which files were written after dvc.lock, where no list of the folder's old files is known."""
        lock = (self._workspace.root / LOCK_FILE).stat().st_mtime_ns
        newer = [each.path for each in now.files if (self._workspace.root / each.path).stat().st_mtime_ns > lock]
        if not newer:
            return "neither cache nor git tells which file"
        shown = ", ".join(printable(path) for path in newer[:_NEWER_SHOWN])
        return f"newer than dvc.lock: {shown}{', ...' if len(newer) > _NEWER_SHOWN else ''}"

    def _restore_hint(self, path: str) -> str:
        in_git = any(is_below(each, path) for each in self._git.tracked)
        return f", or get it back with `git restore {shlex.quote(printable(path))}`" if in_git else ""

    def _check_params(self) -> Iterator[AuditFinding]:
        changed: dict[tuple[str, str, str], list[str]] = defaultdict(list)
        for stage in (stage for stage in self._pipeline.stages if stage.ran):
            then, now = stage.locked_params, stage.current_params
            for name in sorted(then.keys() | now.keys()):
                if name not in then or name not in now or then[name] != now[name]:
                    old, new = (repr(values[name]) if name in values else "absent" for values in (then, now))
                    changed[name, old, new].append(stage.name)
        for (name, old, new), names in changed.items():
            what = f"params.yaml: {printable(name)} is {printable(new)}; {named(names)} ran with {printable(old)}"
            yield finding("params", None, f"{what}. {AGAIN.capitalize()}, or set it back.")

    def _check_untracked(self) -> None:
        """Note folders of former teams and models; any other file that no stage made is a fault."""
        former = set()
        for path in self._untracked:
            if place := self._former_place(path):
                former.add(place)
            else:
                self.faults.append(finding("untracked", path, "no stage made it. Delete it or move it away."))
        reason = "left over from a team or model that is not in params.yaml; it counts for nothing and may be deleted."
        self.notes += [finding("left over", place, reason) for place in sorted(former)]

    def _former_place(self, path: str) -> str | None:
        """Return the folder (of evidence: the file) of a former team or model that a file is part of, None if none."""
        parts = PurePosixPath(path).parts
        is_evidence = parts[:2] == EVIDENCE.parts and len(parts) == 4
        for place in ("/".join(parts[:depth]) for depth in range(3, len(parts) + is_evidence)):
            owner = owner_of(place)
            if owner.model not in (None, *self._params.models) or owner.team not in (None, *self._params.teams):
                return place
        return None

    def _check_cache(self) -> None:
        """Hash every object of the cache that dvc.lock's outputs need: of a folder its list of files and each file."""
        cache, needed = self._pipeline.cache, {}
        for out in (out for stage in self._pipeline.stages for out in stage.outs if out.cached and out.md5):
            needed[out.md5 or ""] = out.path
            manifest = read_manifest(cache_path(cache, out.md5 or "")) if out.is_folder else None
            if manifest is not None and folder_md5(manifest) == out.md5:
                needed |= {md5: f"{out.path}/{name}" for name, md5 in manifest.items()}
        missing = 0
        for md5, path in sorted(needed.items()):
            place = cache_path(cache, md5)
            if not os.path.lexists(place):
                missing += 1
                continue
            now = hash_file(place, str(place))
            if place.is_symlink() or not isinstance(now, FileHash) or now.md5 != md5.removesuffix(".dir"):
                root = self._workspace.root
                shown = place.relative_to(root) if place.is_relative_to(root) else place
                message = (
                    f"the bytes kept for {printable(path)} are not those of their name. Delete that file and {AGAIN}."
                )
                self.faults.append(finding("cache", shown.as_posix(), message))
        self.cache_objects = len(needed)
        if missing:
            kept = "nothing" if missing == len(needed) else f"{len(needed) - missing} of {len(needed)} objects"
            message = (
                f"the cache holds {kept} of what the stages made; nothing is lost, `make final-eval` computes it again."
            )
            self.notes.append(finding("cache", None, message))
