"""Everything that can be said about a submission before it is run: all findings at once."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.params import load_params
from pcgeval.submissions.dependencies import dependency_findings
from pcgeval.submissions.findings import Finding, error, warning
from pcgeval.submissions.load import (
    NOTES_FILE,
    Notes,
    Program,
    Prompt,
    SubmissionError,
    load_notes,
    load_work,
    prompt_findings,
)
from pcgeval.submissions.sources import look_through
from pcgeval.submissions.texts import prompt_text_findings, readme_findings, secret_findings
from pcgeval.submissions.unseeded import unseeded_random


@dataclass(frozen=True)
class Rules:
    """What the competition allows; as published for 2025, and for prompts in 2023 and 2024."""

    tokens: int = 25_000  # of a trial, prompts and replies together
    prompt_words: int = 900


@dataclass(frozen=True)
class Inspection:
    """What a submission is, None if that cannot be told, and all that was found."""

    notes: Notes
    work: Prompt | Program | None
    findings: tuple[Finding, ...]


def rules_of(params_file: Path = Path("params.yaml")) -> Rules:
    """Return the rules of the competition in this folder, or the published ones where there is none.

    Raises:
        ParamsError: There is a params.yaml, and it is faulty.
    """
    if not params_file.exists():
        return Rules()
    limits = load_params(params_file).limits
    return Rules(limits.tokens, limits.prompt_words)


def inspect(folder: Path, names: Iterable[str], rules: Rules) -> Inspection:
    """Look through a submission without running anything of it.

    Args:
        folder: Where its files lie; none of them is a link.
        names: The files that belong to it.
        rules: What the competition allows.
    """
    names = list(names)
    findings: list[Finding] = []
    notes, work = Notes(), None
    try:
        notes = load_notes(folder)
        work = load_work(folder, notes)
    except SubmissionError as fault:
        findings.append(error("", str(fault).replace(f"{folder}/", "").removeprefix(f"{folder}: ")))
    if notes.role != "participant" or notes.disqualified is not None:
        findings.append(
            warning(NOTES_FILE, "role and disqualified are the organiser's, who notes them once it is filed; left out")
        )
    findings += readme_findings(folder, work)
    if isinstance(work, Prompt):
        findings += [error("prompt.txt", text) for text in prompt_findings(work.text, rules.prompt_words)]
    if isinstance(work, Program):
        findings += _program_findings(work, names, rules)
    findings += secret_findings(folder, names)
    return Inspection(notes, work, tuple(findings))


def _program_findings(program: Program, names: list[str], rules: Rules) -> Iterator[Finding]:
    if "/" in program.entry:
        text = f"is started as `python {program.entry}` in the submission's folder; paths are relative to that folder"
        yield warning(program.entry, text)
    sources = look_through(program.folder, program.entry)
    yield from sources.findings
    yield from dependency_findings(program.folder, sources.imports)
    for flag in unseeded_random(program.folder):
        yield warning("", f"{flag.detail}; seed it, or the answers cannot be had again")
    yield from prompt_text_findings(program.folder, names, rules.tokens)
