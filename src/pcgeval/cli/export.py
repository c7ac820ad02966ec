"""The pipeline's data in the official tools' own layout, so that any step can be swapped for the official one."""

import shutil
from pathlib import Path

from pcgeval.core.files import FileError
from pcgeval.core.layout import EXTENSIONS, STAGE_DIRS, stage_dir, tag, trials
from pcgeval.core.params import Params


def export_official(params: Params, target: Path) -> int:
    """Copy every official file to `<target>/<model>/<team>/<step>/...`; return how many.

    Raises:
        FileError: The target is there and not empty, or nothing has been evaluated yet.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target}: is there already and not empty. Name a new folder, or empty it.")
    copied = 0
    for model in params.models:
        for team in params.teams:
            for step in STAGE_DIRS:
                source = stage_dir(step, model, team)
                for relative in _official_names(params, team, EXTENSIONS.get(step)):
                    copied += _copy(source / relative, target / model / team / step / relative)
    if not copied:
        raise FileError("data: holds no results of this competition yet. Run `make final-eval` first.")
    return copied


def _official_names(params: Params, team: str, extension: str | None) -> list[Path]:
    if extension is None:
        return [Path(f"{letter}.json") for letter in params.competition.characters]
    return [Path(trial.letter, tag(team, trial) + extension) for trial in trials(params)]


def _copy(source: Path, target: Path) -> int:
    if not source.is_file():
        return 0
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    return 1
