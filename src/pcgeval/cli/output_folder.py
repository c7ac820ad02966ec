"""The output folder of `pcgeval try`, in which no file is replaced or removed that pcgeval did not write."""

import os
from collections.abc import Iterable
from pathlib import Path

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_json, write_bytes, write_json
from pcgeval.core.untrusted import files_below

MARKER = ".pcgeval-try.json"  # whose folder it is, and the files that pcgeval wrote there


class OutputFolderError(PcgevalError):
    """`pcgeval try` may not write into this folder."""


class OutputFolder:
    """A folder of one team and model in which pcgeval replaces and removes only the files that it wrote itself."""

    def __init__(self, folder: Path, team: str, model: str) -> None:
        """Take a folder that is new, empty, or of an earlier try of the same team and model.

        Raises:
            OutputFolderError: It is none of them.
        """
        self.folder, self._owner = folder, {"team": team, "model": model}
        self._files: set[str] = set()  # relative to the folder
        if (folder / MARKER).is_file():
            marker = read_json(folder / MARKER)
            try:
                self._files, owner = set(marker.pop("files")), marker
            except (AttributeError, KeyError, TypeError) as error:
                raise OutputFolderError(f"{folder / MARKER}: was altered. Name another folder with --out.") from error
            if owner != self._owner:
                raise OutputFolderError(
                    f"{folder}: holds {owner.get('team')} with {owner.get('model')}, not {team} with {model}. "
                    "Name another folder with --out."
                )
        elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise OutputFolderError(
                f"{folder}: already exists and `pcgeval try` did not make it. Name a new or empty folder with --out."
            )

    def claim(self, files: Iterable[str]) -> None:
        """List files as pcgeval's own before they are written.

        Raises:
            OutputFolderError: Somebody else's file has one of the names.
        """
        new = set(files) - self._files
        for name in sorted(new):
            if os.path.lexists(self.folder / name):
                raise OutputFolderError(f"{self.folder / name}: pcgeval did not write this file. Move it elsewhere.")
        self._files |= new
        self._write_marker()

    def publish(self, made: Path, letters: str) -> None:
        """Copy the files below a folder to the same names here; older results of the same letters are removed."""
        names = [path.relative_to(made).as_posix() for path in files_below(made)]
        self.claim(names)
        stale = {name for name in self._files - set(names) if _letter(name) in letters and not name.startswith("raw/")}
        for name in sorted(stale):
            (self.folder / name).unlink(missing_ok=True)
        for name in names:
            write_bytes(self.folder / name, (made / name).read_bytes())
        self._files -= stale
        self._write_marker()

    def _write_marker(self) -> None:
        write_json(self.folder / MARKER, {**self._owner, "files": sorted(self._files)})


def _letter(name: str) -> str:
    """Return the letter of `<step>/<letter>/...` or `<step>/<letter>.json`, or another word."""
    return name.split("/")[1].removesuffix(".json")
