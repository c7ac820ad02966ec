"""Tell where a run stands: before it, while it goes on, and after it.

Only files are read, and no lock is taken, so that a run is never disturbed. What a stage is just writing counts as not
there yet.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pcgeval.core.console import duration
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.core.layout import (
    CALLS,
    SUBMISSIONS,
    Trial,
    generation_lock,
    letter_file,
    recording_file,
    stage_dir,
    trials,
)
from pcgeval.core.locks import dvc_is_running, lock_holder
from pcgeval.core.params import Params
from pcgeval.core.trials import read_record, record_path
from pcgeval.core.untrusted import listed, printable_line
from pcgeval.generation.tasks import present_fingerprint
from pcgeval.llm.call_log import LoggedCall
from pcgeval.report.markup import render_template
from pcgeval.submissions.load import Prompt, Submission, SubmissionError, load_submission

LOG_BYTES = 4 * 2**20  # at the end of each file of logged calls: enough to know how long a model takes
_MINUTE = 60


@dataclass(frozen=True)
class TeamProgress:
    """The trials of one team with one model.

    Attributes:
        trials: How many there are to do in all.
        done: Those that are finished.
        failed: Those of them that failed in the stage generate.
        repeated: Trials on the disk that the next run does again: they failed through the model's server or this
            machine, or were made from another submission, model, seed or limits.
        flagged: Those with a flag.
        calls: Calls that were answered in them.
        tokens: Prompt and output tokens of these calls.
        trial_seconds: What a trial takes, measured or estimated by earlier calls; None if nothing is known.
        per_minute: Trials that the running process finishes in a minute; None if none runs, or none is done yet.
        seconds_left: For the trials that are not done; None if nothing is known.
        running: Whether a process does its trials now.
        measured: Whether its levels are simulated, classified and compared, and no stage runs now.
    """

    model: str
    team: str
    trials: int
    done: int
    failed: int
    repeated: int
    flagged: int
    calls: int
    tokens: int
    trial_seconds: float | None
    per_minute: float | None
    seconds_left: float | None
    running: bool
    measured: bool

    @property
    def state(self) -> str:
        """The state in a word or two."""
        if self.running:
            return "running"
        if self.done < self.trials:
            return "stopped" if self.done or self.repeated else "to do"
        return "evaluated" if self.measured else "trials done"


@dataclass(frozen=True)
class RunStatus:
    """A run; `notes` are sentences about what could not be read, or is done again."""

    teams: tuple[TeamProgress, ...]
    notes: tuple[str, ...]

    @property
    def done(self) -> bool:
        """Whether every trial is done and measured."""
        return all(team.state == "evaluated" for team in self.teams)

    def total(self, figure: str) -> int:
        """Return the sum of one of the figures of `TeamProgress` over all teams and models."""
        return sum(getattr(team, figure) for team in self.teams)

    @property
    def seconds_left(self) -> float | None:
        """The time for all that is left; models that run now share it, the others follow one after the other.

        A lower bound if nothing is known of some teams; None if nothing is known of any.
        """
        left: dict[str, float] = {}
        for team in self.teams:
            if team.seconds_left is not None:
                left[team.model] = left.get(team.model, 0.0) + team.seconds_left
        at_once = {team.model for team in self.teams if team.running}
        parallel = max((seconds for model, seconds in left.items() if model in at_once), default=0.0)
        return parallel + sum(seconds for model, seconds in left.items() if model not in at_once) if left else None

    @property
    def unknown(self) -> list[str]:
        """The teams of which nothing is known that tells how long a trial takes."""
        return sorted({team.team for team in self.teams if team.seconds_left is None})

    @property
    def summary(self) -> str:
        """The figures of the whole run as a sentence."""
        parts = [f"{self.total('done')} of {self.total('trials')} trials are done"]
        parts += [f"{self.total('failed')} failed in generate", f"{self.total('flagged')} flagged"]
        if repeated := self.total("repeated"):
            parts.append(f"{repeated} to do again")
        parts.append(f"{self.total('tokens'):,} tokens")
        if self.seconds_left:
            least = "at least " if self.unknown else "about "
            parts.append(f"{least}{duration(self.seconds_left)} left")
        of = listed(self.unknown, 5)
        return f"{', '.join(parts)}.{f' Nothing is known yet of how long {of} will take.' if of else ''}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        return {
            "done": self.done,
            "trials": self.total("trials"),
            "trials_done": self.total("done"),
            "trials_failed": self.total("failed"),
            "trials_repeated": self.total("repeated"),
            "trials_flagged": self.total("flagged"),
            "tokens": self.total("tokens"),
            "seconds_left": self.seconds_left,
            "seconds_left_unknown_for": self.unknown,
            "teams": [{**asdict(team), "state": team.state} for team in self.teams],
            "notes": self.notes,
        }


@dataclass(frozen=True)
class _KnownTrial:
    """The part of a trial's record that the status needs; `seconds` is the time its calls took the model.

    `fault` is why it failed if that was not the submission's fault.
    """

    fingerprint: str
    digest: str
    written: float
    fault: str | None
    failed: bool
    flagged: bool
    calls: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class _Costs:
    """Trials of a team with a model, and their calls: the basis of an estimate."""

    trials: int
    calls: int
    seconds: float


def run_status(params: Params, now: float | None = None) -> RunStatus:
    """Read where the run in the working directory stands.

    Args:
        params: The competition.
        now: The time in seconds since 1970; default: the present.
    """
    now = time.time() if now is None else now
    notes: list[str] = []
    submissions: dict[str, Submission] = {}
    for team in params.teams:
        try:
            submissions[team] = load_submission(SUBMISSIONS / team)
        except (SubmissionError, FileError) as error:
            notes.append(str(error))
    finished = {(model, team): _read_trials(params, model, team) for model in params.models for team in params.teams}
    is_running = dvc_is_running(Path())
    costs = _known_costs(params, finished)
    rows = []
    for (model, team), found in finished.items():
        every = len(params.competition.characters) * params.competition.trials
        final = _final(params, model, submissions.get(team), found)
        done = len(final)
        if again := [each for trial, each in found.items() if trial not in final]:
            last = max(again, key=lambda each: each.written)
            why = last.fault or "it was made from another submission, model, seed or limits"
            notes.append(f"{model}, {team}: {len(again)} trials are done again in the next run; the last one: {why}")
        _, since = lock_holder(generation_lock(model)) or (None, None)
        per_minute = None if since is None else _per_minute(found.values(), since, now)
        of_model = (each for (name, _), of_team in finished.items() if name == model for each in of_team.values())
        model_per_minute = None if since is None else _per_minute(of_model, since, now)  # the teams take turns
        seconds = _trial_seconds(costs, model, team, submissions.get(team))
        if every == done or params.models[model].backend == "recorded":
            left: float | None = 0.0
        elif model_per_minute:
            left = _MINUTE * (every - done) / model_per_minute
        else:
            left = None if seconds is None else (every - done) * seconds / params.models[model].concurrency
        rows.append(
            TeamProgress(
                model=model,
                team=team,
                trials=every,
                done=done,
                failed=sum(each.failed for each in final.values()),
                repeated=len(found) - done,
                flagged=sum(each.flagged for each in found.values()),
                calls=sum(each.calls for each in found.values()),
                tokens=sum(each.tokens for each in found.values()),
                trial_seconds=seconds,
                per_minute=per_minute,
                seconds_left=left,
                running=since is not None and done < every,
                measured=not is_running and _is_measured(params, model, team),
            )
        )
    return RunStatus(tuple(rows), tuple(notes))


def _is_measured(params: Params, model: str, team: str) -> bool:
    """Tell whether the last of the stages that measure has written all letters."""
    folder = stage_dir("diversity", model, team)
    return all(letter_file(folder, letter).is_file() for letter in params.competition.characters)


def _per_minute(trials: Iterable[_KnownTrial], since: float, now: float) -> float | None:
    """Return how many trials a process finishes in a minute that runs since a time; None if it finished none yet."""
    new = sum(trial.written >= since for trial in trials)
    return _MINUTE * new / max(now - since, 1.0) if new else None


def write_status_page(params: Params, status: RunStatus, path: Path, refresh: int | None = None) -> None:
    """Write a page that shows where a run stands; a browser loads it again after `refresh` seconds."""
    at = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    competition = params.competition
    page = render_template("status.html.j2", status=status, competition=competition, at=at, refresh=refresh)
    write_text(path, page)


def _read_trials(params: Params, model: str, team: str) -> dict[Trial, _KnownTrial]:
    found = {}
    for trial in trials(params):
        path = record_path(stage_dir("raw", model, team), team, trial)
        try:
            status = path.stat()
        except OSError:
            continue
        if each := _read_trial(path, status.st_mtime, status.st_size):
            found[trial] = each
    return found


def _final(
    params: Params, model: str, submission: Submission | None, found: Mapping[Trial, _KnownTrial]
) -> dict[Trial, _KnownTrial]:
    """Return the trials that the stage will keep, by the rule of the stage."""
    finished = {trial: each for trial, each in found.items() if each.fault is None}
    if submission is None:
        return finished
    fingerprint = present_fingerprint(params, model, submission)
    return {trial: each for trial, each in finished.items() if fingerprint(trial, each.digest) == each.fingerprint}


@cache
def _read_trial(path: Path, written: float, size: int) -> _KnownTrial | None:  # noqa: ARG001 - part of the key
    """Read a record once as long as it stays the same; None if it is torn or no record."""
    try:
        record = read_record(path)
    except FileError:
        return None
    seconds = math.fsum(exchange.reply.seconds for exchange in record.exchanges)
    return _KnownTrial(
        fingerprint=record.fingerprint,
        digest=record.digest,
        written=written,
        fault=None if record.is_final else printable_line(record.reason or ""),
        failed=record.reason is not None,
        flagged=bool(record.flags),
        calls=len(record.exchanges),
        tokens=record.tokens,
        seconds=seconds,
    )


def _known_costs(
    params: Params, finished: Mapping[tuple[str, str], Mapping[Trial, _KnownTrial]]
) -> dict[tuple[str, str], _Costs]:
    """Return what trials took, by model and team: those on the disk, else calls that were logged or recorded."""
    costs = {
        key: _Costs(len(found), sum(each.calls for each in found), math.fsum(each.seconds for each in found))
        for key, found in ((key, list(by_trial.values())) for key, by_trial in finished.items())
        if any(each.calls for each in found)
    }
    if len(costs) < len(finished):
        logged = list(_logged_calls(CALLS.glob("*.jsonl")))
        for model, team in finished:
            asked = (params.models[model].name, team)  # by its name: several entries may ask one model
            calls = [call for call in logged if (call.model, call.team) == asked]
            calls = calls or list(_logged_calls([recording_file(model, team)]))
            seconds = math.fsum(call.reply.seconds for call in calls if call.reply)
            if calls and (model, team) not in costs:
                costs[model, team] = _Costs(len({(call.letter, call.trial) for call in calls}), len(calls), seconds)
    return costs


def _logged_calls(paths: Iterable[Path]) -> Iterator[LoggedCall]:
    """Yield the answered calls of trials at the ends of files; a line that is torn is passed over."""
    for path in paths:
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_BYTES))
                lines = file.readlines()
        except OSError:
            continue
        for line in lines:
            try:
                call = LoggedCall.model_validate_json(line)
            except ValidationError:
                continue
            if call.reply and call.letter:
                yield call


def _trial_seconds(
    costs: Mapping[tuple[str, str], _Costs], model: str, team: str, submission: Submission | None
) -> float | None:
    """Return what a trial takes: as the team's own did, else the model's mean call times the calls that it makes."""
    if own := costs.get((model, team)):
        return own.seconds / own.trials
    of_model = [cost for (name, _), cost in costs.items() if name == model]
    of_team = [cost for (_, name), cost in costs.items() if name == team]
    if not of_model or not (of_team or (submission and isinstance(submission.work, Prompt))):
        return None
    calls = sum(each.calls for each in of_team) / sum(each.trials for each in of_team) if of_team else 1.0
    return calls * math.fsum(each.seconds for each in of_model) / sum(each.calls for each in of_model)
