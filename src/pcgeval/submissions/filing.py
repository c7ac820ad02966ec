"""File a submission: check it, copy it to data/submissions/<team>, and add the team to params.yaml.

The copy is made elsewhere and then moved, so a killed run leaves no half of a submission. A submission that is replaced
moves to `.pcgeval/replaced`, under its team's name until the new one is in place.
"""

import io
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString, ScalarString

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import copy_files, to_json, tree_files, write_text
from pcgeval.core.locks import lock_folder
from pcgeval.core.text import printable_name
from pcgeval.core.untrusted import UntrustedFileError, parse_yaml, read_text
from pcgeval.formats.layout import DATA, LOCKS, PACKAGED_DATA, STATE, SUBMISSIONS, SUBMIT_LOCK, packages_lock
from pcgeval.formats.params import PARAMS_FILE, ParamsError, Team, load_params, parse_params, team_name_fault
from pcgeval.submissions.load import submission_sha256
from pcgeval.submissions.packages import MAX_LOCK_BYTES, is_lock
from pcgeval.submissions.validate import SubmissionCheck, check, name_fault, unpacked_submission

PARAMS = Path(PARAMS_FILE)
STAGING = STATE / "submit"
REPLACED = STATE / "replaced"
_NOTES, _LOCK = "submission.yaml", "requirements-lock.txt"  # of older versions, in the submission's folder
_MAX_BYTES = 2**18
_INDENT = re.compile(r"^ +(?=[^ #\r\n])", re.MULTILINE)
Status = Literal["filed", "replaced", "unchanged", "refused"]


class FilingError(PcgevalError):
    """A submission cannot be filed under this name, or would replace another one."""


@dataclass(frozen=True)
class FiledSubmission:
    """The result of `submit`."""

    team: str
    check: SubmissionCheck
    status: Status  # `refused` if it has errors, `unchanged` if the same files were there already
    folder: Path | None = None  # where it was filed; None if it was refused
    sha256: str | None = None  # see `load.submission_sha256`; None if it was refused

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        folder = None if self.folder is None else str(self.folder)
        filed = {"team": self.team, "folder": folder, "status": self.status, "sha256": self.sha256}
        return {**filed, **self.check.to_json()}


def submit(path: Path, team: str | None = None, *, may_replace: bool = False) -> FiledSubmission:
    """Check a folder or zip file and file it in the competition of the current folder.

    Args:
        path: The folder or zip file that the team hands in.
        team: The team's name; without it, the name of the folder or zip file.
        may_replace: Whether it may replace another submission of this team.

    Raises:
        UntrustedFileError: It is neither a folder nor a zip file, or one that cannot be unpacked.
        FilingError: The name cannot be a team's, or there is another submission of this team.
        ParamsError: There is no params.yaml, or it is faulty or cannot take this team.
    """
    params = load_params(PARAMS)
    if team is None:
        team = path.resolve().name if path.is_dir() else path.stem
    if fault := team_name_fault(team) or name_fault(team):
        raise FilingError(f"team {printable_name(team, 80)!r}: {fault}. Give another name with --team.")
    if team not in params.teams:
        params_with_teams({team: Team()}, PARAMS)  # raises before anything is filed
    folder, staging = SUBMISSIONS / team, STAGING / team
    SUBMISSIONS.mkdir(parents=True, exist_ok=True)
    with lock_folder(SUBMISSIONS, SUBMIT_LOCK), unpacked_submission(path) as handed_in:
        _end_replacement(folder)
        shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
        staging.mkdir(parents=True)
        try:
            result = check(handed_in, params.limits, staging, entry=params.teams.get(team, Team()).entry)
            if not result.passed:
                return FiledSubmission(team, result, "refused")
            status = _publish(staging, folder, may_replace=may_replace)
        finally:
            _end_replacement(folder)
            shutil.rmtree(staging, ignore_errors=True)
        if team not in load_params(PARAMS).teams:
            write_text(PARAMS.resolve(), params_with_teams({team: Team()}, PARAMS))
    return FiledSubmission(team, result, status, folder, submission_sha256(folder))


def _publish(staging: Path, folder: Path, *, may_replace: bool) -> Status:
    """Move the checked copy to the team's folder."""
    is_new = not os.path.lexists(folder)
    if not is_new:
        if folder.is_symlink() or not folder.is_dir():
            raise FilingError(f"{folder}: exists and is not a folder. Remove it, then submit again.")
        if submission_sha256(staging) == submission_sha256(folder):
            return "unchanged"
        if not may_replace:
            raise FilingError(
                f"{folder}: there is another submission of {folder.name}. Replace it with --replace, which moves it to "
                f"{REPLACED}; or give another name with --team."
            )
        REPLACED.mkdir(parents=True, exist_ok=True)
        folder.rename(REPLACED / folder.name)
    staging.rename(folder)
    return "filed" if is_new else "replaced"


def _end_replacement(folder: Path) -> None:
    """Date the replaced submission, or put it back if its replacement is not in place."""
    replaced = REPLACED / folder.name
    if replaced.exists():
        dated = REPLACED / f"{folder.name}-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}"
        replaced.rename(dated if os.path.lexists(folder) else folder)


def params_with_teams(teams: Mapping[str, Team], path: Path) -> str:
    """Return the text of params.yaml, which may list only the names of its teams, with decisions about teams.

    Comments, order and values of the rest stay as they are.

    Raises:
        ParamsError: The file would be faulty, or would lose a comment or a value.
    """
    text = read_text(path, follow_link=True)
    values = yaml.safe_load(text)
    former = values["teams"] if isinstance(values["teams"], dict) else {}
    decisions = {name: team.model_dump(mode="json", exclude_defaults=True) for name, team in teams.items()}
    wanted = {**values, "teams": {**former, **decisions}}
    parse_params(wanted, str(path))
    start, end = _teams_section(text)
    try:
        edited = text[:start] + _section_with_teams(text[start:end], decisions) + text[end:]
        is_whole = yaml.safe_load(edited) == wanted and _comments(text) <= _comments(edited)
    except (YAMLError, yaml.YAMLError):
        is_whole = False
    if not is_whole:
        shown = to_json({name: decision for name, decision in decisions.items() if name not in former}, indent=None)
        raise ParamsError(f"{path}: a comment or a value would be lost. Write {shown} into `teams` yourself.")
    return edited


def _comments(text: str) -> Counter[str]:
    """Return what follows each # in a text."""
    return Counter(part.strip() for line in text.splitlines() for part in line.split("#")[1:])


class _Representer(RoundTripRepresenter):
    """Writes null as it stands in the files that `pcgeval init` makes."""


_Representer.add_representer(type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null"))


def _teams_section(text: str) -> tuple[int, int]:
    """Return where the lines of `teams` begin and end in params.yaml, without the comments behind its last value."""
    params: Any = yaml.compose(text)
    key, node = next((key, value) for key, value in params.value if key.value == "teams")
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        node = node.value[-1] if isinstance(node, yaml.SequenceNode) else node.value[-1][1]
    end = node.end_mark.index
    if text[end - 1] != "\n":  # which ends a text of several lines
        end = (text.find("\n", end) + 1) or len(text)
    return key.start_mark.index, end


def _section_with_teams(text: str, decisions: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the section `teams` with teams added; a list of names becomes keys with values."""
    line_break = "\r\n" if "\r\n" in text else "\n"
    editor = YAML()
    editor.preserve_quotes, editor.width = True, sys.maxsize
    editor.Representer = _Representer
    if indent := _INDENT.search(text):
        editor.indent(mapping=len(indent[0]))
    values = editor.load(text.replace("\r\n", "\n"))
    table = teams = values["teams"]
    names = list(decisions)
    if isinstance(teams, CommentedSeq):
        values["teams"] = table = CommentedMap()
        if teams.fa.flow_style():
            table.fa.set_flow_style()
        table.ca.comment = teams.ca.comment
        for index, (after, before, *_) in teams.ca.items.items():
            table.ca.items[teams[index]] = [None, before, after, None]
        names = list(teams)
    for name in names:
        key = name if isinstance(name, ScalarString) else _scalar(name)
        table[key] = CommentedMap({option: _scalar(value) for option, value in decisions[name].items()})
        table[key].fa.set_flow_style()
    written = io.StringIO()
    editor.dump(values, written)
    return written.getvalue().replace("\n", line_break)


def _scalar(text: str) -> str:
    """Return a text with quotes if it would be another value without them, such as a number."""
    return DoubleQuotedScalarString(text) if yaml.safe_dump(text)[0] in "'\"" else text


def convert_submissions(root: Path) -> bool:
    """Convert params.yaml and the submissions of a competition's folder; return whether they had the old form.

    A `submission.yaml` with other keys than the organiser's four, and a `requirements-lock.txt` that is no lock, stay:
    they are files of the team.

    Raises:
        ParamsError: params.yaml is no YAML, or its list of teams cannot be converted.
    """
    if not (root / LOCKS).is_dir():
        copy_files(PACKAGED_DATA, root / DATA, tree_files(PACKAGED_DATA, LOCKS.name), follow_link=True)
    path = root / PARAMS_FILE
    try:
        values = parse_yaml(read_text(path, _MAX_BYTES, follow_link=True), allow_aliases=True)
    except ValueError as error:
        raise ParamsError(f"{path}: not valid YAML: {error}. Correct it.") from error
    teams = values.get("teams") if isinstance(values, dict) else None
    if not isinstance(teams, list):
        return False
    if not all(isinstance(team, str) for team in teams):
        raise ParamsError(f"{path}: `teams` holds something else than names. Correct it.")
    folders = {team: root / SUBMISSIONS / team for team in teams}
    notes = {team: _notes(folder) for team, folder in folders.items()}
    edited = params_with_teams({team: decisions or Team() for team, decisions in notes.items()}, path)
    locks = [folder for folder in folders.values() if is_lock(_text(folder / _LOCK, MAX_LOCK_BYTES))]
    for folder in locks:
        shutil.copyfile(folder / _LOCK, packages_lock(folder))
    write_text(path.resolve(), edited)  # a link stays a link
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
        return read_text(path, limit)
    except UntrustedFileError:
        return ""
