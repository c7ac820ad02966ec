"""The pipeline as DVC understands dvc.yaml, joined with its last run in dvc.lock.

Only this module asks DVC itself: for the stages that templates and matrices expand to, for the rules of .dvcignore and
for the place of the cache. All hashes are computed elsewhere and afresh, because DVC trusts its records of sizes and
times.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from dvc.dependency import ParamsDependency
from dvc.exceptions import DvcException
from dvc.fs import localfs
from dvc.output import Output
from dvc.repo import Repo
from dvc.stage import Stage as DvcStage
from dvc.utils.serialize import ParseError, load_yaml, parse_yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import read_text
from pcgeval.core.untrusted import printable_line

PIPELINE_FILE = "dvc.yaml"
LOCK_FILE = "dvc.lock"
_REMEDY = (
    "Restore it (`git restore dvc.lock`), or delete it and run `make final-eval`, which computes everything again."
)
Walk = Callable[[Path], Iterator[tuple[Path, list[str], list[str]]]]


class AuditError(PcgevalError):
    """There is nothing to audit, or dvc.lock or dvc.yaml is malformed."""


class _LockPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class LockedPath(_LockPart):
    """One file or folder with the hash it had; that of a folder ends in `.dir`."""

    path: str
    hash: Literal["md5"]
    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}(\.dir)?$")]
    nfiles: int | None = None


class LockedStage(_LockPart):
    """One stage as it last ran; `params` holds for each file the values by dotted key."""

    cmd: str | list[str]
    deps: list[LockedPath] = []
    params: dict[str, dict[str, Any]] = {}
    outs: list[LockedPath] = []


class _LockFile(_LockPart):
    schema_version: Literal["2.0"] = Field(alias="schema")
    stages: dict[str, LockedStage] = {}


def read_lock(root: Path) -> dict[str, LockedStage]:
    """Return the stages of dvc.lock by name.

    Raises:
        AuditError: The file is missing or is no lock file; the message names the first faults.
    """
    path = root / LOCK_FILE
    if not path.is_file():
        raise AuditError(f"{path}: is missing, so nothing has been evaluated yet. Run `make final-eval`.")
    try:
        return _LockFile.model_validate(parse_yaml(read_text(path), str(path))).stages
    except ValidationError as error:
        faults = [f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}" for fault in error.errors()]
        raise AuditError(f"{path}: not a lock file of DVC 3 ({'; '.join(faults[:3])}). {_REMEDY}") from error
    except (ParseError, FileError, RecursionError, ValueError) as error:
        raise AuditError(f"{path}: cannot be read ({printable_line(str(error))}). {_REMEDY}") from error


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
class Param:
    """One value of a params file, by its dotted name; a list is one value."""

    name: str
    value: Any


@dataclass(frozen=True)
class PipelineStage:
    """One stage that dvc.yaml defines now."""

    name: str
    ran: bool  # whether dvc.lock knows it
    redefined: bool  # whether its command or its lists of deps and outs changed since it ran
    deps: tuple[Artifact, ...]
    outs: tuple[Artifact, ...]
    locked_params: tuple[Param, ...]  # the values that it ran with
    current_params: tuple[Param, ...]  # the same keys in the params file as it is now


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
        AuditError: The folder is no DVC workspace, or one of the files cannot be understood.
    """
    root = root.resolve()
    if not (root / ".dvc").is_dir() or not (root / PIPELINE_FILE).is_file():
        raise AuditError(f"{root}: holds no dvc.yaml with .dvc beside it. Run this in the competition's folder.")
    locked = read_lock(root)
    try:
        repository = Repo(str(root))
        with repository:
            stages = repository.stage.load_all(str(root / PIPELINE_FILE))
            if not stages:
                raise AuditError(f"{PIPELINE_FILE}: defines no stage. Restore it (`git restore {PIPELINE_FILE}`).")
            params = _ParamFiles()
            return Pipeline(
                tuple(_join(stage, locked.get(stage.name), params) for stage in stages),
                Path(repository.cache.local.path),
                _walker(repository),
                lambda path: bool(repository.dvcignore.is_ignored_file(str(path))),
            )
    except (DvcException, RecursionError) as error:
        raise AuditError(f"{PIPELINE_FILE}: {printable_line(str(error))}. Fix what it names, then audit.") from error


def _walker(repository: Repo) -> Walk:
    def walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
        for place, folders, files in repository.dvcignore.walk(localfs, str(folder)):
            folders.sort()
            yield Path(place), folders, sorted(files)

    return walk


class _ParamFiles:
    """Params files as DVC parses them, each read once."""

    def __init__(self) -> None:
        self._files: dict[str, Any] = {}

    def values(self, path: str, keys: list[str]) -> dict[str, Any]:
        """Return the values of those dotted keys that the file has."""
        if path not in self._files:
            self._files[path] = load_yaml(path)
        found: dict[str, Any] = {}
        for key in keys:
            value = self._files[path]
            for part in key.split("."):
                if not isinstance(value, dict) or part not in value:
                    break
                value = value[part]
            else:
                found[key] = value
        return found


def _join(stage: DvcStage, locked: LockedStage | None, files: _ParamFiles) -> PipelineStage:
    known = locked or LockedStage(cmd="")
    params = [each for each in stage.deps if isinstance(each, ParamsDependency)]
    deps = [each for each in stage.deps if not isinstance(each, ParamsDependency)]
    locked_values = {key: value for each in params for key, value in known.params.get(each.def_path, {}).items()}
    current = {key: value for each in params for key, value in files.values(each.fs_path, each.params).items()}
    same_paths = _paths(deps) == {each.path for each in known.deps} and _paths(stage.outs) == {
        each.path for each in known.outs
    }
    return PipelineStage(
        name=stage.name,
        ran=locked is not None,
        redefined=locked is not None and not (same_paths and stage.cmd == known.cmd),
        deps=_artifacts(deps, known.deps),
        outs=_artifacts(stage.outs, known.outs),
        locked_params=tuple(_leaves(locked_values)),
        current_params=tuple(_leaves(current)),
    )


def _paths(found: list[Output]) -> set[str]:
    return {each.def_path for each in found}


def _artifacts(defined: list[Output], locked: list[LockedPath]) -> tuple[Artifact, ...]:
    hashes = {each.path: each for each in locked}
    return tuple(
        Artifact(
            path=each.def_path,
            md5=hashes[each.def_path].md5 if each.def_path in hashes else None,
            files=hashes[each.def_path].nfiles if each.def_path in hashes else None,
            cached=each.use_cache,
        )
        for each in sorted(defined, key=lambda each: str(each.def_path))
    )


def _leaves(value: Any, name: str = "") -> Iterator[Param]:
    if isinstance(value, dict) and value:
        for key in sorted(value, key=str):
            yield from _leaves(value[key], f"{name}.{key}" if name else str(key))
    else:
        yield Param(name, _plain(value))


def _plain(value: Any) -> Any:
    """Return a value of YAML as one of JSON: dates and infinite numbers become text."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
