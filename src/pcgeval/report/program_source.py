"""What a program consists of: its files, and the texts that tell a reader what it does."""

from pathlib import Path

from pcgeval.core.files import sha256_file
from pcgeval.core.untrusted import files_below
from pcgeval.report.reading import ReportError, read_start
from pcgeval.report.results import ProgramSource, SourceFile
from pcgeval.submissions.load import NOTES_FILE, Program
from pcgeval.submissions.sources import find_readme

LONGEST_TEXT = 6_000  # characters of the entry and of the README


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
        readme=read_start(readme, LONGEST_TEXT) if readme else None,
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
