"""From a submission to one response a trial: the stage generate.

Every finished trial lies on disk with a fingerprint of all that made it, and every reply of a model lies in the call
log. So a run that was killed goes on where it was, and a trial whose prompt or program, model, options, seed or limits
changed is done again, with a call only for what was never asked before. A trial of a recorded model is kept only while
it equals its recording.

A trial that fails through its model's server or through this machine is no result of the submission: the stage goes on
to its end, but fails, and the next run does the trial again. After some of these one after the other it stops at once,
unless the organiser has accepted such a failure of this submission: then it is its way, and all of them are to be seen.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.console import Progress
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes
from pcgeval.core.layout import CALLS, STATE, SUBMISSIONS, Trial, evaluation_lock, trials
from pcgeval.core.locks import lock_folder
from pcgeval.core.packages import packages_for
from pcgeval.core.params import Params, load_params
from pcgeval.core.stage_files import TrialOutcome, failed, succeeded, write_outcomes
from pcgeval.core.threads import map_in_threads
from pcgeval.core.trials import (
    RecordedTrial,
    TrialRecord,
    finished_trial,
    read_recorded_trials,
    record_path,
    write_trial,
)
from pcgeval.core.untrusted import well_formed
from pcgeval.generation.attempt import Attempt, TrialBackend, attempt, opened_runner
from pcgeval.generation.runners import PromptRunner
from pcgeval.generation.snapshot import submission_snapshot
from pcgeval.generation.tasks import GenerationTask, TrialObserver, stale_records
from pcgeval.llm.backends import pinned_digest
from pcgeval.llm.call_log import CallLog
from pcgeval.llm.protocol import Backend
from pcgeval.llm.recorded import RecordedModel
from pcgeval.submissions.load import Program, Prompt, Submission, load_submission

FAULTS_IN_A_ROW = 3  # failed trials that are not the submission's, until the model is asked for no more
_SHOWN_FAULTS = 5  # in a message
_SIGNAL_SECONDS = 0.05  # in which a signal that killed a program also reaches this process


class InputsChangedError(PcgevalError):
    """The submission or params.yaml changed while trials ran, so that these were made from something else."""


Report = Callable[[Trial, TrialRecord, bool], None]  # trial, its record, whether it was done just now


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


def generate_stage(
    params: Params,
    model: str,
    submission: Submission,
    backend: Backend,
    folder: Path,
    report: Report,
    *,
    state: Path = STATE,
    calls: Path = CALLS,
    trust_programs: bool = False,
    recorded_trials: Path | None = None,
    keep_others: bool = False,
    observer: TrialObserver | None = None,
    scheduler: str | None = None,
) -> None:
    """Do every trial that is not yet finished, then list what became of all of them.

    Args:
        params: The competition.
        model: The model's key in params.
        submission: The team's prompt or program; its files are copied first, and the trials run from the copy.
        backend: Where the model is asked.
        folder: The raw folder of the model and team; finished trials in it are kept.
        report: Called after each trial, finished before or just now.
        state: Where locks and the program's copy lie.
        calls: The call log's folder; a recorded model is only replayed and has no need of it.
        trust_programs: Run a program without a sandbox where there is none.
        recorded_trials: Where finished trials of a program lie; with a recorded model they are replayed, not run.
        keep_others: Leave what no trial of params owns in the folder; else it is removed.
        observer: Is told of trials while they run on this machine; only then what programs print is kept.
        scheduler: The address of a Dask cluster that does the trials, as many at once as the model's `concurrency`; a
            recorded model is replayed here.

    Raises:
        FolderBusyError: Another process works on the same folder.
        LlmError: The backend cannot serve, or the disk is full; what is finished stays and the next run goes on.
        InstallError: The packages of a program cannot be installed now, through no fault of its own.
        SandboxError: There is no sandbox for a program.
        TrialFaultError: Trials failed through no fault of the submission; the next run does them again.
    """
    settings = params.models[model]
    with (
        lock_folder(folder, evaluation_lock(model, submission.team, state)),
        submission_snapshot(submission, state / "snapshots" / model / submission.team) as copy,
    ):
        task = GenerationTask(copy, settings, pinned_digest(settings, backend), params.limits, params.competition.seed)
        trial_list = list(trials(params))
        if not keep_others:
            _remove_stale_files(folder, submission.team, trial_list)
        outcomes = []
        faults = {}
        recorded = read_recorded_trials(recorded_trials) if recorded_trials and settings.backend == "recorded" else {}
        generation = _Generation(task, backend, folder, calls, trust_programs, recorded, observer)
        far = None if settings.backend == "recorded" else scheduler
        for done in generation.finish(trial_list, settings.concurrency, far):
            outcomes.append(outcome_of(done.trial, done.record))
            report(done.trial, done.record, done.is_new)
            if not done.record.is_final:
                faults[done.trial] = done.record.reason
        write_outcomes(folder, outcomes)
    if faults:
        shown = [f"{trial.letter}{trial.number} ({faults[trial]})" for trial in sorted(faults)[:_SHOWN_FAULTS]]
        more = "" if len(faults) == len(shown) else f", and {len(faults) - len(shown)} more"
        accept = f" If one always fails: `pcgeval retry {submission.team} --accept WHY` counts it."
        raise TrialFaultError(
            f"{submission.team} with {model}: {len(faults)} of {len(trial_list)} trials failed through no fault of the "
            f"submission: {', '.join(shown)}{more}. Run again: these trials, and nothing else, are done again."
            f"{'' if keep_others else accept}"
        )


def check_unchanged(params: Params, model: str, team: str, folder: Path) -> None:
    """Compare what the trials were made from with what is there now, as DVC records the hashes of that.

    Args:
        params: The competition as it was when the stage began.
        model: The model's key in params.
        team: The team.
        folder: The raw folder of the model and team, all trials finished.

    Raises:
        InputsChangedError: The submission, or params.yaml in what decides a trial, changed meanwhile.
    """
    now, submission = load_params(), load_submission(SUBMISSIONS / team)
    if stale := stale_records(params, model, submission, folder):
        changed = SUBMISSIONS / team
    elif model not in now.models or [*trials(now)] != [*trials(params)]:
        stale, changed = [*trials(params)], Path("params.yaml")
    elif stale := stale_records(now, model, submission, folder):
        changed = Path("params.yaml")
    else:
        return
    raise InputsChangedError(
        f"{changed}: changed while the trials of {team} with {model} ran; {len(stale)} were made from what was there "
        f"before, and are kept in {folder}. Run again to do them with what is there now; or put the old back first."
    )


@dataclass(frozen=True)
class _FinishedTrial:
    trial: Trial
    record: TrialRecord
    is_new: bool


class TrialFaultError(PcgevalError):
    """Trials failed through a model's server or this machine, so that the stage's output is not complete."""


class _StoppedError(PcgevalError):
    """The run is being stopped, which is no failure of the program that it ended."""


class _Generation:
    """The trials of one model and team, those of an earlier run and those still to do."""

    def __init__(
        self,
        task: GenerationTask,
        backend: Backend,
        folder: Path,
        calls: Path,
        trust_programs: bool,
        recorded: Mapping[Trial, RecordedTrial],
        observer: TrialObserver | None,
    ) -> None:
        self.task, self.backend, self.folder, self.calls = task, backend, folder, calls
        self.trust_programs, self.recorded, self.observer = trust_programs, recorded, observer
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.faults_in_a_row = 0
        self.is_patient = False  # where such a fault was accepted, all are to be seen

    def finish(self, trial_list: list[Trial], threads: int, scheduler: str | None) -> Iterator[_FinishedTrial]:
        """Yield the finished trials, then do the others and yield each as it ends."""
        to_do = []
        team = self.task.submission.team
        for trial in trial_list:
            fingerprint = self.task.fingerprint(trial)
            kept = finished_trial(self.folder, team, trial, fingerprint)
            if kept and not kept.is_final:
                kept = None
            self.is_patient = self.is_patient or bool(kept and kept.accepted)
            recorded = self.recorded.get(trial)
            if recorded and (recorded.record.fingerprint != fingerprint or not self._equals_recording(recorded.record)):
                recorded = None
            if kept and (kept == recorded.record if recorded else self._equals_recording(kept)):
                yield _FinishedTrial(trial, kept, is_new=False)
            elif recorded:
                write_trial(self.folder, team, trial, recorded.response, recorded.record)
                yield _FinishedTrial(trial, recorded.record, is_new=True)
            else:
                to_do.append(trial)
        if to_do:
            with self._attempting(scheduler) as attempt_trial:
                yield from map_in_threads(lambda each: self._do(attempt_trial, each), to_do, threads, self.stopping)

    def _equals_recording(self, record: TrialRecord) -> bool:
        """Tell whether a trial's calls ended as its recording has them; the recording may have been edited since."""
        return not isinstance(self.backend, RecordedModel) or self.backend.replays(record.call_outcomes)

    @contextmanager
    def _attempting(self, scheduler: str | None) -> Iterator[Callable[[Trial], Attempt]]:
        """Open what does a trial: a sandbox or a package need be there only where a trial is to be done."""
        if scheduler:
            with packages_for("a Dask cluster"):
                from pcgeval.generation.cluster import attempts_on_cluster  # noqa: PLC0415 - an extra, slow to import
            with attempts_on_cluster(scheduler, self.task, self.calls, self.trust_programs) as attempt_there:
                yield attempt_there
            return
        log, observer = CallLog(self.calls), self.observer
        team, overtime = self.task.submission.team, self.task.limits.overtime
        with opened_runner(self.task, self.trust_programs, keep_output=observer is not None) as (runner, contained):

            def attempt_here(trial: Trial) -> Attempt:
                backend = TrialBackend(self.backend, log, team, trial, overtime, observer)
                return attempt(self.task, trial, runner, backend, contained=contained)

            yield attempt_here

    def _do(self, attempt_trial: Callable[[Trial], Attempt], trial: Trial) -> _FinishedTrial:
        team = self.task.submission.team
        if self.observer and isinstance(self.task.submission.work, Program):
            self.observer.asking(trial, 0)
        made = attempt_trial(trial)
        run = made.run
        if run.reason and isinstance(self.task.submission.work, Program) and self.stopping.wait(_SIGNAL_SECONDS):
            raise _StoppedError(f"{self.folder}: trial {trial.letter}{trial.number} was stopped. Run again to go on.")
        if self.observer:
            self.observer.ended(trial, run.printed)
        response, record = _response_and_record(self.task, trial, made)
        write_trial(self.folder, team, trial, response, record)
        with self.lock:
            self.faults_in_a_row = self.faults_in_a_row + 1 if record.cause else 0
            if self.faults_in_a_row >= FAULTS_IN_A_ROW and not self.is_patient:
                raise TrialFaultError(
                    f"{team} with {self.task.model.name}: {self.faults_in_a_row} trials one after the "
                    "other failed through no fault of the submission, the last one "
                    f"{trial.letter}{trial.number}: {record.reason}. No other was begun. Look at the log of the "
                    "model's server, then run again: what is finished is kept."
                )
        return _FinishedTrial(trial, record, is_new=True)


def replay_prompt(task: GenerationTask, trial: Trial, backend: Backend, log: CallLog) -> RecordedTrial:
    """Return a prompt's trial as the stage makes it from a reply that was given before.

    Args:
        task: The prompt and the model.
        trial: The trial.
        backend: The recorded model; or any, whose reply to this request is in the log.
        log: The calls that were made before.

    Raises:
        LlmError: The reply is not recorded.
    """
    assert isinstance(task.submission.work, Prompt)  # noqa: S101 - the caller knows
    calls = TrialBackend(backend, log, task.submission.team, trial, task.limits.overtime)
    made = attempt(task, trial, PromptRunner(task.submission.work, task.limits), calls, contained=True)
    return RecordedTrial(trial.letter, trial.number, *_response_and_record(task, trial, made))


def outcome_of(trial: Trial, record: TrialRecord) -> TrialOutcome:
    """Return what a trial's record says became of it, with the decision that its failure counts."""
    if record.reason is None:
        return succeeded(trial)
    decision = f"; counted as failed by {record.accepted}" if record.accepted else ""
    return failed(trial, "generate", record.reason + decision)


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


def _remove_stale_files(folder: Path, team: str, wanted: Iterable[Trial]) -> None:
    """Remove what no wanted trial owns, so that the folder holds the same bytes as a run from scratch."""
    if not folder.is_dir():
        return
    own = {record_path(folder, team, trial).with_suffix(suffix) for trial in wanted for suffix in (".txt", ".json")}
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path not in own:
            path.unlink()
