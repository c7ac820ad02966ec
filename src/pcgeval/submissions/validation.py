"""Checking a submission as it was handed in: `pcgeval validate`, and the first half of `pcgeval submit`."""

import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcgeval.submissions.findings import Finding, has_errors, note
from pcgeval.submissions.folder import FolderHandIn
from pcgeval.submissions.handed_in import HandIn, HandInError
from pcgeval.submissions.inspection import Rules, inspect
from pcgeval.submissions.load import Notes, Program, Prompt
from pcgeval.submissions.selection import copy_files, select
from pcgeval.submissions.zip_file import ZipHandIn


@dataclass(frozen=True)
class Check:
    """What a submission is, as far as that can be told, and all that was found."""

    files: int
    size: int  # bytes
    notes: Notes
    work: Prompt | Program | None
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        """Whether it can be taken."""
        return not has_errors(self.findings)

    @property
    def kind(self) -> str | None:
        """`prompt`, `program`, or None if that cannot be told."""
        return None if self.work is None else "program" if isinstance(self.work, Program) else "prompt"

    @property
    def summary(self) -> str:
        """What it is, in a few words."""
        start = f", started as `python {self.work.entry}`" if isinstance(self.work, Program) else ""
        amount = f"{self.files} file{'' if self.files == 1 else 's'}, {self.size} bytes"
        return f"a {self.kind}{start}, {amount}" if self.kind else amount

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "passed": self.passed,
            "kind": self.kind,
            "entry": self.work.entry if isinstance(self.work, Program) else None,
            "files": self.files,
            "bytes": self.size,
            "findings": [asdict(finding) for finding in self.findings],
        }


def validate(path: Path, rules: Rules) -> Check:
    """Check a folder in place, or a zip file in a temporary folder; nothing of it is run.

    Raises:
        HandInError: It is neither a folder nor a zip file.
    """
    with opened(path) as hand_in, tempfile.TemporaryDirectory(prefix="pcgeval-") as folder:
        return check(hand_in, rules, Path(folder), in_place=path if isinstance(hand_in, FolderHandIn) else None)


def check(hand_in: HandIn, rules: Rules, target: Path, in_place: Path | None = None) -> Check:
    """List what was handed in, copy it, and look through the copy.

    Args:
        hand_in: The folder or zip file.
        rules: What the competition allows.
        target: An empty folder for the copy.
        in_place: The folder itself, to look through that and copy nothing.
    """
    selection = select(hand_in.listing())
    findings = list(selection.findings)
    notes, work = Notes(), None
    damage = [] if in_place or not selection.is_bounded else copy_files(hand_in, selection, target)
    findings += damage
    if selection.is_bounded and selection.files and not damage:
        folder = in_place / selection.prefix if in_place else target
        inspection = inspect(folder, selection.files, rules)
        notes, work = inspection.notes, inspection.work
        findings += inspection.findings
    elif has_errors(findings):
        findings.append(note("", "what is in the files was not looked at"))
    return Check(len(selection.files), selection.size, notes, work, tuple(findings))


@contextmanager
def opened(path: Path) -> Iterator[HandIn]:
    """Open what was handed in.

    Raises:
        HandInError: It is neither a folder nor a zip file.
    """
    if path.is_dir():
        yield FolderHandIn(path)
        return
    if not path.exists():
        raise HandInError(f"{path}: there is no such file or folder. Name a submission's folder or its zip file.")
    if not path.is_file() or (path.suffix.lower() != ".zip" and not zipfile.is_zipfile(path)):
        raise HandInError(f"{path}: is neither a folder nor a zip file. Pack the submission as a .zip file.")
    hand_in = ZipHandIn(path)
    try:
        yield hand_in
    finally:
        hand_in.close()
