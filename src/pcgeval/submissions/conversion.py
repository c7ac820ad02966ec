"""Convert a competition of an older pcgeval: decisions move to params.yaml, locks to data/locks.

Older competitions list their teams in params.yaml; the organiser's decisions about a team stand in `submission.yaml` in
its folder, and the lock of its packages is `requirements-lock.txt` beside it. Once params.yaml has the present form,
files of these names are the team's own.
"""

import shutil
from pathlib import Path

from pcgeval.core.layout import LOCKS, PACKAGED_DATA, SUBMISSIONS, packages_lock
from pcgeval.core.params import PARAMS_FILE, ParamsError, Team, convert_teams
from pcgeval.core.untrusted import UntrustedFileError, parse_yaml, read_bounded_text
from pcgeval.submissions.packages import MAX_LOCK_BYTES, is_lock

_NOTES, _LOCK = "submission.yaml", "requirements-lock.txt"
_MAX_BYTES = 2**18


def convert_submissions(root: Path) -> bool:
    """Convert params.yaml and the submissions of a competition's folder; return whether they had the old form.

    A `submission.yaml` with other keys than the organiser's four, and a `requirements-lock.txt` that is no lock, stay:
    they are files of the team.

    Raises:
        ParamsError: params.yaml cannot be read, or its list of teams cannot be converted.
    """
    if not (root / LOCKS).is_dir():
        shutil.copytree(PACKAGED_DATA / LOCKS.name, root / LOCKS, copy_function=shutil.copyfile)
    path = root / PARAMS_FILE
    try:
        values = parse_yaml(read_bounded_text(path, _MAX_BYTES, follow_link=True), allow_aliases=True)
    except ValueError as error:
        raise ParamsError(f"{path}: not valid YAML: {error}. Correct it.") from error
    teams = values.get("teams") if isinstance(values, dict) else None
    if not isinstance(teams, list):
        return False
    if not all(isinstance(team, str) for team in teams):
        raise ParamsError(f"{path}: `teams` holds something else than names. Correct it.")
    folders = {team: root / SUBMISSIONS / team for team in teams}
    notes = {team: _notes(folder) for team, folder in folders.items()}
    locks = [folder for folder in folders.values() if is_lock(_text(folder / _LOCK, MAX_LOCK_BYTES))]
    for folder in locks:
        shutil.copyfile(folder / _LOCK, packages_lock(folder))
    convert_teams({team: decisions or Team() for team, decisions in notes.items()}, path)
    for folder in locks:
        (folder / _LOCK).unlink()
    for team, decisions in notes.items():
        if decisions is not None:
            (folders[team] / _NOTES).unlink()
    return True


def _notes(folder: Path) -> Team | None:
    """Return the organiser's decisions in a folder; None without its file."""
    try:
        return Team.model_validate(parse_yaml(_text(folder / _NOTES, _MAX_BYTES)))
    except ValueError:
        return None


def _text(path: Path, limit: int) -> str:
    """Return the text of a file; an empty one if it cannot be read."""
    try:
        return read_bounded_text(path, limit)
    except UntrustedFileError:
        return ""
