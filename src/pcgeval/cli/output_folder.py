"""The output folder of `pcgeval try`, in which no file is replaced or removed that pcgeval did not write."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, StringConstraints, ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_json, write_bytes, write_json
from pcgeval.core.layout import STAGE_DIRS
from pcgeval.core.untrusted import files_below

MARKER = ".pcgeval-try.json"
LOCK = ".pcgeval-try.lock"


class _Marker(BaseModel, extra="forbid"):
    """The owner of the folder, and the files that pcgeval wrote there, `<stage>/...`."""

    team: str
    model: str
    files: set[Annotated[str, StringConstraints(pattern=rf"^(?:{'|'.join(STAGE_DIRS)})/(?:[A-Z]/)?[^/]+$")]]


class OutputFolderError(PcgevalError):
    """`pcgeval try` may not write into this folder."""


class OutputFolder:
    """A folder of one team and model in which pcgeval replaces and removes only the files that it wrote itself.

    It may be opened at any time; `claim` and `publish` are for the one process that holds the lock `LOCK` in it.
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
        self._write_marker()

    def publish(self, made: Path, letters: str) -> None:
        """Copy the files below a folder to the same names here; older results of the same letters are removed."""
        names = [path.relative_to(made).as_posix() for path in files_below(made)]
        self.claim(names)
        for name in sorted(self._marker.files - set(names)):
            letter = name.split("/")[1].removesuffix(".json")  # of <stage>/<letter>/... or <stage>/<letter>.json
            if letter in letters and not name.startswith("raw/"):
                (self.folder / name).unlink(missing_ok=True)
                self._marker.files.remove(name)
        for name in names:
            write_bytes(self.folder / name, (made / name).read_bytes())
        self._write_marker()

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

    def _write_marker(self) -> None:
        write_json(self.folder / MARKER, {**dict(self._marker), "files": sorted(self._marker.files)})
