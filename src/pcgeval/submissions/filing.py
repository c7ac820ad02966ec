"""File a submission into data/submissions/<team>: `pcgeval submit`.

A team's folder is replaced as a whole, in one step: a killed run leaves the old submission or the new one. The old one
must be in git's history before it is replaced.
"""

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import write_text
from pcgeval.core.layout import SUBMISSIONS, evaluation_lock, recording_file
from pcgeval.core.locks import FolderBusyError, lock_folder
from pcgeval.core.params import load_params, parse_params, team_name_fault
from pcgeval.core.untrusted import printable_name, walk
from pcgeval.submissions.findings import SubmissionFinding, note, warning
from pcgeval.submissions.load import NOTES_FILE, Notes, load_notes
from pcgeval.submissions.names import name_fault
from pcgeval.submissions.validate import SubmissionCheck, check, limits_of, opened

PARAMS = Path("params.yaml")
LOCK = Path(".pcgeval", "locks", "submit.lock")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux


class FilingError(PcgevalError):
    """A submission cannot be filed under this name, or not now."""


@dataclass(frozen=True)
class FiledSubmission:
    """The result of `submit`.

    Attributes:
        team: The team's name.
        check: The check of the submission.
        folder: Where it was filed; None if it has errors.
        replaced: Whether an earlier submission was there.
        to_do: The organiser's next steps.
    """

    team: str
    check: SubmissionCheck
    folder: Path | None
    replaced: bool
    to_do: tuple[str, ...]


def submit(path: Path, team: str | None = None, *, force: bool = False) -> FiledSubmission:
    """Check a folder or zip file and file it in the competition of the current folder.

    Args:
        path: What was handed in.
        team: The team's name; without it, the name of the folder or zip file.
        force: Replace an earlier submission that git has not kept.

    Raises:
        HandInError: It is neither a folder nor a zip file.
        FilingError: The name cannot be a team's, the earlier submission would be lost, or it is being evaluated.
        ParamsError: params.yaml is faulty, or cannot take this team.
    """
    if team is None:
        team = path.resolve().name if path.is_dir() else path.stem
    _check_team(team)
    folder = SUBMISSIONS / team
    limits = limits_of(PARAMS)
    SUBMISSIONS.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, LOCK), opened(path) as listing, _staging(team) as staging:
        replaced = os.path.lexists(folder)
        kept = _replaceable(folder, force=force) if replaced else Notes()
        found = check(listing, limits, staging)
        if not found.passed:
            return FiledSubmission(team, found, None, replaced=False, to_do=())
        notes = _take_over(kept, staging)
        with _not_evaluated(team, folder):
            _publish(staging, folder)
    findings = (*found.findings, *notes, *_ignored_by_git(folder))
    return FiledSubmission(team, replace(found, findings=findings), folder, replaced, tuple(_to_do(team, folder)))


def _check_team(team: str) -> None:
    """Refuse a name that cannot be a team's, or that cannot stand beside the others."""
    if fault := team_name_fault(team) or name_fault(team):
        likely = re.sub(r"[^A-Za-z0-9_-]+", "-", team).strip("_-")[:64] or "NAME"
        raise FilingError(
            f"team {printable_name(team, 80)!r}: {fault}. Give the name with --team, such as --team {likely}."
        )
    if PARAMS.exists():
        params = load_params(PARAMS)
        if team not in params.teams:  # params.yaml's rules tell two names that cannot stand beside one another
            parse_params({**params.model_dump(), "teams": [*params.teams, team]}, f"{PARAMS} with team {team}")
    for other in SUBMISSIONS.iterdir() if SUBMISSIONS.is_dir() else []:
        if other.name != team and other.name.casefold() == team.casefold():
            raise FilingError(f"team {team!r}: exists as {other.name!r}, the same to some disks. Use that, or another.")


def _replaceable(folder: Path, *, force: bool) -> Notes:
    """Return the notes on the submission that will be replaced; refuse if anything of it would be lost."""
    if folder.is_symlink() or not folder.is_dir():
        raise FilingError(f"{folder}: exists and is not a folder. Remove it, then submit again.")
    notes = load_notes(folder)
    if not force and any(True for _ in walk(folder)) and _git("rev-parse", "--is-inside-work-tree") is not None:
        changed = (_git("status", "--porcelain", "-z", "--untracked-files=all", "--", str(folder)) or b"").split(b"\0")
        if len(changed) > 1 or not _git("ls-files", "-z", "--", str(folder)):
            raise FilingError(
                f"{folder}: the submission there is not committed to git. Commit it first, so that it stays in the "
                f"history: `git add {folder}` and `git commit`; or replace it for good with --force."
            )
    return notes


@contextmanager
def _staging(team: str) -> Iterator[Path]:
    """Make a folder beside the teams' folders, and clean up after a killed run."""
    for left_behind in SUBMISSIONS.glob(".*.part"):  # DVC does not look at such names
        earlier = SUBMISSIONS / left_behind.name.split(".")[1]  # a team's name has no dot
        if left_behind.name.endswith(".old.part") and not earlier.exists():
            left_behind.rename(earlier)  # killed between the two renames of `_publish`
        else:
            shutil.rmtree(left_behind)
    folder = Path(tempfile.mkdtemp(prefix=f".{team}.", suffix=".part", dir=SUBMISSIONS))
    try:
        yield folder
    finally:
        if folder.exists():
            shutil.rmtree(folder)


def _take_over(kept: Notes, staging: Path) -> list[SubmissionFinding]:
    """Replace the team's role and disqualification in the new notes by the organiser's in the earlier ones.

    A decision on flags is about the trials of one submission, so a new one needs another.
    """
    own = load_notes(staging)
    notes = own.model_copy(update={"role": kept.role, "disqualified": kept.disqualified, "flags_accepted": None})
    if notes != own:
        write_text(
            staging / NOTES_FILE,
            yaml.safe_dump(notes.model_dump(exclude_defaults=True), allow_unicode=True, sort_keys=False),
        )
    decided = kept.model_dump(include={"role", "disqualified"}, exclude_defaults=True)
    return [note(NOTES_FILE, f"keeps the organiser's note: {key}: {value}") for key, value in decided.items()]


@contextmanager
def _not_evaluated(team: str, folder: Path) -> Iterator[None]:
    """Keep evaluations of the team from starting; refuse if one is running."""
    with ExitStack() as locks:
        for lock in sorted(Path().glob(str(evaluation_lock("*", team)))):
            try:
                locks.enter_context(lock_folder(folder, lock))
            except FolderBusyError as error:
                raise FilingError(
                    f"{error} It evaluates the submission that is there, with {lock.parent.name}. Then submit again."
                ) from error
        yield


def _publish(staging: Path, folder: Path) -> None:
    """Put the new folder in the old one's place, in one step where the system can."""
    staging.chmod(0o755)  # as any other folder
    if not folder.exists():
        staging.rename(folder)
    elif not _exchange(staging, folder):
        old = staging.with_suffix(".old.part")
        folder.rename(old)
        try:
            staging.rename(folder)
        except OSError:
            old.rename(folder)
            raise
        shutil.rmtree(old)


def _exchange(one: Path, other: Path) -> bool:
    """Let two paths change places in one step; return whether the system could."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    paths = [os.fsencode(path) for path in (one, other)]
    return rename is not None and rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0


def _ignored_by_git(folder: Path) -> list[SubmissionFinding]:
    ignored = _git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", str(folder)) or b""
    names = [os.fsdecode(each) for each in ignored.split(b"\0") if each]
    return [
        warning(Path(name).relative_to(folder).as_posix(), "is ignored by git; add it with `git add --force`")
        for name in names
    ]


def _to_do(team: str, folder: Path) -> Iterator[str]:
    if _git("rev-parse", "--is-inside-work-tree") is not None:
        yield f"commit it: git add {folder} && git commit -m 'Submission of {team}'"
    if PARAMS.exists():
        params = load_params(PARAMS)
        if team not in params.teams:
            yield f"add the team to {PARAMS}: teams: [{', '.join([*params.teams, team])}]"
        recorded = [model for model, settings in params.models.items() if settings.backend == "recorded"]
        if missing := [model for model in recorded if not recording_file(model, team).is_file()]:
            yield f"generate its trials: there are no recordings of this team with {', '.join(missing)}"


def _git(*words: str) -> bytes | None:
    """Return what git prints; None if it fails, as where there is no repository, or is not installed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        run = subprocess.run(
            ["git", "--literal-pathspecs", *words],
            capture_output=True,
            check=False,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except OSError:
        return None
    return run.stdout if run.returncode == 0 else None
