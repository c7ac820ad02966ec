"""Run one trial of a submission: send the prompt, or start the program and serve its calls."""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from pcgeval.core.files import derived_seed
from pcgeval.core.text import printable_line
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import Trial
from pcgeval.formats.params import Limits, Model
from pcgeval.formats.trials import ChatReply, Course, Exchange, FailedCall, Flag
from pcgeval.generation.broker import LINE_BYTES, Broker, Pipe, PipeClosed, TrialFailed, overtime
from pcgeval.generation.tasks import GenerationTask, TrialJob, TrialObserver
from pcgeval.llm.blame import LiveModel
from pcgeval.llm.call_log import CallLog, LoggedCall, RecordedModel
from pcgeval.llm.protocol import Chat, ChatRequest, LlmError, Message
from pcgeval.parallel.processes import map_in_threads
from pcgeval.sandbox.bubblewrap import interpreter_paths
from pcgeval.sandbox.room import Room
from pcgeval.sandbox.sandbox import ResourceLimits, Sandbox, SandboxedProcess, SandboxError, open_sandbox
from pcgeval.submissions.load import Program, Prompt
from pcgeval.submissions.packages import InstallError, ProgramModules, RequirementsError, interpreter_for

GUEST = Path(__file__).parent / "guest"  # the part of pcgeval that a program sees
SETTLING_SECONDS = 2.0  # for a program that closed its pipe to end
STARTS = 8  # programs that `start_programs` starts at once
START_SECONDS = 60.0  # in which a program asks the model for the first time, or answers
_NO_MODULE = re.compile("ModuleNotFoundError: No module named '([^']+)'")


@dataclass(frozen=True)
class TrialRun:
    """The outcome of one trial; a failed one has no response."""

    response: str = ""
    exchanges: tuple[Exchange, ...] = ()
    flags: tuple[Flag, ...] = ()
    failure: Failure | None = None
    contained: bool = True  # False for a program that ran without a sandbox
    printed: str = ""  # by the program, on demand: a stranger's text
    late: float | None = None  # on the trial's clock, when a call was refused because the time was up
    thought: float = 0.0  # seconds that the program took between the model's replies


# the last argument is given if the trial is repeated; raises LlmError if the model cannot be asked at all, SandboxError
Runner = Callable[[TrialJob, Chat, Course | None], TrialRun]


@contextmanager
def open_runner(task: GenerationTask, trust_programs: bool, *, keep_output: bool = False) -> Iterator[Runner]:
    """Yield the function that runs a trial of a submission; several threads may call it.

    With `trust_programs`, a program runs without a sandbox where there is none. With `keep_output`, its output is
    returned with each trial, and it gets a moment to end by itself. Raises InstallError or SandboxError if it cannot
    run now, through no fault of the program.
    """
    work, limits = task.submission.work, task.limits
    if isinstance(work, Prompt):
        yield partial(_run_prompt, work, limits)
        return
    try:
        interpreter = interpreter_for(work.folder, work.lock)
    except RequirementsError as error:
        kind = "requirements-unmet" if error.is_unmet else "requirements-refused"
        refused = TrialRun(failure=failure(kind, detail=error.detail or str(error)))
        yield lambda *_: refused
        return
    except InstallError as error:
        raise type(error)(f"{task.submission.team}: {error.full_text}") from error
    with open_sandbox(ResourceLimits(), trust_programs) as sandbox:
        yield ProgramRunner(work, sandbox, limits, interpreter, keep_output).run_trial


def _run_prompt(prompt: Prompt, limits: Limits, job: TrialJob, chat: Chat, _: Course | None) -> TrialRun:
    """Send the prompt; as for programs, the reply to the first call counts if it ends in time."""
    request = job.request(Message("user", prompt.for_letter(job.trial.letter)))
    seconds = limits.seconds + limits.call_seconds
    try:
        reply = chat(request, seconds)
    except TrialFailed as error:
        return TrialRun(failure=error.failure)
    failed = None
    if (used := reply.prompt_tokens + reply.output_tokens) > limits.tokens:
        failed = failure("too-many-tokens", used=used, limit=limits.tokens)
    elif reply.seconds > seconds:  # a replay comes at once, but the model took longer
        failed = overtime(limits)
    return TrialRun(reply.text, (Exchange(request.key, reply),), failure=failed)


@dataclass
class ProgramRunner:
    """Starts a program in a fresh process for each trial; several threads may run trials at once, each in its room."""

    program: Program
    sandbox: Sandbox
    limits: Limits
    interpreter: Path  # the Python with the packages that the program requires
    keep_output: bool = False
    _rooms: threading.local = field(default_factory=threading.local)
    _modules: ProgramModules = field(init=False)

    def __post_init__(self) -> None:
        """List the program's files before it runs: without a sandbox it can change them."""
        self._modules = ProgramModules(self.program.entry, self.program.files())

    def run_trial(self, job: TrialJob, chat: Chat, course: Course | None = None) -> TrialRun:
        """Run one trial, or repeat it in its course; raises LlmError if the model cannot be asked, and SandboxError."""
        response, failed = "", None
        with closing(Pipe()) as pipe:
            process = self._start(job, pipe)
            broker = Broker(job, chat, self.limits, pipe, course, process.is_busy)
            try:
                pipe.close_guest_end()
                response = broker.serve()
            except TrialFailed as error:
                failed = error.failure
            except PipeClosed:
                failed = _ending(process, self._modules)
            finally:
                if self.keep_output:
                    process.output(SETTLING_SECONDS)  # it has a moment to end by itself
                process.kill()
            printed = process.output(SETTLING_SECONDS) if self.keep_output else ""
        failed = failed and (broker.limit or failed)
        outcome = (response, broker.exchanges, broker.flags, failed)
        return TrialRun(*outcome, self.sandbox.contained, printed, broker.late, broker.thought)

    def _start(self, job: TrialJob, pipe: Pipe) -> SandboxedProcess:
        trial = {
            "letter": job.trial.letter,
            "number": job.trial.number,
            "model": job.model.name,
            "chance": derived_seed(job.seed, "chance"),
            "pipe": pipe.guest_end,
            "line_bytes": LINE_BYTES,
        }
        command, descriptors = [str(self.interpreter), self.program.entry], (pipe.guest_end,)
        environment = {"PYTHONPATH": str(GUEST), "PYTHONUTF8": "1"}
        if self.keep_output:
            environment["PYTHONUNBUFFERED"] = "1"  # else the last output of a killed program is lost
        trial_text = {"PCGEVAL_TRIAL": json.dumps(trial)}
        if not self.sandbox.contained:
            environment |= trial_text
            folder = self.program.folder
            return self.sandbox.start(command, folder=folder, descriptors=descriptors, environment=environment)
        environment = self.sandbox.variables(self.interpreter) | environment
        room: Room | None = getattr(self._rooms, "of_thread", None)
        is_copy = not self._has_packages
        if room is None or not room.is_open:
            python = (command[0], environment) if is_copy else None
            paths = (GUEST, *interpreter_paths(self.interpreter))
            room = self._rooms.of_thread = self.sandbox.open_room(self.program.folder, paths, python)
        module = "pcgeval_guest" if is_copy else ""
        return room.start(command, environment | trial_text, descriptors, module=module)

    @cached_property
    def _has_packages(self) -> bool:
        """Whether the interpreter runs code of others when it starts: then it is started for each trial."""
        return any(self.interpreter.parent.parent.glob("lib/python*/site-packages/*"))


def run_twice(runner: Runner, job: TrialJob, run: TrialRun, failed: Sequence[FailedCall]) -> TrialRun:
    """Run the program of a trial again on the replies that it got; return the trial, flagged if something differs.

    A trial that did not end in time does not run again. Raises SandboxError.
    """
    if run.failure and run.failure.kind == "overtime":
        return run
    outcomes = {exchange.key: exchange.reply for exchange in run.exchanges}
    failures = {call.key: call.failure for call in failed}
    calls = [*outcomes, *failures]
    asked: list[str] = []

    def chat(request: ChatRequest, _: float) -> ChatReply:
        asked.append(request.key)
        if reply := outcomes.get(request.key):
            return reply
        raise TrialFailed(failures.get(request.key) or failure("reply-unknown"))

    again = runner(job, chat, run)
    if asked != calls:
        same = next((n for n, pair in enumerate(zip(asked, calls, strict=False)) if pair[0] != pair[1]), len(asked))
        is_shorter = len(asked) == same < len(calls)
        detail = f"made no call after call {same} of {len(calls)}" if is_shorter else f"made another call after {same}"
    elif (again.failure and again.failure.sentence) != (run.failure and run.failure.sentence):
        detail = f"failed in another way: {again.failure}" if again.failure else "did not fail"
    elif again.response != run.response:
        detail = "gave another answer"
    else:
        return run
    flag = Flag("unrepeatable", printable_line(f"a second run on the same replies {detail}"))
    return replace(run, flags=(*run.flags, flag))


def _ending(process: SandboxedProcess, modules: ProgramModules) -> Failure:
    """Return the failure of a program that closed its pipe without an answer."""
    status = process.wait(SETTLING_SECONDS)
    if status.lacked_memory:
        raise SandboxError(
            "The kernel ended the program, as this machine ran out of memory. Run again with more of it."
        )
    if status.reason:
        return failure("program-stopped", limit=status.reason)
    last = (status.stderr_tail.strip().splitlines() or ["was run_evaluation called?"])[-1]
    if missing := _NO_MODULE.match(last):
        last += modules.remedy(missing[1])
    return failure("program-ended", code=status.code or 0, detail=last)


@dataclass
class TrialBackend:
    """The model as one trial asks it: the call log answers calls that were made before."""

    backend: LiveModel | RecordedModel
    log: CallLog
    team: str
    trial: Trial
    observer: TrialObserver | None
    turns: int = 0
    failed_calls: list[FailedCall] = field(default_factory=list)

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer as the model does, or did; raises TrialFailed, and LlmError if the model cannot be asked at all."""
        self.turns += 1
        if isinstance(self.backend, RecordedModel):
            if self.observer:
                self.observer.asking(self.trial, self.turns)
            call = self.backend.call(request)
        else:
            ask = partial(self._ask, self.backend, request)
            call = self.log.answer(request.key, ask, timeout, self.backend.answering)
        if call.reply is None:
            failed = call.failure or failure("server-failed", fault=call.reason or "the call failed")
            self.failed_calls.append(FailedCall(self.turns, request.key, failed, call.attempts))
            raise TrialFailed(failed)
        return call.reply

    def _ask(self, model: LiveModel, request: ChatRequest, seconds: float) -> LoggedCall:
        if self.observer:
            self.observer.asking(self.trial, self.turns)
        outcome = model.ask(request, lambda: seconds)
        return LoggedCall(
            key=request.key,
            reply=outcome.reply,
            failure=outcome.failure,
            attempts=outcome.attempts,
            model=request.model,
            team=self.team,
            letter=self.trial.letter,
            trial=self.trial.number,
            turn=self.turns,
        )


def start_programs(programs: Mapping[str, Program], sandbox: Sandbox, letter: str) -> Iterator[tuple[str, str | None]]:
    """Start every team's program as a trial of a letter does, several at once, until it asks the model or answers.

    Yields a team, and why its program did not come that far; None if it did. Raises SandboxError.
    """
    limits = Limits(tokens=1, seconds=START_SECONDS, prompt_words=1, call_seconds=0)
    job = TrialJob(Trial(letter, 1), Model(backend="recorded", name="none"), "0" * 64, 0)

    def chat(request: ChatRequest, timeout: float) -> ChatReply:
        raise LlmError(f"a start asks nothing ({request.key}, {timeout:g} s)")

    def start(team: str) -> tuple[str, str | None]:
        program = programs[team]
        try:
            interpreter = interpreter_for(program.folder, program.lock)
            run = ProgramRunner(program, sandbox, limits, interpreter).run_trial(job, chat)
        except LlmError:  # it asked the model
            return team, None
        if run.failure and run.failure.kind == "overtime":
            return team, f"neither asked the model nor gave an answer within {START_SECONDS:g} s"
        return team, str(run.failure) if run.failure else None

    yield from map_in_threads(start, list(programs), STARTS)
