"""The progress of a run: before, during and after it.

Reading takes no lock, so it never disturbs a run. A file that a stage is writing counts as
missing.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pcgeval.core.console import count, duration
from pcgeval.core.errors import FileError
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
from pcgeval.core.trials import TrialRecord, read_record, record_path
from pcgeval.core.untrusted import listed, printable_line
from pcgeval.generation.tasks import present_fingerprint
from pcgeval.llm.call_log import LoggedCall, answered_calls
from pcgeval.submissions.load import Prompt, Submission, SubmissionError, load_submission

LOG_BYTES = 4 * 2**20  # at the end of each file of logged calls: enough to know how long a model takes


@dataclass(frozen=True)
class TeamProgress:
    """The trials of one team with one model."""

    model: str
    team: str
    trials: int
    done: int  # finished, whatever their outcome
    failed: int  # of those that are done, in the stage generate
    repeated: int  # on the disk, and the next run does them again
    flagged: int
    calls: int
    tokens: int
    trial_seconds: float | None  # measured, or estimated by earlier calls; None if nothing is known
    per_minute: float | None  # that the running process finishes; None if none runs, or none is done yet
    seconds_left: float | None  # for the trials that are not done; None if nothing is known
    running: bool
    measured: bool  # its levels are simulated, classified and compared, and no stage runs now

    @property
    def state(self) -> str:
        """The state in one or two words."""
        if self.running:
            return "running"
        if self.done < self.trials:
            return "stopped" if self.done or self.repeated else "to do"
        return "evaluated" if self.measured else "trials done"


@dataclass(frozen=True)
class RunStatus:
    """A run; `notes` are sentences about unreadable files and repeated trials."""

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
        """The remaining time; models that run now share it, the others follow one after the other.

        A lower bound if the time of some teams is unknown; None if the time of all is unknown.
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
        """The teams without a known time of a trial."""
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
        teams = listed(self.unknown, 5)
        unknown = f" The time of {teams} is not known yet." if teams else ""
        return f"{', '.join(parts)}.{unknown}"

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


class _Written(NamedTuple):
    """A trial's record, and when it was written in seconds since 1970."""

    record: TrialRecord
    at: float


class _Cost(NamedTuple):
    """Trials of a team with a model, their calls, and the seconds that these took the model."""

    trials: int
    calls: int
    seconds: float


_Place = tuple[str, str]  # a model and a team
_Records = Mapping[_Place, Mapping[Trial, _Written]]


def run_status(params: Params, now: float | None = None) -> RunStatus:
    """Read where the run in the working directory stands; `now` is in seconds since 1970."""
    now = time.time() if now is None else now
    notes: list[str] = []
    submissions: dict[str, Submission] = {}
    for team in params.teams:
        try:
            submissions[team] = load_submission(SUBMISSIONS / team)
        except (SubmissionError, FileError) as error:
            notes.append(str(error))
    records = {place: _read_records(params, *place) for place in product(params.models, params.teams)}
    costs = _known_costs(params, records)
    is_running = dvc_is_running(Path())
    rows = []
    for (model, team), written in records.items():
        submission = submissions.get(team)
        final = _final(params, model, submission, written)
        if again := [entry for trial, entry in written.items() if trial not in final]:
            last = max(again, key=lambda entry: entry.at).record
            changed = "it was made from another submission, model, seed or limits"
            why = changed if last.is_final else printable_line(last.reason or "")
            notes.append(f"{model}, {team}: the next run does {count(len(again), 'trial')} again; the last one: {why}")
        holder = lock_holder(generation_lock(model))
        of_model = [entry for place, of_team in records.items() if place[0] == model for entry in of_team.values()]
        seconds = _trial_seconds(costs, model, team, submission)
        to_do = len(list(trials(params))) - len(final)
        if not to_do or params.models[model].backend == "recorded":
            left: float | None = 0.0
        elif holder and (pace := _per_minute(of_model, holder[1], now)):  # the teams take turns
            left = 60 * to_do / pace
        else:
            left = None if seconds is None else to_do * seconds / params.models[model].concurrency
        diversity = stage_dir("diversity", model, team)  # of the last of the stages that measure
        rows.append(
            TeamProgress(
                model=model,
                team=team,
                trials=to_do + len(final),
                done=len(final),
                failed=sum(record.reason is not None for record in final.values()),
                repeated=len(again),
                flagged=sum(bool(entry.record.flags) for entry in written.values()),
                calls=sum(len(entry.record.exchanges) for entry in written.values()),
                tokens=sum(entry.record.tokens for entry in written.values()),
                trial_seconds=seconds,
                per_minute=_per_minute(written.values(), holder[1], now) if holder else None,
                seconds_left=left,
                running=holder is not None and to_do > 0,
                measured=not is_running
                and all(letter_file(diversity, letter).is_file() for letter in params.competition.characters),
            )
        )
    return RunStatus(tuple(rows), tuple(notes))


def _read_records(params: Params, model: str, team: str) -> dict[Trial, _Written]:
    """Read the records of a team with a model; skip torn ones."""
    records = {}
    for trial in trials(params):
        path = record_path(stage_dir("raw", model, team), team, trial)
        with suppress(OSError, FileError):
            records[trial] = _Written(read_record(path), path.stat().st_mtime)
    return records


def _final(
    params: Params, model: str, submission: Submission | None, records: Mapping[Trial, _Written]
) -> dict[Trial, TrialRecord]:
    """Return the trials that the stage will not repeat, by the rule of the stage."""
    final = {trial: entry.record for trial, entry in records.items() if entry.record.is_final}
    if submission is None:
        return final
    fingerprint = present_fingerprint(params, model, submission)
    return {trial: record for trial, record in final.items() if fingerprint(trial, record.digest) == record.fingerprint}


def _per_minute(entries: Iterable[_Written], since: float, now: float) -> float | None:
    """Return how many trials a process finishes in a minute that runs since a time; None if it finished none yet."""
    return 60 * sum(entry.at >= since for entry in entries) / max(now - since, 1.0) or None


def _known_costs(params: Params, records: _Records) -> dict[_Place, _Cost]:
    """Return what trials took: those on the disk, else calls that were logged or recorded."""
    costs = {}
    logged: list[LoggedCall] | None = None
    for (model, team), written in records.items():
        replies = [(trial, answer.reply) for trial, entry in written.items() for answer in entry.record.exchanges]
        if not replies:
            logged = list(_logged_calls(CALLS.glob("*.jsonl"))) if logged is None else logged
            asked = (params.models[model].name, team)  # by its name: several entries may ask one model
            calls = [call for call in logged if (call.model, call.team) == asked]
            calls = calls or list(_logged_calls([recording_file(model, team)]))
            replies = [(Trial(call.letter or "", call.trial or 0), call.reply) for call in calls if call.reply]
        if replies:
            seconds = math.fsum(reply.seconds for _, reply in replies)
            costs[model, team] = _Cost(len({trial for trial, _ in replies}), len(replies), seconds)
    return costs


def _logged_calls(paths: Iterable[Path]) -> Iterator[LoggedCall]:
    """Yield the answered calls of trials at the ends of files; skip torn lines."""
    for path in paths:
        with suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LOG_BYTES))
            yield from (call for call in answered_calls(file) if call.letter)


def _trial_seconds(costs: Mapping[_Place, _Cost], model: str, team: str, submission: Submission | None) -> float | None:
    """Return what a trial takes: as the team's others did, else the model's mean call times the calls that it makes."""
    if cost := costs.get((model, team)):
        return cost.seconds / cost.trials
    of_model = [cost for (name, _), cost in costs.items() if name == model]
    of_team = [cost for (_, name), cost in costs.items() if name == team]
    if not of_model or not (of_team or (submission and isinstance(submission.work, Prompt))):
        return None
    calls = sum(cost.calls for cost in of_team) / sum(cost.trials for cost in of_team) if of_team else 1.0
    return calls * math.fsum(cost.seconds for cost in of_model) / sum(cost.calls for cost in of_model)
