"""The stages extract and convert: from the responses of all models and teams to code, and from code to levels."""

from collections.abc import Callable
from itertools import product
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import rewritten_folder, write_text
from pcgeval.core.layout import DATA, StageDir, Trial, stage_dir, trial_file, trials
from pcgeval.core.params import Params
from pcgeval.core.stage_files import TrialOutcome, failed
from pcgeval.core.untrusted import UntrustedFileError, read_bounded_text
from pcgeval.levels.errors import LevelError
from pcgeval.levels.extraction import extract_code, no_code_reason
from pcgeval.levels.xml import level_xml

MAX_BYTES = 16 * 2**20  # of one response; 25 000 tokens are about a hundredth of it


def extract_stage(params: Params, root: Path = Path()) -> None:
    """Write the code of each response to `data/intermediate`; a response without code gets no file.

    Args:
        params: The competition.
        root: Its folder, with the responses in `data/raw`.

    Raises:
        FileError: The responses of a team are missing, or a file cannot be read or written.
    """
    for model, team in product(params.models, params.teams):
        if not (root / stage_dir("raw", model, team)).is_dir():
            raise FileError(f"{stage_dir('raw', model, team)}: is missing. Run `dvc repro` to ask the model.")
    _convert_all(params, root, "raw", "intermediate", _code)


def convert_stage(params: Params, root: Path = Path()) -> None:
    """Write the level of each code file to `data/levels`; code with any fault gets no level.

    Raises:
        FileError: As for `extract_stage`.
    """
    _convert_all(params, root, "intermediate", "levels", level_xml)


def missing_level(response: Path, trial: Trial, failure: str | None) -> TrialOutcome:
    """Return why a trial has no level: the trial failed, or its response or code has a fault.

    Args:
        response: The file of the response.
        trial: The trial.
        failure: Why the trial failed, if it did.

    Raises:
        FileError: The response cannot be read.
    """
    if failure is not None:
        return failed(trial, "generate", failure)
    try:
        code = _code(_read(response))
    except LevelError as error:
        return failed(trial, "extract", error.reason)
    try:
        level_xml(code)
    except LevelError as error:
        return failed(trial, "convert", error.reason)
    return failed(trial, "convert", "the level file is missing")


def _convert_all(params: Params, root: Path, source: StageDir, target: StageDir, convert: Callable[[str], str]) -> None:
    with rewritten_folder(root / DATA / target, keep=root / DATA / source):
        for model, team in product(params.models, params.teams):
            source_folder, target_folder = (root / stage_dir(name, model, team) for name in (source, target))
            for trial in trials(params):
                try:
                    text = convert(_read(trial_file(source_folder, source, team, trial)))
                except LevelError:
                    continue
                write_text(trial_file(target_folder, target, team, trial), text)


def _code(response: str) -> str:
    code = extract_code(response)
    if code is None:
        raise LevelError(no_code_reason(response))
    return code


def _read(path: Path) -> str:
    """Read a trial's file; a fault of its author raises LevelError, a fault of this machine FileError."""
    try:
        return read_bounded_text(path, MAX_BYTES, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        if error.kind in {"missing", "too large", "malformed"}:
            raise LevelError(f"{path.name} {error.reason}") from error
        raise
