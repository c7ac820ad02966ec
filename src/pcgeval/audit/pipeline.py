"""The pipeline as DVC understands dvc.yaml, joined with its last run in dvc.lock.

Only this module asks DVC itself: for the stages that templates and matrices expand to, what dvc.lock says of them, the
rules of .dvcignore and the place of the cache. Files are hashed elsewhere and afresh, because DVC trusts its records of
sizes and times.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpath
import psutil
from dvc.dependency import ParamsDependency
from dvc.dvcfile import ProjectFile
from dvc.exceptions import DvcException
from dvc.fs import localfs
from dvc.output import Output
from dvc.repo import Repo
from dvc.stage import PipelineStage as DvcStage

from pcgeval.core.errors import PcgevalError
from pcgeval.core.layout import EVALUATING
from pcgeval.core.locks import lock_holder
from pcgeval.core.untrusted import printable_line

PIPELINE_FILE = "dvc.yaml"
LOCK_FILE = "dvc.lock"
_REMEDY = (
    "Restore it (`git restore dvc.lock`), or delete it and run `make final-eval`, which computes everything again."
)
_MD5 = re.compile(r"[0-9a-f]{32}(\.dir)?")  # with the suffix: of a folder's list of files
Walk = Callable[[Path], Iterator[tuple[Path, list[str], list[str]]]]


class AuditError(PcgevalError):
    """There is nothing to audit, or dvc.lock or dvc.yaml is malformed."""


@dataclass(frozen=True)
class Artifact:
    """A file or folder that a stage reads or writes, with its hash in dvc.lock (None: not in there)."""

    path: str
    md5: str | None
    files: int | None
    cached: bool

    @property
    def is_folder(self) -> bool:
        """Whether it was a folder when the stage ran."""
        return self.md5 is not None and self.md5.endswith(".dir")


@dataclass(frozen=True)
class PipelineStage:
    """One stage that dvc.yaml defines now; params are by dotted name, a list is one value."""

    name: str
    ran: bool  # whether dvc.lock knows it
    redefined: bool  # whether its command or its lists of deps and outs changed since it ran
    commands: tuple[str, ...]  # what it runs
    folder: Path  # where
    frozen: bool  # whether DVC leaves it out
    deps: tuple[Artifact, ...]
    outs: tuple[Artifact, ...]
    locked_params: dict[str, Any]  # the values that it ran with
    current_params: dict[str, Any]  # the same keys in the params file as it is now


@dataclass(frozen=True)
class Pipeline:
    """All stages of dvc.yaml in its order, and where DVC keeps what they make."""

    stages: tuple[PipelineStage, ...]
    cache: Path
    walk: Walk  # os.walk of a folder without what .dvcignore names; links are not followed
    ignores: Callable[[Path], bool]  # whether .dvcignore names a file


def read_pipeline(root: Path) -> Pipeline:
    """Read dvc.yaml, dvc.lock and DVC's configuration of a competition's folder.

    Raises:
        AuditError: The folder is no DVC workspace, nothing was evaluated yet, or a file cannot be understood.
    """
    root = root.resolve()
    if not (root / ".dvc").is_dir() or not (root / PIPELINE_FILE).is_file():
        raise AuditError(f"{root}: holds no dvc.yaml with .dvc beside it. Run this in the competition's folder.")
    if not (root / LOCK_FILE).is_file():
        raise AuditError(f"{root / LOCK_FILE}: is missing, so nothing has been evaluated yet. Run `make final-eval`.")
    try:
        with Repo(str(root)) as repository:
            file = ProjectFile(repository, str(root / PIPELINE_FILE))
            locked = _locked_stages(file, root / LOCK_FILE)
            contents: dict[str, Any] = {}
            stages = tuple(_join(stage, locked.get(stage.name), contents) for stage in file.stages.values())
            if not stages:
                raise AuditError(f"{PIPELINE_FILE}: defines no stage. Restore it (`git restore {PIPELINE_FILE}`).")

            def walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
                for place, folders, files in repository.dvcignore.walk(localfs, str(folder)):
                    folders.sort()
                    yield Path(place), folders, sorted(files)

            def ignores(path: Path) -> bool:
                return bool(repository.dvcignore.is_ignored_file(str(path)))

            return Pipeline(stages, Path(repository.cache.local.path), walk, ignores)
    except (DvcException, RecursionError) as error:
        raise AuditError(f"{PIPELINE_FILE}: {printable_line(str(error))}. Fix what it names, then audit.") from error


def running_evaluation(root: Path) -> str | None:
    """Return which process evaluates a competition at this moment, in words; None if none does."""
    process, _ = lock_holder(root / EVALUATING) or (None, None)
    if process not in {None, os.getpid()}:
        return f"process {process}, an evaluation,"
    try:
        writing = json.loads((root / ".dvc" / "tmp" / "rwlock").read_bytes())["write"].values()
        for each in writing:
            if each["pid"] != os.getpid() and psutil.pid_exists(each["pid"]):
                return f"process {each['pid']}, `{printable_line(each['cmd'])}`,"
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):  # DVC writes it in place
        return None
    return None


def _locked_stages(file: ProjectFile, path: Path) -> dict[str, dict[str, Any]]:
    """Return the stages of dvc.lock by name, all their hashes MD5s as DVC 3 computes them."""
    try:
        stages: dict[str, dict[str, Any]] = file.lockfile_contents.get("stages", {})
    except (DvcException, RecursionError, ValueError) as error:
        raise AuditError(f"{path}: cannot be read ({printable_line(str(error))}). {_REMEDY}") from error
    for name, stage in stages.items():
        for each in (*stage.get("deps", ()), *stage.get("outs", ())):
            if each.get("hash") != "md5" or not _MD5.fullmatch(str(each.get("md5"))):
                what = printable_line(f"{name}, {each['path']}")
                raise AuditError(f"{path}: {what}: has no MD5 as DVC 3 writes it. {_REMEDY}")
    return stages


def _join(stage: DvcStage, locked: dict[str, Any] | None, contents: dict[str, Any]) -> PipelineStage:
    """Join a stage with what dvc.lock says of it; contents are those of params files that were read already."""
    params = [each for each in stage.deps if isinstance(each, ParamsDependency)]
    deps = [each for each in stage.deps if not isinstance(each, ParamsDependency)]
    redefined = locked is not None and (
        stage.cmd_changed
        or {each.def_path for each in deps} != {each["path"] for each in locked.get("deps", ())}
        or {each.def_path for each in stage.outs} != {each["path"] for each in locked.get("outs", ())}
        or {name for each in params for name in each.params}
        != {name for named in locked.get("params", {}).values() for name in named}
    )
    return PipelineStage(
        name=stage.name,
        ran=locked is not None,
        redefined=redefined,
        commands=(stage.cmd,) if isinstance(stage.cmd, str) else tuple(stage.cmd or ()),
        folder=Path(stage.wdir),
        frozen=bool(stage.frozen),
        deps=_artifacts(deps),
        outs=_artifacts(stage.outs),
        locked_params={name: value for each in params for name, value in _leaves(each.hash_info.value or {})},
        current_params={name: value for each in params for name, value in _leaves(_read_params(each, contents))},
    )


def _read_params(params: ParamsDependency, contents: dict[str, Any]) -> dict[str, Any]:
    """Return the values as DVC reads them, which would parse the whole file again for every stage."""
    if params.fs_path not in contents:
        whole = copy(params)
        whole.params = []  # for DVC: all that are in the file
        contents[params.fs_path] = whole.read_params()
    content = contents[params.fs_path]
    found = {}
    for name in params.params:
        with suppress(KeyError):
            found[name] = dpath.get(content, name, separator=".")
    return found if params.params else content


def _artifacts(found: Iterable[Output]) -> tuple[Artifact, ...]:
    return tuple(
        Artifact(str(each.def_path), each.hash_info.value or None, each.meta.nfiles, bool(each.use_cache))
        for each in sorted(found, key=lambda each: str(each.def_path))
    )


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of YAML by dotted name, as those of JSON: dates and infinite numbers become text."""
    if isinstance(value, dict) and value:
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{name}.{key}" if name else str(key))
    elif name:
        yield name, _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
