"""Whether the workspace and dvc.lock agree: what the stages wrote, what they read, and the values they ran with."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from pcgeval.audit.findings import AGAIN, Finding, finding, named
from pcgeval.audit.git import Git
from pcgeval.audit.history import Difference, History
from pcgeval.audit.paths import is_below, overlap, printable
from pcgeval.audit.pipeline import Artifact, Param, Pipeline, Stage
from pcgeval.audit.workspace import Listing, Workspace, folder_md5

_REDO = f"Delete it and {AGAIN} to make it again"
_HASH_SHOWN = 8  # hexadecimal digits of a hash in a message
_NEWER_SHOWN = 5


@dataclass(frozen=True)
class _Change:
    """What became of an input file since stages read it."""

    what: Literal["trouble", "missing", "added", "changed"]
    path: str
    detail: str = ""


@dataclass(frozen=True)
class Checker:
    """What the checks look at; `strays` are files below the outputs' folders that are part of no output."""

    pipeline: Pipeline
    workspace: Workspace
    history: History
    git: Git
    strays: frozenset[str] = field(default_factory=frozenset)

    def check(self) -> tuple[Finding, ...]:
        """Return every fault, in the order of the pipeline: stages, outputs, inputs, params."""
        found = [*self._stages(), *self._outputs()]
        broken = frozenset(each.path for each in found if each.path is not None)
        found += self._inputs(broken)
        found += _params(self.pipeline.stages)
        return tuple(dict.fromkeys(found))

    def _stages(self) -> Iterator[Finding]:
        for stage in self.pipeline.stages:
            if not stage.ran:
                yield finding("stage", None, f"{named([stage.name])} has never run: {AGAIN}.")
            elif stage.redefined:
                yield finding("stage", None, f"{named([stage.name])} was changed in dvc.yaml since it ran: {AGAIN}.")

    def _outputs(self) -> Iterator[Finding]:
        for stage in self.pipeline.stages:
            for out in stage.outs:
                if stage.ran and out.md5 is not None:
                    yield from self._output(stage, out, out.md5)

    def _output(self, stage: Stage, out: Artifact, md5: str) -> Iterator[Finding]:
        now, maker = self.workspace.listing(out.path), named([stage.name])
        for each in now.troubles:
            yield finding("link", each.path, f"{each.reason}. {_REDO}.")
        if not now.exists:
            yield finding("missing", out.path, f"is missing; {maker} made it. {AGAIN.capitalize()}.")
        elif now.is_folder != out.is_folder:
            message = f"is {_sort(now)} now, {maker} made {_sort(out)}. {_REDO}."
            yield finding("changed", out.path, message)
        elif now.md5 is not None and now.md5 != md5:
            difference = self.history.difference(now, md5, out.files) if now.is_folder else None
            if difference is not None:
                yield from self._changed_files(maker, out.path, difference)
            else:
                detail = "neither cache nor git tells which file" if now.is_folder else _hashes(now.md5, md5)
                message = f"is not what {maker} wrote ({detail}). {_REDO}{self._restore_hint(out.path)}."
                yield finding("changed", out.path, message)

    def _changed_files(self, maker: str, folder: str, difference: Difference) -> Iterator[Finding]:
        for path in (f"{folder}/{name}" for name in difference.changed):
            message = f"is not what {maker} wrote: another program or a person changed it. {_REDO}"
            yield finding("changed", path, f"{message}{self._restore_hint(path)}.")
        for path in (f"{folder}/{name}" for name in difference.missing):
            message = f"is missing; {maker} wrote it. {AGAIN.capitalize()}{self._restore_hint(path)}."
            yield finding("missing", path, message)
        for path in (f"{folder}/{name}" for name in difference.added):
            yield finding(
                "stray", path, f"was not written by {maker}, in whose output it lies. Delete it or move it away."
            )

    def _inputs(self, broken: frozenset[str]) -> Iterator[Finding]:
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

    def _fed_input(self, now: Listing, md5: str, stages: list[str], broken: frozenset[str]) -> Iterator[Finding]:
        """Check an input that other stages make: a file that is not theirs is named already, a stale reader is not."""
        known = {name: each for name, each in now.by_name().items() if f"{now.path}/{name}" not in self.strays}
        explained = any(overlap(now.path, each) for each in broken)
        if not explained and md5 not in {now.md5, folder_md5(known) if now.is_folder else None}:
            yield finding("stage", now.path, f"was made again after {named(stages)} read it. {AGAIN.capitalize()}.")

    def _changes(self, now: Listing, md5: str, files: int | None) -> Iterator[_Change]:
        """Yield what became of an input that no stage makes since its hash was `md5`."""
        yield from (_Change("trouble", each.path, f"{each.reason}. {each.remedy}") for each in now.troubles)
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

    def _changed_input(self, change: _Change, readers: str) -> Finding:
        path, back = change.path, self._restore_hint(change.path)
        match change.what:
            case "trouble":
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
        """Return which files were written after dvc.lock, for want of a list of what the folder held."""
        lock = (self.workspace.root / "dvc.lock").stat().st_mtime_ns
        newer = [each.path for each in now.files if (self.workspace.root / each.path).stat().st_mtime_ns > lock]
        shown = ", ".join(printable(path) for path in newer[:_NEWER_SHOWN])
        return f" (newer than dvc.lock: {shown}{', ...' if len(newer) > _NEWER_SHOWN else ''})" if newer else ""

    def _restore_hint(self, path: str) -> str:
        return f", or get it back with `git restore {shlex.quote(printable(path))}`" if self._in_git(path) else ""

    def _in_git(self, path: str) -> bool:
        return any(is_below(each, path) for each in self.git.tracked)


def _readers(stages: Iterable[Stage]) -> dict[tuple[str, str, int | None], list[str]]:
    """Return the stages that read each path, apart for each hash that it had when they ran."""
    readers: dict[tuple[str, str, int | None], list[str]] = defaultdict(list)
    for stage in stages:
        for dep in stage.deps:
            if dep.md5 is not None:
                readers[dep.path, dep.md5, dep.files].append(stage.name)
    return readers


def _params(stages: Iterable[Stage]) -> Iterator[Finding]:
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
