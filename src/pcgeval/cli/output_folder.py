"""The output folder of `pcgeval try`, in which no file is replaced or removed that pcgeval did not write."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, StringConstraints, ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_json, write_bytes, write_json
from pcgeval.core.layout import STAGE_DIRS

MARKER = ".pcgeval-try.json"
LOCK = ".pcgeval-try.lock"
PRINTED = "printed"  # beside the stages: what programs print


class _Marker(BaseModel, extra="forbid"):
    """The owner of the folder, and the files that pcgeval wrote there, `<stage>/...`."""

    team: str
    model: str
    files: set[Annotated[str, StringConstraints(pattern=rf"^(?:{'|'.join((*STAGE_DIRS, PRINTED))})/(?:[A-Z]/)?[^/]+$")]]


class OutputFolderError(PcgevalError):
    """`pcgeval try` may not write into this folder."""


class OutputFolder:
    """A folder of one team and model in which pcgeval replaces and removes only the files that it wrote itself.

    It may be opened at any time; `claim` and `put` are for the one process that holds the lock `LOCK` in it.
    """

    def __init__(self, folder: Path, team: str, model: str) -> None:
        """Take a folder that is new, empty, or of an earlier try of the same team and model.

        Raises:
            OutputFolderError: It is none of them.
        """
        self.folder, self._marker = folder, _Marker(team=team, model=model, files=set())
        self._read_marker()
        is_marked = (folder / MARKER).is_file()
        # the lock alone: of a try that was killed before its marker, or that writes it at this moment
        if not is_marked and folder.exists() and not (folder.is_dir() and {p.name for p in folder.iterdir()} <= {LOCK}):
            raise OutputFolderError(
                f"{folder}: already exists and `pcgeval try` did not make it. Name a new or empty folder with --out."
            )

    def claim(self, files: Iterable[str]) -> None:
        """List files as pcgeval's own before they are written.

        Raises:
            OutputFolderError: Somebody else's file has one of the names, or the folder is another team's by now.
        """
        self._read_marker()  # another try may have ended since
        new = set(files) - self._marker.files
        for name in sorted(new):
            if os.path.lexists(self.folder / name):
                raise OutputFolderError(f"{self.folder / name}: pcgeval did not write this file. Move it elsewhere.")
        self._marker.files |= new
        write_json(self.folder / MARKER, {**dict(self._marker), "files": sorted(self._marker.files)})

    def put(self, contents: Mapping[str, bytes | None]) -> None:
        """Write claimed files by their names here; one without content is removed, if it is there."""
        for name, content in contents.items():
            assert name in self._marker.files, name  # noqa: S101 - claimed before
            if content is None:
                (self.folder / name).unlink(missing_ok=True)
            else:
                write_bytes(self.folder / name, content)

    def _read_marker(self) -> None:
        file, expected = self.folder / MARKER, self._marker
        if not file.is_file():
            return
        try:
            found = _Marker.model_validate(read_json(file))
        except ValidationError as error:
            raise OutputFolderError(f"{file}: was altered. Name another folder with --out.") from error
        if (found.team, found.model) != (expected.team, expected.model):
            raise OutputFolderError(
                f"{self.folder}: holds {found.team} with {found.model}, not {expected.team} with {expected.model}. "
                "Name another folder with --out."
            )
        self._marker = found
