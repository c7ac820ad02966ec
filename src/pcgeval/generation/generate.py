"""From the submissions to one response a trial: the stage generate.

The teams take turns letter by letter, so that a server that is slow for an hour costs all of them alike, and a run
that is stopped has results of every team. Every finished trial lies on disk with a fingerprint of all that made it, and
every reply of a model lies in the call log. So a run that was killed goes on where it was, and a trial whose prompt or
program, model, options, seed or limits changed is done again, with a call only for what was never asked before. A trial
of a recorded model is kept only while it equals its recording.

A trial that fails through its model's server or through this machine is no result of the submission: the stage goes on
to its end, but fails, and the next run does the trial again. After some of these one after the other it stops at once,
unless the organiser has accepted such a failure of this submission: then it is its way, and all of them are to be seen.
"""

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from pcgeval.core.console import Progress
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import remove_others, sha256_bytes
from pcgeval.core.layout import (
    CALLS,
    DATA,
    STATE,
    SUBMISSIONS,
    TRIALS,
    Trial,
    generation_lock,
    recorded_trials_file,
    recording_file,
    stage_dir,
    summaries_file,
    trials,
)
from pcgeval.core.locks import lock_folder
from pcgeval.core.parallel import map_in_threads
from pcgeval.core.params import PARAMS_FILE, Params, load_params
from pcgeval.core.trials import (
    RecordedTrial,
    TrialRecord,
    finished_trial,
    read_record,
    read_recorded_trials,
    record_path,
    write_trial,
)
from pcgeval.core.untrusted import well_formed
from pcgeval.generation.attempt import Attempt, Runner, TrialBackend, attempt, opened_runner
from pcgeval.generation.environments import lock_requirements
from pcgeval.generation.snapshot import submission_snapshot
from pcgeval.generation.summaries import summarise_trials
from pcgeval.generation.tasks import GenerationTask, TrialObserver, present_fingerprint
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.call_log import CallLog
from pcgeval.llm.protocol import Backend
from pcgeval.llm.recorded import RecordedModel
from pcgeval.sandbox.sandbox import TRUST_PROGRAMS
from pcgeval.submissions.load import Program, Submission, load_submissions
from pcgeval.submissions.requirements import RequirementsError

FAULTS_IN_A_ROW = 3  # failed trials that are not the submission's, until the model is asked for no more
_SHOWN_FAULTS = 5  # of a team, in a message
_SIGNAL_SECONDS = 0.05  # in which a signal that killed a program also reaches this process


class InputsChangedError(PcgevalError):
    """The submission or params.yaml changed while trials ran, so that these were made from something else."""


class TrialFaultError(PcgevalError):
    """Trials failed through a model's server or this machine, so that the stage's output is not complete."""


class _StoppedError(PcgevalError):
    """The run is being stopped, which is no failure of the program that it ended."""


Report = Callable[[Trial, TrialRecord, bool], None]  # trial, its record, whether it was done just now


@dataclass(frozen=True)
class TeamTrials:
    """The trials of one team with a model.

    Attributes:
        submission: The team's prompt or program.
        backend: Where the model is asked.
        folder: The raw folder of the model and team; finished trials in it are kept.
        recorded: Finished trials of a program, which are replayed without running it.
    """

    submission: Submission
    backend: Backend
    folder: Path
    recorded: Mapping[Trial, RecordedTrial] = field(default_factory=dict)


def generate_stage(params: Params, model: str, root: Path = Path()) -> None:
    """Do every trial of all teams with a model that is not yet finished; remove what no trial owns.

    Args:
        params: The competition.
        model: The model's key in params.
        root: The competition's folder.

    Raises:
        FolderBusyError: Another process works on the same model.
        LlmError: The model cannot be asked, or the disk is full; what is finished stays and the next run goes on.
        TrialFaultError: Trials failed through no fault of a submission; the next run does them again.
        InputsChangedError: The submissions or params.yaml changed meanwhile, or DVC would take the trials for theirs.
        PcgevalError: A program cannot be run here; the trials of the other teams are done.
    """
    settings, submissions = params.models[model], load_submissions(params.teams, root / SUBMISSIONS)
    is_recorded = settings.backend == "recorded"
    live = None if is_recorded else open_backend(settings)
    teams = [
        TeamTrials(
            submission,
            live or open_backend(settings, root / recording_file(model, team)),
            root / stage_dir("raw", model, team),
            read_recorded_trials(root / recorded_trials_file(model, team)) if is_recorded else {},
        )
        for team, submission in submissions.items()
    ]
    folder, state = root / DATA / "raw" / model, root / STATE
    with lock_folder(folder, generation_lock(model, state)):
        if not is_recorded:
            for submission in submissions.values():
                if isinstance(submission.work, Program):
                    with suppress(RequirementsError):  # its trials fail with the reason
                        lock_requirements(submission.work.folder)
        do_trials(
            params,
            model,
            teams,
            report_to(Progress(f"generate with {model}", len(teams) * len(list(trials(params))))),
            state=state,
            calls=root / CALLS,
            trust_programs=os.environ.get(TRUST_PROGRAMS) == "1",
        )
        for team in teams:
            summaries = root / summaries_file(model, team.submission.team)
            summarise_trials(summaries, team.folder, team.submission, trials(params))
        remove_others(folder, {path for team in teams for path in _files(team, params)})
        remove_others(root / TRIALS / model, {root / summaries_file(model, team) for team in params.teams})
    _check_unchanged(params, model, root)


def report_to(progress: Progress) -> Report:
    """Return a report that counts trials in a progress line, and the failed and the kept ones among them."""

    def report(trial: Trial, record: TrialRecord, is_new: bool) -> None:
        progress.step(
            f"{trial.letter}{trial.number}: {record.reason or ('new' if is_new else 'kept')}",
            tokens=record.tokens,
            failed=record.reason is not None,
            kept=not is_new,
        )

    return report


def do_trials(
    params: Params,
    model: str,
    teams: Sequence[TeamTrials],
    report: Report,
    *,
    state: Path = STATE,
    calls: Path = CALLS,
    trust_programs: bool = False,
    observer: TrialObserver | None = None,
) -> None:
    """Do every trial of some teams that is not yet finished, one letter of each team after the other.

    Args:
        params: The competition.
        model: The model's key in params.
        teams: The teams. The files of a program are copied first, and its trials run from the copy.
        report: Called after each trial, finished before or just now.
        state: Where the programs' copies lie.
        calls: The call log's folder; a recorded model is only replayed and has no need of it.
        trust_programs: Run programs without a sandbox where there is none.
        observer: Is told of trials while they run; only then what programs print is kept.

    Raises:
        LlmError: The model cannot be asked, or the disk is full; what is finished stays and the next run goes on.
        TrialFaultError: Trials failed through no fault of a submission; the next run does them again.
        InstallError: The packages of a program cannot be installed now, through no fault of its own.
        SandboxError: There is no sandbox for a program. The trials of other teams are done before.
    """
    settings = params.models[model]
    with ExitStack() as stack:
        runs, log = [], CallLog(calls)
        for team in teams:
            copy = state / "snapshots" / model / team.submission.team
            submission = stack.enter_context(submission_snapshot(team.submission, copy))
            digest = settings.digest or team.backend.digest()
            task = GenerationTask(submission, settings, digest, params.limits, params.competition.seed)
            runs.append(_TeamRun(task, team, log, observer))
        generation = _Generation(model, runs, params, report)
        generation.report_finished()
        for backend in {id(run.backend): run.backend for run, _ in generation.to_do}.values():
            pinned_digest(settings, backend)  # a server that has nothing to do may be away
        errors = generation.open_runners(stack, trust_programs)
        generation.do_others(settings.concurrency)
        errors += [TrialFaultError(_faults_message(model, run)) for run in runs if run.faults]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise TrialFaultError("\n".join(map(str, errors)))


def _faults_message(model: str, run: "_TeamRun") -> str:
    shown = [f"{trial.letter}{trial.number} ({run.faults[trial]})" for trial in sorted(run.faults)[:_SHOWN_FAULTS]]
    more = "" if len(run.faults) == len(shown) else f", and {len(run.faults) - len(shown)} more"
    return (
        f"{run.team} with {model}: {len(run.faults)} trials failed through no fault of the submission: "
        f"{', '.join(shown)}{more}. Run again: these trials, and nothing else, are done again. If they always fail, "
        f"take {run.team} out of `teams` in params.yaml."
    )


def _check_unchanged(params: Params, model: str, root: Path) -> None:
    """Compare what the trials were made from with what is there now, as DVC records the hashes of that.

    Raises:
        InputsChangedError: A submission, or params.yaml in what decides a trial, changed meanwhile.
    """
    now, submissions = load_params(root / PARAMS_FILE), load_submissions(params.teams, root / SUBMISSIONS)
    is_other = model not in now.models or [*trials(now)] != [*trials(params)] or {*now.teams} != {*params.teams}
    trial = next(trials(params))  # all trials of a team were made from one state of its submission: one of them tells
    for team, submission in submissions.items():
        folder = root / stage_dir("raw", model, team)
        record = read_record(record_path(folder, team, trial))
        if present_fingerprint(params, model, submission)(trial, record.digest) != record.fingerprint:
            changed = SUBMISSIONS / team
        elif is_other or present_fingerprint(now, model, submission)(trial, record.digest) != record.fingerprint:
            changed = Path(PARAMS_FILE)
        else:
            continue
        raise InputsChangedError(
            f"{changed}: changed while the trials of {team} with {model} ran, which were made from what was there "
            f"before, and are kept in {folder}. Run again to do them with what is there now; or put the old back first."
        )


class _TeamRun:
    """The trials of one team while they are done."""

    def __init__(self, task: GenerationTask, team: TeamTrials, log: CallLog, observer: TrialObserver | None) -> None:
        self.task, self.backend, self.folder, self.recorded = task, team.backend, team.folder, team.recorded
        self.team, self.log, self.observer = team.submission.team, log, observer
        self.faults: dict[Trial, str] = {}
        self.runner: Runner | None = None  # a sandbox or a package need be there only where a trial is to be done
        self.contained = True

    def finished(self, trial: Trial) -> tuple[TrialRecord, bool] | None:
        """Return the record of a trial that need not be done, and whether it was replayed just now."""
        fingerprint = self.task.fingerprint(trial)
        before = finished_trial(self.folder, self.team, trial, fingerprint)
        if before and not before.is_final:
            before = None
        recorded = self.recorded.get(trial)
        if recorded and (recorded.record.fingerprint != fingerprint or not self._equals_recording(recorded.record)):
            recorded = None
        if before and (before == recorded.record if recorded else self._equals_recording(before)):
            return before, False
        if recorded:
            write_trial(self.folder, self.team, trial, recorded.response, recorded.record)
            return recorded.record, True
        return None

    def _equals_recording(self, record: TrialRecord) -> bool:
        """Tell whether a trial's calls ended as its recording has them; the recording may have been edited since."""
        return not isinstance(self.backend, RecordedModel) or self.backend.replays(record.call_outcomes)

    def do(self, trial: Trial, stopping: threading.Event) -> TrialRecord:
        """Do a trial and write it."""
        assert self.runner is not None  # noqa: S101 - opened before
        is_program = isinstance(self.task.submission.work, Program)
        if self.observer and is_program:
            self.observer.asking(trial, 0)
        backend = TrialBackend(self.backend, self.log, self.team, trial, self.observer)
        outcome = attempt(self.task, trial, self.runner, backend, contained=self.contained)
        if outcome.run.reason and is_program and stopping.wait(_SIGNAL_SECONDS):
            raise _StoppedError(f"{self.folder}: trial {trial.letter}{trial.number} was stopped. Run again to go on.")
        if self.observer:
            self.observer.ended(trial, outcome.run.printed)
        response, record = _response_and_record(self.task, trial, outcome)
        write_trial(self.folder, self.team, trial, response, record)
        return record


class _Generation:
    """The trials of all teams in turn: those of an earlier run and those still to do."""

    def __init__(self, model: str, runs: Sequence[_TeamRun], params: Params, report: Report) -> None:
        self.model = model
        by_letter = [list(group) for _, group in groupby(trials(params), key=attrgetter("letter"))]
        self.to_do = [(run, trial) for letter in by_letter for run in runs for trial in letter]
        self.report = report
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.faults_in_a_row = 0

    def report_finished(self) -> None:
        """Report the trials that need not be done, and take them off the list."""
        left = []
        for run, trial in self.to_do:
            if finished := run.finished(trial):
                self.report(trial, *finished)
            else:
                left.append((run, trial))
        self.to_do = left

    def open_runners(self, stack: ExitStack, trust_programs: bool) -> list[PcgevalError]:
        """Open what runs each submission that has trials to do; return why some cannot be run, and leave these out."""
        errors: list[PcgevalError] = []
        for run in dict.fromkeys(run for run, _ in self.to_do):
            opening = opened_runner(run.task, trust_programs, keep_output=run.observer is not None)
            try:
                run.runner, run.contained = stack.enter_context(opening)
            except PcgevalError as error:
                errors.append(error)
        self.to_do = [(run, trial) for run, trial in self.to_do if run.runner is not None]
        return errors

    def do_others(self, threads: int) -> None:
        """Do the trials on the list, several at once, and report each as it ends.

        Raises:
            LlmError: The model cannot be asked.
            TrialFaultError: Too many trials one after the other failed through no fault of a submission.
        """
        for trial, record in map_in_threads(self._do, self.to_do, threads, self.stopping):
            self.report(trial, record, True)

    def _do(self, item: tuple[_TeamRun, Trial]) -> tuple[Trial, TrialRecord]:
        run, trial = item
        record = run.do(trial, self.stopping)
        with self.lock:
            if record.cause is not None:
                run.faults[trial] = record.reason or ""
            self.faults_in_a_row = self.faults_in_a_row + 1 if record.cause else 0
            if self.faults_in_a_row >= FAULTS_IN_A_ROW:
                raise TrialFaultError(
                    f"{run.team} with {self.model}: {self.faults_in_a_row} trials one after the other failed "
                    f"through no fault of the submission, the last one {trial.letter}{trial.number}: {record.reason}. "
                    "No other was begun. Look at the log of the model's server, then run again: what is finished is "
                    "kept."
                )
        return trial, record


def _response_and_record(task: GenerationTask, trial: Trial, made: Attempt) -> tuple[str, TrialRecord]:
    run, job = made.run, task.job(trial)
    response = "" if run.reason else well_formed(run.response)
    record = TrialRecord(
        fingerprint=task.fingerprint(trial),
        seed=job.seed,
        model=job.model.name,
        digest=job.digest,
        exchanges=run.exchanges,
        response_sha256=sha256_bytes(response.encode("utf-8")),
        reason=run.reason,
        failures=made.failures,
        flags=run.flags,
        contained=made.contained,
        cause=made.cause,
    )
    return response, record


def _files(team: TeamTrials, params: Params) -> Sequence[Path]:
    """Return the files of a team's trials: the response and the record of each."""
    records = [record_path(team.folder, team.submission.team, trial) for trial in trials(params)]
    return [path.with_suffix(suffix) for path in records for suffix in (".txt", ".json")]
