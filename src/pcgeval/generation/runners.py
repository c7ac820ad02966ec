"""Run one trial of a submission: send the prompt, or start the program and serve its calls."""

import json
from pathlib import Path

from pcgeval.core.files import derived_seed
from pcgeval.core.params import Limits
from pcgeval.core.trials import Exchange
from pcgeval.core.untrusted import printable_line
from pcgeval.generation.broker import Broker, TrialFailed
from pcgeval.generation.pipe import LINE_BYTES, Pipe, PipeClosed, ProtocolViolation
from pcgeval.generation.tasks import TrialJob, TrialRun
from pcgeval.llm.protocol import Backend, CallError, Message
from pcgeval.sandbox.sandbox import Sandbox, SandboxedProcess
from pcgeval.submissions.load import Program, Prompt
from pcgeval.submissions.requirements import REQUIREMENTS
from pcgeval.submissions.sources import RANDOM, python_files, unseeded_random

GUEST = Path(__file__).parent / "guest"  # the interface packages that the program imports
SETTLING_SECONDS = 2.0  # for a program that closed its pipe to end


class PromptRunner:
    """Send the model a prompt."""

    def __init__(self, prompt: Prompt, limits: Limits) -> None:
        """Take the prompt, and the tokens and seconds that a trial may use."""
        self._prompt, self._limits = prompt, limits

    def run_trial(self, job: TrialJob, backend: Backend) -> TrialRun:
        """Return the model's reply as the response; a call that fails is a failed trial.

        The time is checked before the call, as with programs: it is the first, so that its reply counts if it ends.
        """
        request = job.request(Message("user", self._prompt.for_letter(job.trial.letter)))
        seconds = self._limits.seconds + self._limits.call_seconds
        try:
            reply = backend.chat(request, seconds)
        except CallError as error:
            return TrialRun("", (), (), str(error))
        reason = None
        if (used := reply.prompt_tokens + reply.output_tokens) > self._limits.tokens:
            reason = f"used {used} tokens; the limit is {self._limits.tokens}"
        elif reply.seconds > seconds:  # when the model was really asked
            reason = self._limits.overtime
        return TrialRun(reply.text, (Exchange(request.key, reply),), (), reason)


class RefusedProgram:
    """Fail every trial of a program that cannot be started."""

    def __init__(self, reason: str) -> None:
        """Take the reason."""
        self._reason = printable_line(reason)

    def run_trial(self, job: TrialJob, backend: Backend) -> TrialRun:  # noqa: ARG002
        """Return the reason."""
        return TrialRun("", (), (), self._reason)


class ProgramRunner:
    """Start a program in a fresh process for each trial; several trials may be run at once from several threads."""

    def __init__(
        self, program: Program, sandbox: Sandbox, limits: Limits, interpreter: Path, *, keep_output: bool = False
    ) -> None:
        """Look through the program's files.

        Args:
            program: Its folder and the file that starts it.
            sandbox: Where its processes are started.
            limits: The tokens and seconds that a trial may use.
            interpreter: The Python that has what the program requires.
            keep_output: Return what it prints with each trial; then it also gets a moment to end by itself.
        """
        self._program, self._sandbox, self._limits = program, sandbox, limits
        self._command = [str(interpreter), program.entry]
        self._flags = unseeded_random(list(python_files(program.folder, RANDOM)))
        self._keep_output = keep_output

    def run_trial(self, job: TrialJob, backend: Backend) -> TrialRun:
        """Run one trial and return its outcome, whatever the program does.

        Raises:
            LlmError: The model cannot be asked at all.
            SandboxError: The sandbox could not be set up.
        """
        with Pipe() as pipe:
            broker = Broker(job, backend, self._limits, pipe)
            process = self._start(job, pipe)
            try:
                response, reason = _serve(process, broker, pipe)
                if self._keep_output:
                    process.output(SETTLING_SECONDS)
            finally:
                process.kill()
            printed = process.output(SETTLING_SECONDS) if self._keep_output else ""
        return TrialRun(response, broker.exchanges, (*self._flags, *broker.flags), reason, printed)

    def _start(self, job: TrialJob, pipe: Pipe) -> SandboxedProcess:
        calls, replies = pipe.guest_ends
        trial = {
            "letter": job.trial.letter,
            "number": job.trial.number,
            "model": job.model.name,
            "chance": derived_seed(job.seed, "chance"),
            "calls": calls,
            "replies": replies,
            "line_bytes": LINE_BYTES,
        }
        # what is printed is not held back by a program that is going to be killed
        unbuffered = {"PYTHONUNBUFFERED": "1"} if self._keep_output else {}
        return self._sandbox.start(
            self._command,
            folder=self._program.folder,
            readable=(GUEST,),
            descriptors=pipe.guest_ends,
            environment={"PYTHONPATH": str(GUEST), "PYTHONUTF8": "1", "PCGEVAL_TRIAL": json.dumps(trial), **unbuffered},
        )


def _serve(process: SandboxedProcess, broker: Broker, pipe: Pipe) -> tuple[str, str | None]:
    """Return the response, or an empty one and the reason."""
    try:
        pipe.close_guest_ends()
        return broker.serve(), None
    except TrialFailed as failure:
        return "", str(failure)
    except ProtocolViolation as failure:
        return "", f"{broker.limit.why}; then it {failure}" if broker.limit else str(failure)
    except PipeClosed:
        status = process.wait(SETTLING_SECONDS)
        if broker.limit:
            return "", broker.limit.why
        if status.reason:
            return "", f"gave no answer: it {status.reason}"
        last = (status.stderr_tail.strip().splitlines() or ["was run_evaluation called?"])[-1]
        if last.startswith("ModuleNotFoundError"):
            last = f"{last}; a package has to be named in {REQUIREMENTS}"
        return "", printable_line(f"ended with exit code {status.code} before it gave an answer: {last}")
