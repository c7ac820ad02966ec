"""Check a submission as it was handed in and list every problem; nothing of it is run.

`pcgeval validate`, and the first half of `pcgeval submit`.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcgeval.core.console import count
from pcgeval.core.params import PARAMS_FILE, Limits, load_params
from pcgeval.core.untrusted import UntrustedFileError, read_bounded_text
from pcgeval.submissions.hand_in import (
    MAX_BYTES,
    MAX_FILES,
    SubmissionFinding,
    copy_files,
    error,
    in_order,
    opened,
    select,
    warning,
)
from pcgeval.submissions.load import (
    NOTES_FILE,
    PROMPT_FILE,
    STARTED_WITH_PYTHON,
    Notes,
    Program,
    Prompt,
    SubmissionError,
    load_notes,
    load_work,
    prompt_findings,
)
from pcgeval.submissions.packages import RequirementsError, read_requirements
from pcgeval.submissions.sources import INTERFACE_PACKAGES, PythonFile, find_readme, python_files, unseeded_random

PUBLISHED_LIMITS = Limits(tokens=25_000, seconds=500, prompt_words=900)  # of 2025, and for prompts of 2023 and 2024
MAX_README_BYTES = 1_000_000  # what a rubric reads of it
# these reach other machines; the program's only way out is the interface package
_NETWORK = """
    aiohttp anthropic boto3 ftplib google.genai google.generativeai groq http.client httpx huggingface_hub litellm
    mistralai ollama openai paramiko playwright requests selenium smtplib socket together urllib.request urllib3
    websocket websockets
"""


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


def validate(path: Path) -> SubmissionCheck:
    """Check a folder or a zip file by the limits of params.yaml, or by the published limits where there is none.

    Raises:
        ParamsError: There is a params.yaml, and it is faulty.
        HandInError: It is neither a folder nor a zip file.
        UntrustedFileError: The zip file is damaged, unpacks to too much, or names a place outside of its folder.
    """
    limits = load_params(Path(PARAMS_FILE)).limits if Path(PARAMS_FILE).exists() else PUBLISHED_LIMITS
    with opened(path) as folder:
        return check(folder, limits)


def check(folder: Path, limits: Limits, copy_to: Path | None = None) -> SubmissionCheck:
    """Choose the files of what was handed in and check them, or a copy of them.

    Args:
        folder: What was handed in.
        limits: What the competition allows.
        copy_to: An empty folder for the copy.
    """
    source, sizes, findings = select(folder)
    size = sum(sizes.values())
    if len(sizes) > MAX_FILES:
        text = f"has {len(sizes)} files; {MAX_FILES} are allowed. Put many small ones into one"
        findings.append(error("", text, "too-many-files"))
    elif size > MAX_BYTES:
        text = f"has {size} bytes; {MAX_BYTES} (1 GB) are allowed with all data. Leave out what is not read"
        findings.append(error("", text, "too-large"))
    elif sizes:
        if copy_to is not None:
            copy_files(source, sizes, copy_to)
        work, faults = _check_contents(copy_to or source, limits)
        return SubmissionCheck(len(sizes), size, work, (*findings, *faults))
    if sizes:
        findings.append(SubmissionFinding("note", "", "the contents of the files were not checked"))
    return SubmissionCheck(len(sizes), size, None, tuple(findings))


def _check_contents(folder: Path, limits: Limits) -> tuple[Prompt | Program | None, list[SubmissionFinding]]:
    """Return what would be run of a submission's files, and what is wrong with them."""
    findings: list[SubmissionFinding] = []
    notes, work, place, files = Notes(), None, "", list(python_files(folder))
    try:
        notes = load_notes(folder)
        work = load_work(folder, notes, files)
    except SubmissionError as fault:
        place = fault.place
        findings.append(error(place, fault.text, fault.code))
    if notes != notes.of_participant:
        text = "role and disqualified are left out: the organiser sets them after filing"
        findings.append(warning(NOTES_FILE, text))
    findings += _readme_findings(folder, work)
    is_chosen = notes.kind is None and notes.entry is None  # by us
    is_unused = (folder / PROMPT_FILE).is_file() and not any(file.names_prompt for file in files)
    if isinstance(work, Program) and is_chosen and is_unused:
        text = f"is not used: `python {work.entry}` is run. Remove one of them, or write `kind:` in {NOTES_FILE}"
        findings.append(warning(PROMPT_FILE, text))
    if work is not None:
        findings += work_findings(work, limits, files)
    elif files:
        findings += [finding for finding in _program_findings(folder, files, None) if finding.place != place]
    return work, findings


def work_findings(
    work: Prompt | Program, limits: Limits, files: list[PythonFile] | None = None
) -> list[SubmissionFinding]:
    """Return what is wrong with a prompt, or with a program's packages and its files, if these are known already."""
    if isinstance(work, Prompt):
        faults = prompt_findings(work.text, limits.prompt_words)
        return [error(PROMPT_FILE, text, code) for code, text in faults.items()]
    return list(_program_findings(work.folder, files or list(python_files(work.folder)), work.entry))


def _program_findings(folder: Path, files: list[PythonFile], entry: str | None) -> Iterator[SubmissionFinding]:
    """Yield what is wrong with a program's files and packages; `entry` starts it, if that is known."""
    for file in files:
        if file.fault:
            is_fatal = file.name == entry and file.is_broken
            yield error(file.place, file.fault, "syntax") if is_fatal else warning(file.place, file.fault)
        yield from _network_findings(file)
        if file.name == entry and file.starts > 1:
            text = f"calls run_evaluation {file.starts} times; a submission is one program, the first call"
            yield warning(file.name, text)
        if file.name == entry and file.starts and not file.has_main:
            text = 'has no `if __name__ == "__main__":`; put the call of run_evaluation under it, as the rules ask'
            yield warning(file.name, text)
    if entry is not None and "/" in entry:
        text = f"is started as `python {entry}` in the submission's folder; paths are relative to that folder"
        yield warning(entry, text)
    if entry is not None and not any(file.starts or file.fault for file in files):
        yield warning(entry, "never calls run_evaluation, without which no trial is run")
    for package in INTERFACE_PACKAGES:
        if (folder / package).is_dir() or (folder / f"{package}.py").is_file():
            yield warning(package, "is not used: the competition's own package replaces it; remove the copy")
    for flag in unseeded_random(files):
        yield warning("", f"{flag.detail}; use a fixed seed, or nobody can reproduce its answers")
    yield from _requirement_findings(folder)


def _requirement_findings(folder: Path) -> Iterator[SubmissionFinding]:
    try:
        read_requirements(folder)
    except RequirementsError as fault:
        for line in str(fault).splitlines():
            place, _, text = line.removeprefix(f"{folder}/").partition(": ")
            yield error(place, text, "requirements")


def _network_findings(file: PythonFile) -> Iterator[SubmissionFinding]:
    lines: dict[str, int] = {}  # the first of each module
    for line, module in file.modules:
        for name in {module, module.partition(".")[0]}.intersection(_NETWORK.split()):
            lines.setdefault(name, line)
    for module, line in lines.items():
        text = f"imports {module}: there is no network; the model is asked through chat_with_llm only"
        yield warning(f"{file.name}:{line}", text)


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
