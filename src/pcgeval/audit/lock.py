"""dvc.lock as DVC 3 writes it: what each stage read and wrote when it last ran."""

from pathlib import Path
from typing import Annotated, Any, Literal

from dvc.utils.serialize import ParseError, parse_yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.audit.errors import AuditError
from pcgeval.core.files import FileError, read_text
from pcgeval.core.untrusted import printable_line

LOCK_FILE = "dvc.lock"
_REMEDY = (
    "Restore it (`git restore dvc.lock`), or delete it and run `make final-eval`, which computes everything again."
)


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class LockedPath(_Section):
    """One file or folder with the hash it had; that of a folder ends in `.dir`."""

    path: str
    hash: Literal["md5"]
    md5: Annotated[str, Field(pattern=r"^[0-9a-f]{32}(\.dir)?$")]
    nfiles: int | None = None


class LockedStage(_Section):
    """One stage as it last ran; `params` holds for each file the values by dotted key."""

    cmd: str | list[str]
    deps: list[LockedPath] = []
    params: dict[str, dict[str, Any]] = {}
    outs: list[LockedPath] = []


class _LockFile(_Section):
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
