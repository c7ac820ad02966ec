"""The stages extract and convert: from the responses of all models and teams to code, and from code to levels.

Each writes `failures.json` beside its files: the trials without one, with those of the stages before.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from itertools import product
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.core.untrusted import UntrustedFileError, read_text
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import DATA, StageDir, Trial, stage_dir, summaries_file, trial_file
from pcgeval.formats.params import Params
from pcgeval.formats.stages import changed_teams, read_failures, write_failures
from pcgeval.formats.trials import TrialSummary, read_summaries
from pcgeval.levels.conversion import LevelError, extract_code, level_xml, why_no_code

MAX_BYTES = 16 * 2**20  # of one response; 25 000 tokens are about a hundredth of it


def extract_stage(params: Params, root: Path = Path()) -> None:
    """Write the code of each response to `data/intermediate`; a response without code is in `failures.json`.

    Args:
        params: The competition.
        root: Its folder, with the responses in `data/raw` and the summaries of the trials in `data/trials`.

    Raises:
        FileError: The responses of a team are missing, or a file cannot be read or written.
    """
    for model, team in product(params.models, params.teams):
        if not (root / stage_dir("raw", model, team)).is_dir():
            raise FileError(f"{stage_dir('raw', model, team)}: is missing. Run `dvc repro` to ask the model.")
    with _changed_teams(params, root, "raw", "intermediate", summaries_file) as changed:
        for model, team in changed:
            summaries = read_summaries(root / summaries_file(model, team))
            codes = {
                trial: _code(_file(root, "raw", model, team, trial), summaries.get(trial)) for trial in params.trials()
            }
            _write(root, "intermediate", model, team, codes)


def convert_stage(params: Params, root: Path = Path()) -> None:
    """Write the level of each code file to `data/levels`; code with any fault is in `failures.json`.

    Raises:
        FileError: As for `extract_stage`.
    """
    with _changed_teams(params, root, "intermediate", "levels") as changed:
        for model, team in changed:
            before = read_failures(root / stage_dir("intermediate", model, team))
            levels: dict[Trial, str | Failure] = {}
            for trial in params.trials():
                code = _file(root, "intermediate", model, team, trial)
                levels[trial] = before[trial] if trial in before and not code.exists() else _level(code)
            _write(root, "levels", model, team, levels)


def _changed_teams(
    params: Params, root: Path, source: StageDir, target: StageDir, *others: Callable[[str, str], Path]
) -> AbstractContextManager[list[tuple[str, ...]]]:
    return changed_teams(
        params,
        root,
        [DATA / target],
        DATA / source,
        reads=lambda model, team: [stage_dir(source, model, team), *(file(model, team) for file in others)],
        writes=lambda model, team: [stage_dir(target, model, team)],
        made_from=lambda *_: [params.competition.characters, params.competition.trials],
    )


def _write(root: Path, name: StageDir, model: str, team: str, outcomes: Mapping[Trial, str | Failure]) -> None:
    """Write the files of a team's trials with a model, and `failures.json` for those that have none."""
    for trial, outcome in outcomes.items():
        if isinstance(outcome, str):
            write_text(_file(root, name, model, team, trial), outcome)
    failures = {trial: outcome for trial, outcome in outcomes.items() if isinstance(outcome, Failure)}
    write_failures(root / stage_dir(name, model, team), failures)


def _file(root: Path, name: StageDir, model: str, team: str, trial: Trial) -> Path:
    return trial_file(root / stage_dir(name, model, team), name, team, trial)


def _code(path: Path, summary: TrialSummary | None) -> str | Failure:
    """Return the calls of a response; the end of the reply, if it tells why there are none, is known best."""
    if summary is not None and summary.failure is not None:
        return summary.failure
    try:
        response = _read(path)
    except UntrustedFileError as error:
        return failure("response-unreadable", fault=error.reason)
    code = extract_code(response)
    if code is None:
        return summary.ending if summary and summary.ending else why_no_code(response)
    return code


def _level(path: Path) -> str | Failure:
    try:
        return level_xml(_read(path))
    except LevelError as error:
        return error.failure
    except UntrustedFileError as error:
        return failure("code-unreadable", fault=error.reason)


def _read(path: Path) -> str:
    """Read a trial's file; a fault of its author raises UntrustedFileError, a fault of this machine FileError."""
    try:
        return read_text(path, MAX_BYTES, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        if error.kind in {"missing", "too large", "malformed"}:
            raise
        raise FileError(str(error)) from error
