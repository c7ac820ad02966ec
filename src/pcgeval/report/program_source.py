"""What a program consists of: its files, and the texts that tell a reader what it does."""

from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.files import files_below, sha256_file, sha256_json
from pcgeval.report.reading import ReportError, read_start
from pcgeval.submissions.entry_point import find_readme
from pcgeval.submissions.load import NOTES_FILE, Program

LONGEST_TEXT = 6_000  # characters of the entry and of the README


@dataclass(frozen=True)
class SourceFile:
    """One file: its name relative to the program's folder, its length in bytes, and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class ProgramSource:
    """A program as it was run.

    Attributes:
        entry: The file that starts it.
        entry_text: The start of that file.
        readme: The start of its README; None if there is none.
        files: All files but the organiser's notes, in byte order of their names.
    """

    entry: str
    entry_text: str
    readme: str | None
    files: tuple[SourceFile, ...]

    @property
    def sha256(self) -> str:
        """The SHA-256 of all names and contents together."""
        return sha256_json([[file.name, file.sha256] for file in self.files])


def read_program(program: Program) -> ProgramSource:
    """Read what the page shows of a program; links are left out.

    Raises:
        ReportError: A file cannot be read.
    """
    readme = find_readme(program.folder)
    names = (path.relative_to(program.folder) for path in files_below(program.folder))
    return ProgramSource(
        entry=program.entry,
        entry_text=read_start(program.folder / program.entry, LONGEST_TEXT),
        readme=read_start(readme, LONGEST_TEXT) if readme and not readme.is_symlink() else None,
        files=tuple(_source_file(program.folder, name) for name in names if _is_own(name)),
    )


def _is_own(name: Path) -> bool:
    return name != Path(NOTES_FILE) and "__pycache__" not in name.parts


def _source_file(folder: Path, name: Path) -> SourceFile:
    path = folder / name
    try:
        return SourceFile(name.as_posix(), path.stat().st_size, sha256_file(path))
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror}). Make it a readable file.") from error
