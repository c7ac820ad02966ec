"""The stage generate: one response for each trial of each submission.

Teams take turns letter by letter, so that an hour in which the server is slow costs all of them alike, and a stopped
run has results of every team. A finished trial lies on disk with a fingerprint of everything that decides its response,
and every reply lies in the call log, so an interrupted run continues where it stopped. A trial with other inputs runs
again, and pays only for calls that were never made. A trial of a recorded model counts only while it equals its
recording.

Before the first trial of a live model, and after every failure that may be its server's, a neutral call shows whether
the model answers at all (`llm.blame`). A trial that fails through its server or through this machine is no result of
the submission: the stage finishes the other trials and then fails, and the next run repeats it.
"""

import gc
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path

from pcgeval.core.console import Progress, error_message
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import copy_files, mark_written, sha256_text
from pcgeval.core.locks import lock_folder
from pcgeval.core.text import count, well_formed
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import (
    CALLS,
    DATA,
    GENERATION_LOCK,
    STATE,
    SUBMISSIONS,
    TRIALS,
    Trial,
    packages_lock,
    recording_file,
    stage_dir,
    summaries_file,
)
from pcgeval.formats.params import PARAMS_FILE, Limits, Model, Params, load_params
from pcgeval.formats.stages import changed_teams
from pcgeval.formats.trials import (
    Course,
    TrialRecord,
    TrialSummary,
    finished_trial,
    read_record,
    record_path,
    write_summaries,
    write_trial,
)
from pcgeval.generation.runners import Runner, TrialBackend, TrialRun, open_runner, run_twice
from pcgeval.generation.summaries import trial_summary
from pcgeval.generation.tasks import GenerationTask, TrialObserver, models_by_server, present_fingerprint
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.blame import LiveModel, neutral_request, neutral_seconds
from pcgeval.llm.call_log import CallLog, RecordedModel
from pcgeval.llm.protocol import Backend, ChatReply, ChatRequest, LlmError
from pcgeval.parallel.processes import map_in_threads
from pcgeval.sandbox.sandbox import SandboxError, programs_are_trusted
from pcgeval.submissions.load import Program, Submission, load_submissions
from pcgeval.submissions.packages import PackagesError, lock_requirements

_SIGNAL_SECONDS = 0.05  # in which a signal that killed a program also reaches this process


class InputsChangedError(PcgevalError):
    """A submission or params.yaml changed while trials ran, so that the trials have other inputs."""


class TrialFaultError(PcgevalError):
    """Trials failed through a model's server or this machine, so that the stage's output is not complete."""


Report = Callable[[Trial, TrialRecord, bool], None]  # a trial, its record, and whether it ran just now


@dataclass(frozen=True)
class TeamTrials:
    """The trials of one team with a model."""

    submission: Submission
    backend: Backend
    folder: Path  # with the trials' files; finished ones stay
    courses: Mapping[Trial, Course] = field(default_factory=dict)  # of trials that are repeated
    thought: dict[Trial, float] = field(default_factory=dict)  # by the trials that ran: see TrialRun


def generate_stage(params: Params, root: Path = Path()) -> None:
    """Run every unfinished trial, and remove files of trials that do not exist any more.

    The models of one server run one after the other, so that it loads each of them once; servers run side by side. A
    model that fails keeps no other from going on.

    Args:
        params: The competition.
        root: The competition's folder.

    Raises:
        FolderBusyError: Another process works on the same folder.
        TrialFaultError: Trials are missing, for the reasons in the message; the next run continues.
        InputsChangedError: The submissions or params.yaml changed meanwhile.
    """
    trials = len(list(params.trials()))
    progress = Progress("generate", len(params.models) * len(params.teams) * trials)
    stopping = {model: threading.Event() for model in params.models}
    errors: list[str] = []
    again: list[tuple[str, str]] = []  # with trials that the next run does again

    def generate_in_turn(models: Sequence[str]) -> None:
        for model in models:
            if not stopping[model].is_set():
                teams = {team: submissions[team] for name, team in changed if name == model}
                progress.skip((len(submissions) - len(teams)) * trials)
                try:
                    if teams:
                        again.extend(_generate(params, model, teams, root, progress, opened, stopping[model]))
                except (PcgevalError, OSError) as error:
                    errors.append(error_message(error))
                if _is_live(params.models[model]):
                    gc.collect()  # frees a local model's weights before the next one's: its client refers back to it

    with lock_folder(root / DATA / "raw", root / GENERATION_LOCK), progress, ExitStack() as opened:
        changed = opened.enter_context(_changed_teams(params, root))
        submissions = load_submissions(params.teams, root / SUBMISSIONS)  # after their states, so no change is missed
        if any(map(_is_live, params.models.values())):
            _lock_programs(submissions.values())
        groups = models_by_server(params)
        try:
            list(map_in_threads(generate_in_turn, groups, len(groups)))
        finally:
            for event in stopping.values():  # before `opened` ends the programs of an interrupted run
                event.set()
        if errors:
            raise TrialFaultError("\n".join(dict.fromkeys(errors)))
        changed[:] = [place for place in changed if place not in again]
    _check_unchanged(params, root)


def _lock_programs(submissions: Iterable[Submission]) -> None:
    for submission in submissions:
        if isinstance(submission.work, Program) and submission.work.lock:
            with suppress(PackagesError):  # raised again where the program's trials begin
                lock_requirements(submission.work.folder, submission.work.lock)


@contextmanager
def _changed_teams(params: Params, root: Path) -> Iterator[list[tuple[str, ...]]]:
    """Yield the models and teams whose trials are to be looked at; of a live model those of all teams, or none.

    Records alone tell whether all trials of a live model have one digest and one answering model.
    """
    with changed_teams(
        params,
        root,
        [DATA / "raw", TRIALS],
        SUBMISSIONS,
        reads=lambda model, team: [
            SUBMISSIONS / team,
            packages_lock(SUBMISSIONS / team),
            recording_file(model, team),
        ],
        writes=lambda *place: [stage_dir("raw", *place), summaries_file(*place)],
        made_from=lambda model, team: [params.competition, params.limits, params.models[model], params.teams[team]],
    ) as changed:
        for model, settings in params.models.items():
            if _is_live(settings) and any(model == name for name, _ in changed):
                changed += [place for team in params.teams if (place := (model, team)) not in changed]
        yield changed


def _generate(
    params: Params,
    model: str,
    submissions: Mapping[str, Submission],
    root: Path,
    progress: Progress,
    opened: ExitStack,
    stopping: threading.Event,
) -> list[tuple[str, str]]:
    """Run every unfinished trial of a model, and summarise all; return teams with trials that the next run repeats."""
    settings = params.models[model]
    live = _ModelOnDemand(settings) if _is_live(settings) else None
    teams = [
        TeamTrials(
            submission,
            live or open_backend(settings, root / recording_file(model, team)),
            root / stage_dir("raw", model, team),
        )
        for team, submission in submissions.items()
    ]

    def report(trial: Trial, record: TrialRecord, is_new: bool) -> None:
        progress.step(
            f"{model}, {trial.letter}{trial.number}: {record.failure or ('new' if is_new else 'kept')}",
            tokens=record.tokens,
            failed=record.failure is not None,
            repeated=not is_new,
        )

    summaries = do_trials(
        params,
        model,
        teams,
        report,
        opened,
        digest=settings.digest or _finished_digest(params, model, teams),
        state=root / STATE,
        calls=root / CALLS,
        trust_programs=programs_are_trusted(),
        stopping=stopping,
    )
    for team, team_trials in summaries.items():
        write_summaries(root / summaries_file(model, team), [team_trials[trial] for trial in params.trials()])
    return [
        (model, team)
        for team, team_trials in summaries.items()
        if any(summary.failure and not summary.failure.type.is_final for summary in team_trials.values())
    ]


def _is_live(model: Model) -> bool:
    return model.backend != "recorded"


@dataclass(frozen=True)
class _ModelOnDemand:
    """A live model's backend, opened by its first use: a model without unfinished trials loads no weights."""

    model: Model

    @cached_property
    def _backend(self) -> Backend:
        return open_backend(self.model)

    def digest(self) -> str:
        return self._backend.digest()

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        return self._backend.chat(request, timeout)


def _finished_digest(params: Params, model: str, teams: Sequence[TeamTrials]) -> str | None:
    """Return the digest with which all trials of a model are finished; None if they are not."""
    first = record_path(teams[0].folder, teams[0].submission.team, next(params.trials()))
    try:
        digest = read_record(first).digest
    except FileError:
        return None
    for team in teams:
        fingerprint = present_fingerprint(params, model, team.submission)
        for trial in params.trials():
            record = finished_trial(team.folder, team.submission.team, trial, fingerprint(trial, digest))
            if record is None or not record.is_final:
                return None
    return digest


def _check_unchanged(params: Params, root: Path) -> None:
    """Raise InputsChangedError if the trials have other inputs than the files now, as DVC hashes those."""
    now, submissions = load_params(root / PARAMS_FILE), load_submissions(params.teams, root / SUBMISSIONS)
    is_same = [*now.trials()] == [*params.trials()] and all(
        {*getattr(now, section)} == {*getattr(params, section)} for section in ("models", "teams")
    )
    trial = next(params.trials())  # one tells for all: a team's trials are made from one state of its submission
    for model, (team, submission) in product(params.models, submissions.items()):
        record = read_record(record_path(root / stage_dir("raw", model, team), team, trial))
        if present_fingerprint(params, model, submission)(trial, record.digest) != record.fingerprint:
            changed = SUBMISSIONS / team
        elif not is_same or present_fingerprint(now, model, submission)(trial, record.digest) != record.fingerprint:
            changed = Path(PARAMS_FILE)
        else:
            continue
        raise InputsChangedError(
            f"{changed}: changed while the trials of {team} with {model} ran on its old state. They are kept. Run "
            "again to repeat them with the new state, or restore the old state first."
        )


def do_trials(
    params: Params,
    model: str,
    teams: Sequence[TeamTrials],
    report: Report,
    opened: ExitStack,
    *,
    digest: str | None = None,
    state: Path = STATE,
    calls: Path = CALLS,
    trust_programs: bool = False,
    observer: TrialObserver | None = None,
    stopping: threading.Event | None = None,
) -> dict[str, dict[Trial, TrialSummary]]:
    """Run every unfinished trial of some teams, one letter of each team after the other.

    Args:
        params: The competition.
        model: The model's key in params.
        teams: The teams. The files of a program are copied first, and its trials run from the copy.
        report: Called with each trial, finished before or just now.
        opened: Gets what has to be closed after the trials, and ends their programs in an interrupted run.
        digest: The model's, where it is known; otherwise the first team's backend is asked for it.
        state: Where the programs' copies lie.
        calls: The call log's folder.
        trust_programs: Run programs without a sandbox where there is none.
        observer: Called while trials run, with the output of programs.
        stopping: Set elsewhere, it ends every wait for a server, and no trial begins or fails any more.

    Returns:
        The summary of each trial, by team.

    Raises:
        LlmError: The model cannot be asked, or the disk is full; the next run continues.
        TrialFaultError: Trials failed through no fault of a submission; the next run repeats them.
        InstallError: The packages of a program cannot be installed now, through no fault of the program.
        SandboxError: There is no sandbox for a program. The trials of other teams are done before.
    """
    settings, log, stopping = params.models[model], CallLog(calls), stopping or threading.Event()
    backend = teams[0].backend
    live = None if isinstance(backend, RecordedModel) else _live_model(backend, settings, params.limits, log, stopping)
    digest = digest or settings.digest or (live or backend).digest()
    runs = []
    for team in teams:
        copy = state / "snapshots" / model / team.submission.team
        submission = opened.enter_context(_snapshot(team.submission, copy))
        task = GenerationTask(submission, settings, digest, params.limits, params.competition.seed)
        runs.append(_TeamRun(team, task, log, report, observer, live))
    in_turn = [
        (run, trial) for letter in params.competition.characters for run in runs for trial in params.trials(letter)
    ]
    to_do = [(run, trial) for run, trial in in_turn if not run.is_finished(trial)]
    if to_do and live:  # else the server may be away
        live.begin()
        pinned_digest(settings, live.backend)
        _check_answering(model, live, runs)
    errors: list[PcgevalError] = []
    for run in dict.fromkeys(run for run, _ in to_do):
        keep_output = observer is not None
        try:
            run.runner = opened.enter_context(open_runner(run.task, trust_programs, keep_output=keep_output))
        except PcgevalError as error:
            errors.append(error)
    ready = [(run, trial) for run, trial in to_do if run.runner]
    try:
        for run, trial, record in map_in_threads(
            lambda item: (*item, item[0].run(item[1], stopping)), ready, settings.concurrency, stopping
        ):
            run.finish(trial, record, is_new=True)
    except PcgevalError as error:
        errors.append(error)
    else:
        errors += [run.open_error(model) for run in runs if run.open]
    if errors:
        raise errors[0] if len(errors) == 1 else TrialFaultError("\n".join(map(str, errors)))
    return {run.trials.submission.team: run.summaries for run in runs}


def _live_model(
    backend: Backend, settings: Model, limits: Limits, log: CallLog, stopping: threading.Event
) -> LiveModel:
    seconds = neutral_seconds(limits)
    return LiveModel(
        backend,
        neutral_request(settings),
        lambda: seconds,
        limits.outage_seconds,
        log,
        stopping=stopping,
        trial_seconds=limits.seconds + limits.call_seconds,
    )


def _check_answering(model: str, live: LiveModel, runs: Sequence["_TeamRun"]) -> None:
    """Raise LlmError if finished trials have replies of another model than the one that answers now."""
    others = {name for run in runs for name in run.answering} - {live.answering}
    if live.answering and others:
        raise LlmError(
            f"{model}: finished trials were answered by {', '.join(sorted(others))}, and the server answers as "
            f"{live.answering} now. Load the former again, or remove {DATA / 'raw' / model} to ask {live.answering} "
            "for every trial."
        )


@dataclass(eq=False)
class _TeamRun:
    """The trials of one team while they run."""

    trials: TeamTrials
    task: GenerationTask
    log: CallLog
    report: Report
    observer: TrialObserver | None
    live: LiveModel | None  # else its backend is a recorded model
    runner: Runner | None = None  # opened only if a trial is to run: it may need a sandbox and packages
    summaries: dict[Trial, TrialSummary] = field(default_factory=dict)
    open: dict[Trial, Failure] = field(default_factory=dict)  # trials that failed through no fault of the submission
    answering: set[str] = field(default_factory=set)  # how the models of finished trials call themselves

    def finish(self, trial: Trial, record: TrialRecord, *, is_new: bool) -> None:
        """Summarise and report a trial that lies on disk."""
        file = record_path(self.trials.folder, self.trials.submission.team, trial)
        mark_written([str(file), str(file.with_suffix(".txt"))])
        self.summaries[trial] = trial_summary(self.trials.folder, self.task.submission, trial, record, self.task.model)
        self.answering |= {exchange.reply.model for exchange in record.exchanges if exchange.reply.model}
        if record.failure and record.is_open:
            self.open[trial] = record.failure
        self.report(trial, record, is_new)

    def is_finished(self, trial: Trial) -> bool:
        """Finish a trial that lies on disk or in the recording; return False if it has to run."""
        team, folder, backend = self.trials.submission.team, self.trials.folder, self.trials.backend
        fingerprint = self.task.fingerprint(trial)
        record = finished_trial(folder, team, trial, fingerprint)
        recorded = backend.finished_trial(trial, fingerprint) if isinstance(backend, RecordedModel) else None
        if recorded and record != recorded.record:
            write_trial(folder, team, trial, recorded.response, recorded.record)
            self.finish(trial, recorded.record, is_new=True)
            return True
        if record is None or not record.is_final:
            return False
        if isinstance(backend, RecordedModel) and not backend.replays(record):
            return False
        self.finish(trial, record, is_new=False)
        return True

    def run(self, trial: Trial, stopping: threading.Event) -> TrialRecord:
        """Run a trial and write it; a sandbox that fails is a fault of this machine."""
        assert self.runner is not None  # noqa: S101 - opened before
        team, folder = self.trials.submission.team, self.trials.folder
        is_program = isinstance(self.task.submission.work, Program)
        if self.observer and is_program:
            self.observer.asking(trial, 0)
        asked = self.live or self.trials.backend
        assert isinstance(asked, LiveModel | RecordedModel)  # noqa: S101 - see `live`
        job, backend = self.task.job(trial), TrialBackend(asked, self.log, team, trial, self.observer)
        try:
            run = self.runner(job, backend.chat, self.trials.courses.get(trial))
            # one that did not end would not end again
            if is_program and self.live and not (run.failure and run.failure.type.owner != "submission"):
                run = run_twice(self.runner, job, run, backend.failed_calls)
        except SandboxError as error:
            run = TrialRun(failure=failure("no-sandbox", detail=str(error)))
        is_doubtful = run.failure or any(flag.kind == "unrepeatable" for flag in run.flags)
        if is_doubtful and is_program and stopping.wait(_SIGNAL_SECONDS):
            raise PcgevalError(f"{folder}: trial {trial.letter}{trial.number} was stopped. Run again to continue.")
        if self.observer:
            self.observer.ended(trial, run.printed)
        self.trials.thought[trial] = run.thought
        response = "" if run.failure else well_formed(run.response)
        record = TrialRecord(
            fingerprint=self.task.fingerprint(trial),
            seed=job.seed,
            model=job.model.name,
            digest=job.digest,
            exchanges=run.exchanges,
            response_sha256=sha256_text(response),
            failure=run.failure,
            failed_calls=tuple(backend.failed_calls),
            flags=run.flags,
            contained=run.contained,
            late=run.late,
        )
        write_trial(folder, team, trial, response, record)
        return record

    def open_error(self, model: str) -> TrialFaultError:
        """Return the error that names the trials to repeat."""
        team, (trial, failed) = self.trials.submission.team, min(self.open.items(), key=lambda item: item[0])
        return TrialFaultError(
            f"{team} with {model}: {count(len(self.open), 'trial')} failed through no fault of the submission, such "
            f"as {trial.letter}{trial.number} ({failed}). Run again to repeat them."
        )


@contextmanager
def _snapshot(submission: Submission, folder: Path) -> Iterator[Submission]:
    """Yield a submission with a read-only copy of its program; a prompt is in memory already.

    The folder belongs to the process that holds the stage's lock. It is removed at the end, as is an old copy of a
    killed run.
    """
    program = submission.work
    if not isinstance(program, Program):
        yield submission
        return
    shutil.rmtree(folder, ignore_errors=True)
    try:
        copy_files(program.folder, folder, program.files(), with_status=True)
        for path in (folder, *folder.rglob("*")):  # root runs the program as another user, whatever the umask
            file_rights = 0o555 if path.stat().st_mode & 0o100 else 0o444
            path.chmod(0o755 if path.is_dir() else file_rights)
        yield replace(submission, work=replace(program, folder=folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
