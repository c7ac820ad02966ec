"""Check a submission as it was handed in and list every problem; nothing of it is run.

`pcgeval validate`, and the first half of `pcgeval submit`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcgeval.core.console import count
from pcgeval.core.params import Limits, load_params
from pcgeval.core.untrusted import UntrustedFileError, read_bounded_text
from pcgeval.submissions.findings import SubmissionFinding, error, in_order, note, warning
from pcgeval.submissions.hand_in import copy_files, opened, select
from pcgeval.submissions.lint import STARTED_WITH_PYTHON, source_findings
from pcgeval.submissions.load import (
    PROMPT_FILE,
    Notes,
    Program,
    Prompt,
    SubmissionError,
    load_notes,
    load_work,
    prompt_findings,
)
from pcgeval.submissions.names import NOTES_FILE
from pcgeval.submissions.requirements import requirement_findings
from pcgeval.submissions.sources import PythonFile, find_readme, python_files

PUBLISHED_LIMITS = Limits(tokens=25_000, seconds=500, prompt_words=900)  # of 2025, and for prompts of 2023 and 2024
MAX_README_BYTES = 1_000_000  # what a rubric reads of it


@dataclass(frozen=True)
class SubmissionCheck:
    """The kind of a submission, as far as that can be told, and all findings."""

    files: int
    size: int  # bytes
    work: Prompt | Program | None
    findings: tuple[SubmissionFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether it can be filed."""
        return all(finding.severity != "error" for finding in self.findings)

    @property
    def kind(self) -> str | None:
        """`prompt`, `program`, or None if that cannot be told."""
        return None if self.work is None else "program" if isinstance(self.work, Program) else "prompt"

    @property
    def summary(self) -> str:
        """Its kind and size in a few words."""
        start = f", started as `python {self.work.entry}`" if isinstance(self.work, Program) else ""
        amount = f"{count(self.files, 'file')}, {self.size} bytes"
        return f"a {self.kind}{start}, {amount}" if self.kind else amount

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "passed": self.passed,
            "kind": self.kind,
            "entry": self.work.entry if isinstance(self.work, Program) else None,
            "files": self.files,
            "bytes": self.size,
            "findings": [asdict(finding) for finding in in_order(self.findings)],
        }


def limits_of(params_file: Path = Path("params.yaml")) -> Limits:
    """Return the limits of the competition in this folder, or the published ones where there is none.

    Raises:
        ParamsError: There is a params.yaml, and it is faulty.
    """
    return load_params(params_file).limits if params_file.exists() else PUBLISHED_LIMITS


def validate(path: Path, limits: Limits = PUBLISHED_LIMITS) -> SubmissionCheck:
    """Check a folder or a zip file.

    Raises:
        HandInError: It is neither a folder nor a zip file.
        UntrustedFileError: The zip file is damaged, unpacks to too much, or names a place outside of its folder.
    """
    with opened(path) as folder:
        return check(folder, limits)


def check(folder: Path, limits: Limits, copy_to: Path | None = None) -> SubmissionCheck:
    """Choose the files of what was handed in and check them, or a copy of them.

    Args:
        folder: What was handed in.
        limits: What the competition allows.
        copy_to: An empty folder for the copy.
    """
    selected = select(folder)
    findings, work = list(selected.findings), None
    if selected.is_bounded and selected.sizes:
        if copy_to is not None:
            copy_files(selected, copy_to)
        work = _check_contents(copy_to or selected.folder, list(selected.sizes), limits, findings)
    elif any(finding.severity == "error" for finding in findings):
        findings.append(note("", "the contents of the files were not checked"))
    return SubmissionCheck(len(selected.sizes), sum(selected.sizes.values()), work, tuple(findings))


def _check_contents(
    folder: Path, names: list[str], limits: Limits, findings: list[SubmissionFinding]
) -> Prompt | Program | None:
    """Add what is found in a submission's files, none of which is a link; return what would be run."""
    notes, work, place, files = Notes(), None, "", list(python_files(folder))
    try:
        notes = load_notes(folder)
        work = load_work(folder, notes, files)
    except SubmissionError as fault:
        text = str(fault).replace(f"{folder}/", "").removeprefix(f"{folder}: ").removeprefix(f"{fault.place}: ")
        findings.append(error(fault.place, text.removesuffix("."), fault.code))
        place = fault.place
    if notes != notes.of_participant:
        text = "role and disqualified are left out: the organiser sets them after filing"
        findings.append(warning(NOTES_FILE, text))
    findings += _readme_findings(folder, work)
    if isinstance(work, Program):
        is_chosen = notes.kind is None and notes.entry is None
        if is_chosen and PROMPT_FILE in names and not any(file.names_prompt for file in files):
            text = f"is not used: `python {work.entry}` is run. Remove one of them, or write `kind:` in {NOTES_FILE}"
            findings.append(warning(PROMPT_FILE, text))
    if work is not None:
        findings += work_findings(work, limits, files)
    elif files:
        findings += [finding for finding in _program_findings(folder, None, files) if finding.place != place]
    return work


def work_findings(
    work: Prompt | Program, limits: Limits, files: Sequence[PythonFile] | None = None
) -> list[SubmissionFinding]:
    """Return what is wrong with a prompt, or with a program's packages and its files, which may be known already."""
    if isinstance(work, Program):
        files = list(python_files(work.folder)) if files is None else files
        return _program_findings(work.folder, work.entry, files)
    faults = prompt_findings(work.text, limits.prompt_words)
    return [error(PROMPT_FILE, text, code) for code, text in faults.items()]


def _program_findings(folder: Path, entry: str | None, files: Sequence[PythonFile]) -> list[SubmissionFinding]:
    """Return what is wrong with a program's files and packages; `entry` starts it, if that is known."""
    findings: list[SubmissionFinding] = []
    if entry is not None and "/" in entry:
        text = f"is started as `python {entry}` in the submission's folder; paths are relative to that folder"
        findings.append(warning(entry, text))
    findings += source_findings(folder, files, entry)
    findings += requirement_findings(folder)
    return findings


def _readme_findings(folder: Path, work: Prompt | Program | None) -> Iterator[SubmissionFinding]:
    """Yield what is wrong with the README: the rules ask for one that describes the approach and how to run it."""
    readme = find_readme(folder)
    if readme is None:
        yield error("", "has no README.md; describe the team, the approach and how to run it", "no-readme")
        return
    if readme.name != "README.md":
        yield warning(readme.name, "is not called README.md; rename it")
    try:
        text = read_bounded_text(readme, MAX_README_BYTES)
    except UntrustedFileError as fault:
        yield error(readme.name, f"{fault.reason}. {fault.remedy}", "unreadable")
        return
    if not text.strip("\ufeff \t\r\n"):
        yield error(readme.name, "is empty; describe the team, the approach and how to run it", "empty-readme")
    elif isinstance(work, Program) and not STARTED_WITH_PYTHON.search(text):
        yield warning(readme.name, f"does not say how to run the program, such as `python {work.entry}`")
