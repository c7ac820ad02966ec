"""Keep a program's files as they are when its evaluation starts, whatever happens to the submission meanwhile."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_file, sha256_json
from pcgeval.core.untrusted import open_regular, path_below
from pcgeval.submissions.load import Program, Submission


@contextmanager
def submission_snapshot(submission: Submission, folder: Path) -> Iterator[Submission]:
    """Yield the submission with a copy of its program, which is removed at the end; a prompt is in memory already.

    Args:
        submission: The submission; messages go on to name its own folder.
        folder: Where the copy goes, `<SHA-256 of names and files>/<team>`. It belongs to the one process that holds
            the lock of the model and team; what a killed run left in it is removed.

    Raises:
        FileError: A file cannot be copied.
    """
    work = submission.work
    if not isinstance(work, Program):
        yield submission
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        copy = _copied(work, folder, submission.team)
        yield replace(submission, work=replace(work, folder=copy, original=work.folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(program: Program, folder: Path, team: str) -> Path:
    """Copy a program's files, readable to all and writable to nobody, and return the copy's folder."""
    part = folder / "part" / team
    names = program.files()
    try:
        part.mkdir(parents=True)
        for name in names:
            target = part / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with open_regular(path_below(program.folder, name)) as source, target.open("xb") as file:
                shutil.copyfileobj(source, file)
                status = os.fstat(source.fileno())
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
            target.chmod(0o444 | status.st_mode & 0o111)
        content = sha256_json([[name, sha256_file(part / name)] for name in names])
        part.parent.rename(folder / content)
    except OSError as error:
        raise FileError(
            f"{program.folder}: cannot be copied to {folder} ({error.strerror}). Make room on its disk, then run again."
        ) from error
    return folder / content / team
