"""From the submissions to one response a trial: the stage generate.

The teams take turns letter by letter, so that a server that is slow for an hour costs all of them alike, and a run
that is stopped has results of every team. Every finished trial lies on disk with a fingerprint of all that made it, and
every reply of a model lies in the call log. So a run that was killed goes on where it was, and a trial whose prompt or
program, model, options, seed or limits changed is done again, with a call only for what was never asked before. A trial
of a recorded model is kept only while it equals its recording.

A trial that fails through its model's server or through this machine is no result of the submission: the stage goes on
to its end, but fails, and the next run does the trial again. After three of these one after the other it stops at once.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from pcgeval.core.console import Progress
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import remove_others, sha256_text
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
    TrialSummary,
    finished_trial,
    read_record,
    read_recorded_trials,
    record_path,
    write_summaries,
    write_trial,
)
from pcgeval.core.untrusted import well_formed
from pcgeval.generation.runners import Runner, TrialBackend, TrialRun, open_runner
from pcgeval.generation.summaries import trial_summary
from pcgeval.generation.tasks import GenerationTask, TrialObserver, present_fingerprint
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.call_log import CallLog
from pcgeval.llm.protocol import Backend
from pcgeval.llm.recorded import RecordedModel
from pcgeval.sandbox.sandbox import TRUST_PROGRAMS, SandboxError
from pcgeval.submissions.load import Program, Submission, load_submissions
from pcgeval.submissions.packages import InstallError, RequirementsError, lock_requirements

FAULTS_IN_A_ROW = 3  # failed trials that are not the submission's, until the model is asked for no more
_SHOWN_FAULTS = 5  # of a team, in a message
_SIGNAL_SECONDS = 0.05  # in which a signal that killed a program also reaches this process


class InputsChangedError(PcgevalError):
    """The submission or params.yaml changed while trials ran, so that these were made from something else."""


class TrialFaultError(PcgevalError):
    """Trials failed through a model's server or this machine, so that the stage's output is not complete."""


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
    progress = Progress(f"generate with {model}", len(teams) * len(list(trials(params))))

    def report(trial: Trial, record: TrialRecord, is_new: bool) -> None:
        progress.step(
            f"{trial.letter}{trial.number}: {record.reason or ('new' if is_new else 'kept')}",
            tokens=record.tokens,
            failed=record.reason is not None,
            repeated=not is_new,
        )

    folder, state = root / DATA / "raw" / model, root / STATE
    with lock_folder(folder, generation_lock(model, state)), progress:
        if not is_recorded:
            for submission in submissions.values():
                if isinstance(submission.work, Program):
                    # its trials fail with the reason, or are not begun while those of other teams are done
                    with suppress(RequirementsError, InstallError):
                        lock_requirements(submission.work.folder)
        trust = os.environ.get(TRUST_PROGRAMS) == "1"
        summaries = do_trials(params, model, teams, report, state=state, calls=root / CALLS, trust_programs=trust)
        for team, of_team in summaries.items():
            write_summaries(root / summaries_file(model, team), [of_team[trial] for trial in trials(params)])
        paths = [record_path(team.folder, team.submission.team, trial) for team in teams for trial in trials(params)]
        remove_others(folder, {path.with_suffix(suffix) for path in paths for suffix in (".txt", ".json")})
        remove_others(root / TRIALS / model, {root / summaries_file(model, team) for team in submissions})
    _check_unchanged(params, model, root)


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
) -> dict[str, dict[Trial, TrialSummary]]:
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

    Returns:
        The summary of each trial, by team.

    Raises:
        LlmError: The model cannot be asked, or the disk is full; what is finished stays and the next run goes on.
        TrialFaultError: Trials failed through no fault of a submission; the next run does them again.
        InstallError: The packages of a program cannot be installed now, through no fault of the program.
        SandboxError: There is no sandbox for a program. The trials of other teams are done before.
    """
    settings, log = params.models[model], CallLog(calls)
    summaries: dict[str, dict[Trial, TrialSummary]] = {team.submission.team: {} for team in teams}

    def keep(run: _TeamRun, trial: Trial, record: TrialRecord, is_new: bool) -> None:
        summaries[run.team][trial] = trial_summary(run.folder, run.task.submission, trial, record)
        report(trial, record, is_new)

    with ExitStack() as stack:
        runs = []
        for team in teams:
            copy = state / "snapshots" / model / team.submission.team
            submission = stack.enter_context(_snapshot(team.submission, copy))
            digest = settings.digest or team.backend.digest()
            task = GenerationTask(submission, settings, digest, params.limits, params.competition.seed)
            runs.append(_TeamRun(task, team, log, observer))
        letters = [list(group) for _, group in groupby(trials(params), key=attrgetter("letter"))]
        to_do = []
        for run, trial in [(run, trial) for letter in letters for run in runs for trial in letter]:
            if finished := run.finished(trial):
                keep(run, trial, *finished)
            else:
                to_do.append((run, trial))
        unfinished = list(dict.fromkeys(run for run, _ in to_do))
        for backend in {id(run.backend): run.backend for run in unfinished}.values():
            pinned_digest(settings, backend)  # a server that has nothing to do may be away
        errors = _open_runners(unfinished, stack, trust_programs, keep_output=observer is not None)
        to_do = [(run, trial) for run, trial in to_do if run.runner]
        try:
            for run, trial, record in _done_in_turn(model, to_do, settings.concurrency):
                keep(run, trial, record, True)
        except PcgevalError as error:
            errors.append(error)
        else:
            errors += [TrialFaultError(_faults_message(model, run)) for run in runs if run.faults]
    if errors:
        raise errors[0] if len(errors) == 1 else TrialFaultError("\n".join(map(str, errors)))
    return summaries


def _open_runners(
    runs: Sequence["_TeamRun"], stack: ExitStack, trust_programs: bool, *, keep_output: bool
) -> list[PcgevalError]:
    """Open what does the trials of some teams; return why that cannot be done, for those without."""
    errors: list[PcgevalError] = []
    for run in runs:
        try:
            run.runner = stack.enter_context(open_runner(run.task, trust_programs, keep_output=keep_output))
        except PcgevalError as error:
            errors.append(error)
    return errors


def _done_in_turn(
    model: str, to_do: Sequence[tuple["_TeamRun", Trial]], threads: int
) -> Iterator[tuple["_TeamRun", Trial, TrialRecord]]:
    """Do trials, several at once, and yield each as it ends.

    Raises:
        LlmError: The model cannot be asked.
        TrialFaultError: Too many trials one after the other failed through no fault of a submission.
    """
    stopping, lock = threading.Event(), threading.Lock()
    faults_in_a_row = 0

    def do(item: tuple[_TeamRun, Trial]) -> tuple[_TeamRun, Trial, TrialRecord]:
        nonlocal faults_in_a_row
        run, trial = item
        record = run.do(trial, stopping)
        with lock:
            faults_in_a_row = faults_in_a_row + 1 if record.cause else 0
            if record.cause:
                run.faults[trial] = record.reason or ""
            if faults_in_a_row >= FAULTS_IN_A_ROW:
                raise TrialFaultError(
                    f"{run.team} with {model}: {faults_in_a_row} trials one after the other failed through no fault "
                    f"of the submission, the last one {trial.letter}{trial.number}: {record.reason}. No other was "
                    "begun. Look at the log of the model's server, then run again: what is finished is kept."
                )
        return run, trial, record

    return map_in_threads(do, to_do, threads, stopping)


def _faults_message(model: str, run: "_TeamRun") -> str:
    shown = [f"{trial.letter}{trial.number} ({run.faults[trial]})" for trial in sorted(run.faults)[:_SHOWN_FAULTS]]
    more = "" if len(run.faults) == len(shown) else f", and {len(run.faults) - len(shown)} more"
    return (
        f"{run.team} with {model}: {len(run.faults)} trials failed through no fault of the submission: "
        f"{', '.join(shown)}{more}. Run again: these trials, and nothing else, are done again. If they always fail, "
        f"take {run.team} out of `teams` in params.yaml."
    )


class _TeamRun:
    """The trials of one team while they are done."""

    def __init__(self, task: GenerationTask, team: TeamTrials, log: CallLog, observer: TrialObserver | None) -> None:
        self.task, self.backend, self.folder, self.recorded = task, team.backend, team.folder, team.recorded
        self.team, self.log, self.observer = team.submission.team, log, observer
        self.faults: dict[Trial, str] = {}
        self.runner: Runner | None = None  # a sandbox or a package need be there only where a trial is to be done

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
        """Do a trial and write it; a sandbox that fails is a fault of this machine."""
        assert self.runner is not None  # noqa: S101 - opened before
        is_program = isinstance(self.task.submission.work, Program)
        if self.observer and is_program:
            self.observer.asking(trial, 0)
        job, backend = self.task.job(trial), TrialBackend(self.backend, self.log, self.team, trial, self.observer)
        try:
            run = self.runner(job, backend)
            cause = None if run.reason in (None, self.task.limits.overtime) else backend.cause
        except SandboxError as error:
            run, cause = TrialRun(reason=str(error)), "machine"
        if run.reason and is_program and stopping.wait(_SIGNAL_SECONDS):
            raise PcgevalError(f"{self.folder}: trial {trial.letter}{trial.number} was stopped. Run again to go on.")
        if self.observer:
            self.observer.ended(trial, run.printed)
        response = "" if run.reason else well_formed(run.response)
        record = TrialRecord(
            fingerprint=self.task.fingerprint(trial),
            seed=job.seed,
            model=job.model.name,
            digest=job.digest,
            exchanges=run.exchanges,
            response_sha256=sha256_text(response),
            reason=run.reason,
            failures=tuple(backend.failures),
            flags=run.flags,
            contained=run.contained,
            cause=cause,
        )
        write_trial(self.folder, self.team, trial, response, record)
        return record


@contextmanager
def _snapshot(submission: Submission, folder: Path) -> Iterator[Submission]:
    """Yield a submission with a copy of its program as it is now; a prompt is in memory already.

    Args:
        submission: The submission; messages go on to name its folder.
        folder: Where the copy goes, readable to all and writable to nobody, and is removed at the end. It belongs to
            the process that holds the lock of the model; what a killed run left in it is removed.

    Raises:
        FileError: A file cannot be copied.
    """
    program = submission.work
    if not isinstance(program, Program):
        yield submission
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        try:
            for name in program.files():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(program.folder / name, target, follow_symlinks=False)
                target.chmod(0o444 | target.stat().st_mode & 0o111)
        except OSError as error:
            raise FileError(
                f"{program.folder}: cannot be copied to {folder} ({error.strerror}). Make room on its disk, then run "
                "again."
            ) from error
        yield replace(submission, work=replace(program, folder=folder, original=program.folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _check_unchanged(params: Params, model: str, root: Path) -> None:
    """Compare what the trials were made from with what is there now, as DVC records the hashes of that.

    Raises:
        InputsChangedError: A submission, or params.yaml in what decides a trial, changed meanwhile.
    """
    now, submissions = load_params(root / PARAMS_FILE), load_submissions(params.teams, root / SUBMISSIONS)
    others = model not in now.models or [*trials(now)] != [*trials(params)] or {*now.teams} != {*params.teams}
    trial = next(trials(params))  # all trials of a team were made from one state of its submission: one of them tells
    for team, submission in submissions.items():
        folder = root / stage_dir("raw", model, team)
        record = read_record(record_path(folder, team, trial))
        if present_fingerprint(params, model, submission)(trial, record.digest) != record.fingerprint:
            changed = SUBMISSIONS / team
        elif others or present_fingerprint(now, model, submission)(trial, record.digest) != record.fingerprint:
            changed = Path(PARAMS_FILE)
        else:
            continue
        raise InputsChangedError(
            f"{changed}: changed while the trials of {team} with {model} ran, which were made from what was there "
            f"before, and are kept in {folder}. Run again to do them with what is there now; or put the old back first."
        )
