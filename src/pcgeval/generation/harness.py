"""Running a program: one fresh, confined process for each trial, with the broker at the other end of its pipe."""

import json
from pathlib import Path

from pcgeval.core.params import Limits
from pcgeval.core.untrusted import printable_line
from pcgeval.generation.broker import Broker, TrialFailed
from pcgeval.generation.tasks import TrialCall, TrialRun
from pcgeval.generation.wire import LINE_BYTES, Gone, Misused, Pipe
from pcgeval.sandbox.sandbox import Ending, Sandbox
from pcgeval.submissions.load import Program
from pcgeval.submissions.source_checks import unseeded_random

GUEST = Path(__file__).parent / "guest"  # what the program imports of us
SETTLING_SECONDS = 2.0  # for a program that closed its pipe to end


class ProgramRunner:
    """Runs one program; several trials may be run at once from several threads."""

    def __init__(self, program: Program, sandbox: Sandbox, limits: Limits, interpreter: Path) -> None:
        """Look through the program's files.

        Args:
            program: Its folder and the file that starts it.
            sandbox: Where its processes are started.
            limits: The tokens and seconds that a trial may use.
            interpreter: The Python that has what the program requires.
        """
        self._program, self._sandbox, self._limits = program, sandbox, limits
        self._command = [str(interpreter), program.entry]
        self._flags = unseeded_random(program.folder)

    def run_trial(self, call: TrialCall) -> TrialRun:
        """Run one trial; whatever the program does, its outcome is returned.

        Raises:
            LlmError: The model cannot be asked at all.
            SandboxError: The sandbox could not be set up.
        """
        with Pipe() as pipe:
            broker = Broker(call, self._limits, pipe)
            response, reason = self._outcome(call, broker, pipe)
        return TrialRun(response, broker.exchanges, (*self._flags, *broker.flags), reason)

    def _outcome(self, call: TrialCall, broker: Broker, pipe: Pipe) -> tuple[str, str | None]:
        """Return the response, or an empty one and the reason."""
        process = self._sandbox.start(
            self._command,
            folder=self._program.folder,
            readable=(GUEST,),
            descriptors=pipe.guest_ends,
            environment=_environment(call, pipe),
        )
        try:
            pipe.close_guest_ends()
            return broker.serve(), None
        except (TrialFailed, Misused) as failure:
            return "", str(failure)
        except Gone:
            ending = process.wait(SETTLING_SECONDS)
            return "", broker.limit.why if broker.limit else silence(ending)
        finally:
            process.kill()


def silence(ending: Ending) -> str:
    """Return why a program that ended, or closed its pipe, gave no answer."""
    if ending.reason is not None:
        return f"gave no answer: it {ending.reason}"
    printed = ending.error_tail.strip().splitlines()
    last = printed[-1] if printed else "was run_evaluation called?"
    return printable_line(f"ended with exit code {ending.code} before it gave an answer: {last}")


def _environment(call: TrialCall, pipe: Pipe) -> dict[str, str]:
    calls, replies = pipe.guest_ends
    trial = {
        "letter": call.trial.letter,
        "number": call.trial.number,
        "model": call.model.name,
        "calls": calls,
        "replies": replies,
        "line_bytes": LINE_BYTES,
    }
    return {"PYTHONPATH": str(GUEST), "PYTHONUTF8": "1", "PCGEVAL_TRIAL": json.dumps(trial)}
