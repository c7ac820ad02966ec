"""The stages extract and convert: from the responses of all models and teams to code, and from code to levels.

Each writes `failures.json` beside its files: the trials that have none, with the failure that this or an earlier stage
found.
"""

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.failures import Failure, failure
from pcgeval.core.files import rewritten_folder, write_text
from pcgeval.core.layout import DATA, StageDir, Trial, stage_dir, summaries_file, trial_file, trials
from pcgeval.core.params import Params
from pcgeval.core.stage_files import read_failures, write_failures
from pcgeval.core.trials import read_summaries
from pcgeval.core.untrusted import UntrustedFileError, read_bounded_text
from pcgeval.levels.errors import LevelError
from pcgeval.levels.extraction import extract_code
from pcgeval.levels.unread import why_no_code
from pcgeval.levels.xml import level_xml

MAX_BYTES = 16 * 2**20  # of one response; 25 000 tokens are about a hundredth of it


def extract_stage(params: Params, root: Path = Path()) -> None:
    """Write the code of each response to `data/intermediate`; a response without code gets no file.

    Args:
        params: The competition.
        root: Its folder, with the responses in `data/raw` and what generate says of them in `data/trials`.

    Raises:
        FileError: The responses of a team are missing, or a file cannot be read or written.
    """
    for model, team in product(params.models, params.teams):
        if not (root / stage_dir("raw", model, team)).is_dir():
            raise FileError(f"{stage_dir('raw', model, team)}: is missing. Run `dvc repro` to ask the model.")
    with rewritten_folder(root / DATA / "intermediate", keep=root / DATA / "raw"):
        for model, team in product(params.models, params.teams):
            summaries = read_summaries(root / summaries_file(model, team))
            known = {trial: summary.failure for trial, summary in summaries.items() if summary.failure}
            endings = {trial: summary.ending for trial, summary in summaries.items() if summary.ending}
            _convert_team(params, root, (model, team), ("raw", "intermediate"), _code, known, endings)


def convert_stage(params: Params, root: Path = Path()) -> None:
    """Write the level of each code file to `data/levels`; code with any fault gets no level.

    Raises:
        FileError: As for `extract_stage`.
    """
    with rewritten_folder(root / DATA / "levels", keep=root / DATA / "intermediate"):
        for model, team in product(params.models, params.teams):
            known = read_failures(root / stage_dir("intermediate", model, team))
            _convert_team(params, root, (model, team), ("intermediate", "levels"), level_xml, known, {})


def _convert_team(
    params: Params,
    root: Path,
    place: tuple[str, str],
    stages: tuple[StageDir, StageDir],
    convert: Callable[[str], str],
    known: Mapping[Trial, Failure],
    endings: Mapping[Trial, Failure],
) -> None:
    """Convert the files of a model and a team, and write the failures; those of earlier stages are known."""
    (model, team), (source, target) = place, stages
    source_folder, target_folder = (root / stage_dir(name, model, team) for name in stages)
    failures = {}
    for trial in trials(params):
        try:
            if trial in known:
                failures[trial] = known[trial]
                continue
            text = convert(_read(trial_file(source_folder, source, team, trial), source))
        except LevelError as error:
            failures[trial] = endings.get(trial) or error.failure
            continue
        write_text(trial_file(target_folder, target, team, trial), text)
    write_failures(target_folder, failures)


def _code(response: str) -> str:
    code = extract_code(response)
    if code is None:
        raise LevelError(why_no_code(response))
    return code


def _read(path: Path, source: StageDir) -> str:
    """Read a trial's file; a fault of its author raises LevelError, a fault of this machine FileError."""
    try:
        return read_bounded_text(path, MAX_BYTES, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        if error.kind == "missing" and source == "raw":
            raise LevelError(failure("response-missing")) from error
        if error.kind in {"missing", "too large", "malformed"}:
            kind = "response-unreadable" if source == "raw" else "code-unreadable"
            raise LevelError(failure(kind, fault=error.reason)) from error
        raise
