"""File a submission into data/submissions/<team>: `pcgeval submit`.

A team's folder is replaced as a whole, in one step: a killed run leaves the old submission or the new one. The old one
must be in git's history before it is replaced.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import yaml

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_file, write_text
from pcgeval.core.layout import RUN_LOCK, SUBMISSIONS, generation_lock, recording_file
from pcgeval.core.locks import lock_folder, lock_holder
from pcgeval.core.params import add_team, load_params, parse_params, team_name_fault
from pcgeval.core.untrusted import listed, printable_name, walk
from pcgeval.submissions.findings import FORMAL_CODES, SubmissionFinding, accepted, note, warning
from pcgeval.submissions.load import AcceptedFinding, Notes, load_notes, submission_sha256
from pcgeval.submissions.names import NOTES_FILE, name_fault
from pcgeval.submissions.receipts import Receipt, last_filed, show_time
from pcgeval.submissions.requirements import LOCK as REQUIREMENTS_LOCK
from pcgeval.submissions.team_names import is_one_of, name_findings, possible, team_in_readme
from pcgeval.submissions.validate import SubmissionCheck, check, limits_of, opened

PARAMS = Path("params.yaml")
LOCK = Path(".pcgeval", "locks", "submit.lock")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux


FilingStatus = Literal["filed", "replaced", "unchanged", "refused"]


class FilingError(PcgevalError):
    """A submission cannot be filed under this name, or not now."""


@dataclass(frozen=True)
class SubmitOptions:
    """The organiser's decisions about a submission.

    Attributes:
        replace: Replace a baseline, or a team whose name nothing but the file's name or another team's README gives.
        force: Replace an earlier submission that git has not kept.
        as_baseline: File it with the role baseline.
        add: Add the team to `teams` in params.yaml.
        received: When it was handed in, UTC; None for now.
        accept: Formal errors that are accepted, with the reason.
    """

    replace: bool = False
    force: bool = False
    as_baseline: bool = False
    add: bool = False
    received: datetime | None = None
    accept: tuple[AcceptedFinding, ...] = ()


@dataclass(frozen=True)
class FiledSubmission:
    """The result of `submit`.

    Attributes:
        team: The team's name.
        check: The check of the submission.
        folder: Where it was filed; None if it has errors.
        status: What was done; `unchanged` if the same files were there already.
        to_do: The organiser's next steps.
        receipt: What the team is told.
    """

    team: str
    check: SubmissionCheck
    folder: Path | None
    status: FilingStatus
    to_do: tuple[str, ...]
    receipt: Receipt

    @property
    def replaced(self) -> bool:
        """Whether another submission or other notes were there."""
        return self.status == "replaced"

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {
            "team": self.team,
            "folder": None if self.folder is None else str(self.folder),
            "status": self.status,
            "replaced": self.replaced,
            "to_do": self.to_do,
            **self.check.to_json(),
            "receipt": self.receipt.to_json(),
        }


def submit(path: Path, team: str | None = None, options: SubmitOptions = SubmitOptions()) -> FiledSubmission:
    """Check a folder or zip file and file it in the competition of the current folder.

    Args:
        path: What was handed in.
        team: The team's name; without it, the name of the folder or zip file.
        options: What the organiser decides.

    Raises:
        HandInError: It is neither a folder nor a zip file.
        FilingError: The name cannot be a team's; the submission is late; the one there is another team's, a baseline,
            would be lost, or is being evaluated.
        ParamsError: params.yaml is faulty, or cannot take this team.
    """
    is_named = team is not None
    if team is None:
        team = path.resolve().name if path.is_dir() else path.stem
    check_team(team)
    folder = SUBMISSIONS / team
    limits = limits_of(PARAMS)
    received = options.received or datetime.now(UTC).replace(microsecond=0)
    is_new = options.add and team not in load_params(PARAMS).teams
    SUBMISSIONS.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, LOCK), opened(path) as listing, _staging(team) as staging:
        is_there = os.path.lexists(folder)
        kept = _notes_of(folder) if is_there else Notes()
        found = check(listing, limits, staging)
        digest = submission_sha256(staging)
        is_same = is_there and digest == submission_sha256(folder)
        if not is_same:
            _check_deadline(path, received, options)
        decisions = _decisions(found, kept.findings_accepted if is_same else (), options.accept)
        found = replace(found, findings=accepted(found.findings, {each.code: each.reason for each in decisions}))
        receipt = Receipt(
            team=team,
            received=received,
            file=path.resolve().name,
            file_sha256=hand_in_sha256(path),
            result="filed" if found.passed else "refused",
            tree_sha256=digest if found.passed else None,
            findings=(*found.findings, *name_findings(staging, team)) if found.passed else found.findings,
        )
        if not found.passed:
            receipt.write()
            return FiledSubmission(team, found, None, "refused", (), receipt)
        own = load_notes(staging)
        is_same = is_same and own.of_participant == kept.of_participant
        # a decision on flags is about the trials of one submission, so one with other files needs another
        earlier = kept if is_same else kept.model_copy(update={"flags_accepted": None})
        notes = _take_over(own, earlier.model_copy(update={"findings_accepted": decisions}), options, staging)
        status: FilingStatus = "unchanged" if is_same and notes == kept else "replaced" if is_there else "filed"
        if status == "replaced" and not is_same and not options.replace:
            _check_owner(staging, folder, kept, is_named=is_named)
        if status == "replaced" and not options.force:
            _check_kept_by_git(folder)
        if status != "unchanged" or is_new:
            _require_no_evaluation(team, folder, is_new=is_new)
            if status != "unchanged":
                _publish(staging, folder, with_lock=is_same)
            if is_new:
                add_team(team, PARAMS)
    if is_same and options.received is None:
        receipt = last_filed(team, receipt.tree_sha256 or "") or receipt  # it keeps its time
    receipt.write()
    found = replace(found, findings=(*receipt.findings, *_kept_findings(kept), *_ignored_by_git(folder)))
    return FiledSubmission(team, found, folder, status, tuple(to_do(team)), receipt)


def _check_deadline(path: Path, received: datetime, options: SubmitOptions) -> None:
    """Refuse a submission that was handed in late, unless it is a baseline."""
    deadline = deadline_of_params()
    if deadline is not None and received > deadline and not options.as_baseline:
        raise FilingError(
            f"{path}: received {show_time(received)}{'' if options.received else ' (now)'}, after the deadline "
            f"{show_time(deadline)} (intake.deadline in {PARAMS}). If it came earlier, give its time with --received."
        )


def deadline_of_params() -> datetime | None:
    """Return the last moment for submissions, if the competition in this folder has one."""
    return load_params(PARAMS).intake.deadline if PARAMS.exists() else None


def filed_at(team: str) -> datetime | None:
    """Return when a team handed in the submission that is filed now; None if nobody knows.

    Raises:
        FileError: Its files or a receipt cannot be read.
    """
    folder = SUBMISSIONS / team
    receipt = last_filed(team, submission_sha256(folder)) if folder.is_dir() else None
    return receipt.received if receipt else None


def hand_in_sha256(path: Path) -> str | None:
    """Return the SHA-256 of a file that was handed in; None for a folder."""
    return None if path.is_dir() else sha256_file(path)


def check_team(team: str) -> None:
    """Refuse a name that cannot be a team's, or that cannot stand beside the others."""
    if fault := team_name_fault(team) or name_fault(team):
        raise FilingError(
            f"team {printable_name(team, 80)!r}: {fault}. Give the name with --team, such as --team {possible(team)}."
        )
    if PARAMS.exists():
        params = load_params(PARAMS)
        if team not in params.teams:  # params.yaml's rules tell two names that cannot stand beside one another
            parse_params(
                {**params.model_dump(mode="json"), "teams": [*params.teams, team]}, f"{PARAMS} with team {team}"
            )
    for other in SUBMISSIONS.iterdir() if SUBMISSIONS.is_dir() else []:
        if other.name != team and other.name.casefold() == team.casefold():
            raise FilingError(f"team {team!r}: exists as {other.name!r}, the same to some disks. Use that, or another.")


def _notes_of(folder: Path) -> Notes:
    """Return the notes on the submission that is there."""
    if folder.is_symlink() or not folder.is_dir():
        raise FilingError(f"{folder}: exists and is not a folder. Remove it, then submit again.")
    return load_notes(folder)


def _check_owner(staging: Path, folder: Path, kept: Notes, *, is_named: bool) -> None:
    """Refuse to replace a baseline, or a team that the new submission may not be of."""
    team = folder.name
    new, old = (team_in_readme(each) for each in (staging, folder))
    choice = "Give another name, or replace it with --replace."
    if kept.role == "baseline" or (PARAMS.exists() and load_params(PARAMS).scoring.baseline == team):
        raise FilingError(f"{folder}: the submission there is a baseline. {choice}")
    if new is None and not is_named:
        raise FilingError(
            f"{folder}: there is a submission of {team} already, and nothing but the file's name says that this one is "
            f"of the same team. Replace it with --replace, or confirm the name with --team {team}."
        )
    if new is not None and not is_one_of(new, team, old):
        raise FilingError(
            f"{folder}: there is a submission of {team} already, and the README of this one names the team "
            f"{printable_name(new)!r}. {choice}"
        )


def _check_kept_by_git(folder: Path) -> None:
    """Refuse to replace a submission if anything of it would be lost."""
    if any(True for _ in walk(folder)) and git_output("rev-parse", "--is-inside-work-tree") is not None:
        changed = (git_output("status", "--porcelain", "-z", "--untracked-files=all", "--", str(folder)) or b"").split(
            b"\0"
        )
        if len(changed) > 1 or not git_output("ls-files", "-z", "--", str(folder)):
            raise FilingError(
                f"{folder}: the submission there is not committed to git. Commit it first, so that it stays in the "
                f"history: `git add {folder}` and `git commit`; or replace it for good with --force."
            )


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


def _take_over(own: Notes, kept: Notes, options: SubmitOptions, staging: Path) -> Notes:
    """Write the participant's notes with the organiser's keys of the earlier ones, and return them."""
    decided = kept.model_copy(update={"role": "baseline"} if options.as_baseline else {})
    notes = decided.model_copy(update={"title": own.title, "kind": own.kind, "entry": own.entry})
    if notes != own:
        values = notes.model_dump(mode="json", exclude_defaults=True)
        write_text(staging / NOTES_FILE, yaml.safe_dump(values, allow_unicode=True, sort_keys=False))
    return notes


def _decisions(
    found: SubmissionCheck, kept: tuple[AcceptedFinding, ...], new: tuple[AcceptedFinding, ...]
) -> tuple[AcceptedFinding, ...]:
    """Return which of a submission's formal errors the organiser accepts, or has accepted for the same files."""
    codes = {each.code for each in found.findings if each.severity == "error"}
    for each in new:
        if each.code not in FORMAL_CODES:
            raise FilingError(f"{each.code!r} cannot be accepted, only {', '.join(FORMAL_CODES)}.")
        if each.code not in codes:
            raise FilingError(f"the submission has no error {each.code!r} to accept. Submit it without --accept.")
    return tuple({each.code: each for each in (*kept, *new) if each.code in codes}.values())


def _kept_findings(kept: Notes) -> list[SubmissionFinding]:
    decided = kept.model_dump(include={"role", "disqualified"}, exclude_defaults=True)
    return [note(NOTES_FILE, f"keeps the organiser's note: {key}: {value}") for key, value in decided.items()]


def _require_no_evaluation(team: str, folder: Path, *, is_new: bool) -> None:
    """Refuse while a process evaluates the competition that the team takes part in.

    The submission would be evaluated with some models and its predecessor with the others.

    Raises:
        FilingError: A process evaluates it.
    """
    params = load_params(PARAMS) if PARAMS.exists() else None
    if params is None or not (is_new or team in params.teams):
        return
    for lock in (RUN_LOCK, *map(generation_lock, params.models)):
        process, _ = lock_holder(lock) or (None, None)
        if process not in {None, os.getpid()}:
            raise FilingError(
                f"{folder}: process {process} evaluates the teams of {PARAMS}. Wait until it ends, or stop it with "
                f"`kill {process}`; then submit again."
            )


def _publish(staging: Path, folder: Path, *, with_lock: bool) -> None:
    """Put the new folder in the old one's place, in one step where the system can, perhaps with the old one's lock."""
    if with_lock and (folder / REQUIREMENTS_LOCK).is_file():
        shutil.copyfile(folder / REQUIREMENTS_LOCK, staging / REQUIREMENTS_LOCK)
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
    ignored = git_output("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--", str(folder)) or b""
    names = [os.fsdecode(each) for each in ignored.split(b"\0") if each]
    return [
        warning(Path(name).relative_to(folder).as_posix(), "is ignored by git; add it with `git add --force`")
        for name in names
    ]


def to_do(*teams: str) -> Iterator[str]:
    """Yield the organiser's next steps for one or more teams whose submissions are filed."""
    names = listed(teams, 5)
    folder = SUBMISSIONS / teams[0] if len(teams) == 1 else SUBMISSIONS
    if teams and git_output("status", "--porcelain", "--", str(folder)):
        yield f"commit it: git add {folder} && git commit -m 'Submission of {names}'"
    if PARAMS.exists():
        params = load_params(PARAMS)
        if new := [team for team in teams if team not in params.teams]:
            yield f"add the team to {PARAMS}: teams: [{', '.join([*params.teams, *new])}]"
        recorded = [model for model, settings in params.models.items() if settings.backend == "recorded"]
        if missing := [model for model in recorded if not all(recording_file(model, team).is_file() for team in teams)]:
            whose = "this team" if len(teams) == 1 else f"all of {names}"
            yield f"generate the trials: there are no recordings of {whose} with {', '.join(missing)}"


def git_output(*words: str) -> bytes | None:
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
