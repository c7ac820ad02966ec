"""The command `status`: the progress of a run, before, during and after it.

Reading takes no lock, so it never disturbs a run. A file that a stage is writing counts as missing.
"""

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from pcgeval.cli.options import Json, group, print_json, print_table
from pcgeval.core.console import print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.locks import dvc_is_running, lock_holder
from pcgeval.core.text import count, duration, listed
from pcgeval.formats.layout import (
    CALLS,
    DVC_LOCK,
    GENERATION_LOCK,
    SUBMISSIONS,
    Trial,
    letter_file,
    recording_file,
)
from pcgeval.formats.params import Params, load_params
from pcgeval.formats.trial_view import TrialFiles
from pcgeval.formats.trials import TrialRecord
from pcgeval.generation.tasks import models_by_server, present_fingerprint
from pcgeval.llm.call_log import LoggedCall, logged_calls
from pcgeval.llm.protocol import full_name
from pcgeval.submissions.load import Submission, SubmissionError, load_submission

_LOG_BYTES = 4 * 2**20  # at the end of each file of logged calls: enough to know how long a model takes
_WATCH_SECONDS = 5.0  # between two looks
_MEASURING = ("extract", "convert", "simulate", "classify", "diversity")  # the stages after generate
_Records = Mapping[tuple[str, str], Mapping[Trial, TrialRecord]]  # by model and team

app = group()


@dataclass(frozen=True)
class TeamProgress:
    """The trials of one team with one model."""

    model: str
    team: str
    trials: int
    done: int  # finished, whatever their outcome
    failed: int  # of those that are done: in generate and, once all is measured, in any stage
    repeated: int  # on the disk, and the next run does them again
    flagged: int
    tokens: int
    trial_seconds: float | None  # measured, or estimated by earlier calls; None if nothing is known
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
    servers: tuple[tuple[str, ...], ...]  # the models that run one after the other; the groups run side by side

    @property
    def done(self) -> bool:
        """Whether every trial is done and measured."""
        return all(team.state == "evaluated" for team in self.teams)

    def total(self, figure: str) -> int:
        """Return the sum of one of the figures of `TeamProgress` over all teams and models."""
        return sum(getattr(team, figure) for team in self.teams)

    @property
    def seconds_left(self) -> float | None:
        """The remaining time: a lower bound if that of some teams is unknown, None if that of all is."""
        left = {team: team.seconds_left for team in self.teams if team.seconds_left is not None}
        of_servers = (sum(left[team] for team in left if team.model in models) for models in self.servers)
        return max(of_servers) if left else None

    @property
    def unknown(self) -> list[str]:
        """The teams without a known time of a trial."""
        return sorted({team.team for team in self.teams if team.seconds_left is None})

    @property
    def summary(self) -> str:
        """The figures of the whole run as a sentence."""
        parts = [f"{self.total('done')} of {self.total('trials')} trials are done"]
        parts += [f"{self.total('failed')} failed", f"{self.total('flagged')} flagged"]
        if repeated := self.total("repeated"):
            parts.append(f"{repeated} to do again")
        parts.append(f"{self.total('tokens'):,} tokens")
        if self.seconds_left:
            least = "at least " if self.unknown else "about "
            parts.append(f"{least}{duration(self.seconds_left)} left")
        unknown = f" The time of {listed(self.unknown)} is not known yet." if self.unknown else ""
        return f"{', '.join(parts)}.{unknown}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as values for JSON."""
        return {
            "done": self.done,
            "trials": self.total("trials"),
            **{f"trials_{figure}": self.total(figure) for figure in ("done", "failed", "repeated", "flagged")},
            "tokens": self.total("tokens"),
            "seconds_left": self.seconds_left,
            "seconds_left_unknown_for": self.unknown,
            "teams": [{**asdict(team), "state": team.state} for team in self.teams],
            "notes": self.notes,
        }


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until all trials are evaluated.")] = False,
    json: Json = False,
) -> None:
    """Show the progress of a run: trials done, failed and left.

    The command works before, during and after a run, and never disturbs it. It estimates the time left from earlier
    calls to the same models.
    """
    while True:
        run = run_status(load_params())
        if json:
            print_json(run.to_json())
        else:
            if watch and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")  # from the top of an empty screen
            _print_status(run)
        sys.stdout.flush()
        if run.done or not watch:
            return
        time.sleep(_WATCH_SECONDS)


def _print_status(run: RunStatus) -> None:
    rows = [
        (
            team.model,
            team.team,
            f"{team.done}/{team.trials}",
            str(team.failed),
            str(team.repeated),
            str(team.flagged),
            f"{team.tokens:,}",
            "?" if team.trial_seconds is None else f"{team.trial_seconds:.1f}",
            "?" if team.seconds_left is None else duration(team.seconds_left) if team.seconds_left else "-",
            team.state,
        )
        for team in run.teams
    ]
    columns = ("model", "team", "trials", "failed", "again", "flagged", "tokens", "s/trial", "left", "state")
    print_table(columns, rows, rare={"again", "flagged"})
    print(run.summary)
    for note in run.notes:
        print_stderr(note)


def run_status(params: Params) -> RunStatus:
    """Read where the run in the working directory stands."""
    notes: list[str] = []
    submissions: dict[str, Submission] = {}
    for team, decisions in params.teams.items():
        try:
            submissions[team] = load_submission(SUBMISSIONS / team, decisions)
        except (SubmissionError, FileError) as error:
            notes.append(str(error))
    files = {place: TrialFiles(*place, during_run=True) for place in product(params.models, params.teams)}
    records = {
        place: {trial: record for trial in params.trials() if (record := team.record(trial))}
        for place, team in files.items()
    }
    seconds = _trial_seconds(params, records)
    is_running, is_generating = dvc_is_running(Path()), lock_holder(GENERATION_LOCK) is not None
    is_measured = not is_running and _are_measurements_new()
    rows = []
    for (model, team), written in records.items():
        final = _final(params, model, submissions.get(team), written)
        if again := [record for trial, record in written.items() if trial not in final]:
            changed = "it was made from another submission, model, seed or limits"
            why = changed if again[-1].is_final else str(again[-1].failure)
            notes.append(f"{model}, {team}: the next run does {count(len(again), 'trial')} again; the last one: {why}")
        to_do = len(list(params.trials())) - len(final)
        trial_seconds = seconds.get((model, team))
        left = None if trial_seconds is None else to_do * trial_seconds / params.models[model].concurrency
        if not to_do or params.models[model].backend == "recorded":
            left = 0.0
        diversity = files[model, team].folders["diversity"]  # of the last of the stages that measure
        measured = is_measured and all(
            letter_file(diversity, letter).is_file() for letter in params.competition.characters
        )
        failed = {trial for trial, record in final.items() if record.failure is not None}
        if measured:
            outcomes = files[model, team].outcomes
            failed |= {trial for trial in final if trial in outcomes and outcomes[trial].failure}
        rows.append(
            TeamProgress(
                model=model,
                team=team,
                trials=to_do + len(final),
                done=len(final),
                failed=len(failed),
                repeated=len(again),
                flagged=sum(bool(record.flags) for record in written.values()),
                tokens=sum(record.tokens for record in written.values()),
                trial_seconds=trial_seconds,
                seconds_left=left,
                running=is_generating and to_do > 0,
                measured=measured,
            )
        )
    return RunStatus(tuple(rows), tuple(notes), tuple(map(tuple, models_by_server(params))))


def _are_measurements_new() -> bool:
    """Tell whether each stage up to diversity read what the one before it wrote last, by dvc.lock.

    Without dvc.lock it did; while DVC writes it, it did not.
    """
    try:
        stages = yaml.load(DVC_LOCK.read_bytes(), yaml.CSafeLoader)["stages"]
        written = {out["path"]: out.get("md5") for stage in stages.values() for out in stage.get("outs", ())}
        read = [(dep["path"], dep.get("md5")) for name in _MEASURING for dep in stages[name]["deps"]]
    except FileNotFoundError:
        return True
    except (OSError, yaml.YAMLError, KeyError, TypeError):
        return False
    return all(written.get(path, md5) == md5 for path, md5 in read)


def _final(
    params: Params, model: str, submission: Submission | None, records: Mapping[Trial, TrialRecord]
) -> dict[Trial, TrialRecord]:
    """Return the trials that the stage will not repeat, by the rule of the stage."""
    final = {trial: record for trial, record in records.items() if record.is_final}
    if submission is None:
        return final
    fingerprint = present_fingerprint(params, model, submission)
    return {trial: record for trial, record in final.items() if fingerprint(trial, record.digest) == record.fingerprint}


def _trial_seconds(params: Params, records: _Records) -> dict[tuple[str, str], float]:
    """Return the mean time of a trial by model and team, where it is known.

    It is that of the team's trials on the disk, else that of its logged or recorded calls, else that of the model's
    trials of all teams.
    """
    answers: dict[tuple[str, str], list[tuple[Trial, float]]] = {}
    logged = [] if all(records.values()) else list(_logged_calls(CALLS.glob("*.jsonl")))
    for (model, team), written in records.items():
        done = [(trial, answer.reply) for trial, record in written.items() for answer in record.exchanges]
        if not done:
            name = full_name(params.models[model].name)  # several entries may ask one model
            calls = [call for call in logged if call.team == team and full_name(call.model or "") == name]
            calls = calls or list(_logged_calls([recording_file(model, team)]))
            done = [(Trial(call.letter or "", call.trial or 0), call.reply) for call in calls if call.reply]
        answers[model, team] = [(trial, reply.seconds) for trial, reply in done]
    times = {}
    for (model, team), team_trials in answers.items():
        teams = [team_trials] if team_trials else [others for (name, _), others in answers.items() if name == model]
        if number := sum(len({trial for trial, _ in done}) for done in teams):
            whole = math.fsum(seconds for done in teams for _, seconds in done)
            times[model, team] = whole / number
    return times


def _logged_calls(paths: Iterable[Path]) -> Iterator[LoggedCall]:
    """Yield the answered calls of trials at the ends of files; skip torn lines."""
    for path in paths:
        with suppress(OSError), path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            yield from (call for call in logged_calls(file) if call.letter and call.reply)
