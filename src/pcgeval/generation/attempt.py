"""One trial of a submission: what runs it, and its way to the model."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from pcgeval.core.layout import Trial
from pcgeval.core.trials import FailedCall, FaultCause
from pcgeval.core.untrusted import well_formed
from pcgeval.generation.environments import interpreter_for
from pcgeval.generation.runners import ProgramRunner, PromptRunner, RefusedProgram
from pcgeval.generation.tasks import GenerationTask, TrialJob, TrialObserver, TrialRun
from pcgeval.llm.call_log import CallLog, LoggedCall
from pcgeval.llm.protocol import Backend, CallError, ChatReply, ChatRequest, ServerFaultError
from pcgeval.llm.recorded import RecordedModel
from pcgeval.sandbox.sandbox import ResourceLimits, SandboxError, open_sandbox
from pcgeval.submissions.load import Prompt
from pcgeval.submissions.requirements import RequirementsError


@dataclass(frozen=True)
class Attempt:
    """How one trial went.

    Attributes:
        run: What came of it.
        failures: The calls that the backend gave up.
        cause: Whose fault a failure was, if not the submission's.
        contained: Whether a program ran in the sandbox.
    """

    run: TrialRun
    failures: tuple[FailedCall, ...]
    cause: FaultCause | None
    contained: bool


class Runner(Protocol):
    """Runs the trials of one submission."""

    def run_trial(self, job: TrialJob, backend: Backend) -> TrialRun:
        """Do one trial; LlmError means that the model cannot be asked at all."""


@contextmanager
def opened_runner(
    task: GenerationTask, trust_programs: bool, *, keep_output: bool = False
) -> Iterator[tuple[Runner, bool]]:
    """Yield what runs a submission, and whether it is contained.

    Raises:
        InstallError: The packages of a program cannot be installed now, through no fault of its own.
        SandboxError: There is no sandbox for a program.
    """
    work, limits = task.submission.work, task.limits
    if isinstance(work, Prompt):
        yield PromptRunner(work, limits), True
        return
    try:
        interpreter = interpreter_for(work.folder, work.original)
    except RequirementsError as error:
        yield RefusedProgram(str(error)), True
        return
    with open_sandbox(ResourceLimits(), trust_programs) as sandbox:
        yield ProgramRunner(work, sandbox, limits, interpreter, keep_output=keep_output), sandbox.contained


class TrialBackend:
    """The way of one trial to its model: what was answered before is taken from the call log, all else is asked."""

    def __init__(
        self,
        backend: Backend,
        log: CallLog,
        team: str,
        trial: Trial,
        observer: TrialObserver | None = None,
    ) -> None:
        """Wrap a model's backend.

        Args:
            backend: The model.
            log: The calls that were made before.
            team: Noted with each call for a reader of the log, as is the trial.
            trial: The trial.
            observer: Is told before the model is asked.
        """
        self._backend, self._log, self._team, self._trial = backend, log, team, trial
        self._observer = observer
        self._lock = threading.Lock()
        self._turns = 0
        self.failures: list[FailedCall] = []  # the calls so far that the backend gave up
        self.cause: FaultCause | None = None  # of the last one

    def digest(self) -> str:
        """Return the model's digest; see the backend."""
        return self._backend.digest()

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer as the backend does, or did.

        Raises:
            CallError: The backend gives this call up.
            LlmError: The backend cannot serve, or its reply cannot be kept.
        """
        with self._lock:  # a trial asks one thing after the other
            self._turns += 1
            try:
                reply = self._answer(request, timeout)
            except CallError as error:
                self.failures.append(FailedCall(self._turns, request.key, well_formed(str(error))))
                self.cause = "server" if isinstance(error, ServerFaultError) else None
                raise CallError(self.failures[-1].reason) from error
            return reply

    def _answer(self, request: ChatRequest, timeout: float) -> ChatReply:
        if isinstance(self._backend, RecordedModel):
            return self._backend.chat(request, timeout)
        call = LoggedCall(
            key=request.key,
            reason="not asked",
            model=request.model,
            team=self._team,
            letter=self._trial.letter,
            trial=self._trial.number,
            turn=self._turns,
        )

        def ask(seconds: float) -> LoggedCall:
            if self._observer:
                self._observer.asking(self._trial, self._turns)
            try:
                reply = self._backend.chat(request, seconds)
            except CallError as error:
                cause = "server" if isinstance(error, ServerFaultError) else None
                return call.model_copy(update={"reason": well_formed(str(error)), "cause": cause})
            return call.model_copy(update={"reply": reply, "reason": None})

        made = self._log.answer(call.key, ask, timeout)
        if made.reply is None:
            raise (ServerFaultError if made.cause else CallError)(made.reason)
        return made.reply


def attempt(task: GenerationTask, trial: Trial, runner: Runner, calls: "TrialBackend", *, contained: bool) -> Attempt:
    """Do a trial; a sandbox that fails is a fault of this machine.

    Raises:
        LlmError: The model cannot be asked at all.
    """
    try:
        run = runner.run_trial(task.job(trial), calls)
    except SandboxError as error:
        return Attempt(TrialRun("", (), (), str(error)), tuple(calls.failures), "machine", contained)
    return Attempt(run, tuple(calls.failures), calls.cause if run.reason else None, contained)
