"""The stages extract and convert over the files of one team and model: responses to code, code to levels."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.files import empty_folder, write_text
from pcgeval.core.layout import StageDir, Trial, trial_file
from pcgeval.core.stage_files import StageName, TrialOutcome, failed, read_outcomes, succeeded, write_outcomes
from pcgeval.core.untrusted import UntrustedFileError, read_bounded_text
from pcgeval.levels.errors import LevelError
from pcgeval.levels.extraction import extract_code, no_code_reason
from pcgeval.levels.xml import level_xml

MAX_BYTES = 16 * 2**20  # of one response; 25 000 tokens are about a hundredth of it


def extract_stage(raw: Path, intermediate: Path, team: str, trials: Iterable[Trial]) -> list[TrialOutcome]:
    """Write the code of each response of a team, and the outcome of each trial, into an emptied folder.

    Args:
        raw: The folder of one model and team with the responses and their `trials.json`.
        intermediate: The folder to fill, `<letter>/<team>_<letter>_<trial>.txt`.
        team: The team's name, part of the file names.
        trials: The trials to go through; a trial that failed before is carried on.

    Raises:
        FileError: `trials.json` or a file that is there cannot be read, or the folder cannot be emptied.
    """
    return _run(_Work("extract", "raw", "intermediate", _code), raw, intermediate, team, trials)


def convert_stage(intermediate: Path, levels: Path, team: str, trials: Iterable[Trial]) -> list[TrialOutcome]:
    """Write the level of each code file of a team, like `extract_stage`; a level with any fault is discarded whole.

    Raises:
        FileError: As for `extract_stage`.
    """
    return _run(_Work("convert", "intermediate", "levels", level_xml), intermediate, levels, team, trials)


@dataclass(frozen=True)
class _Work:
    stage: StageName
    source: StageDir
    target: StageDir
    convert: Callable[[str], str]  # raises LevelError


def _run(work: _Work, source: Path, target: Path, team: str, trials: Iterable[Trial]) -> list[TrialOutcome]:
    previous = read_outcomes(source)
    empty_folder(target, keep=source)
    outcomes = []
    for trial in trials:
        outcome = previous.get(trial, failed(trial, work.stage, f"the {work.source} folder lists no such trial"))
        if outcome.reason is None:
            try:
                text = work.convert(_read(trial_file(source, work.source, team, trial)))
            except LevelError as error:
                outcome = failed(trial, work.stage, error.reason)
            else:
                write_text(trial_file(target, work.target, team, trial), text)
                outcome = succeeded(trial)
        outcomes.append(outcome)
    write_outcomes(target, outcomes)
    return outcomes


def _code(response: str) -> str:
    code = extract_code(response)
    if code is None:
        raise LevelError(no_code_reason(response))
    return code


def _read(path: Path) -> str:
    """Read a trial's file; what its author may have caused is a LevelError, a fault of this machine a FileError."""
    try:
        return read_bounded_text(path, MAX_BYTES, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        if error.kind in {"missing", "too large", "malformed"}:
            raise LevelError(f"{path.name} {error.reason}") from error
        raise
