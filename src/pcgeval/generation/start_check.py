"""Start each program before a run, several at once, to see whether it comes to ask the model."""

import itertools
import time
from collections.abc import Iterator, Mapping

from pcgeval.core.layout import Trial
from pcgeval.core.parallel import map_in_threads
from pcgeval.core.params import Limits, Model
from pcgeval.generation.environments import interpreter_for
from pcgeval.generation.runners import ProgramRunner
from pcgeval.generation.tasks import TrialJob
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest
from pcgeval.sandbox.sandbox import Sandbox
from pcgeval.submissions.load import Program

STARTS = 8  # of all programs together at least, and at once at most
START_SECONDS = 60.0  # in which a program asks the model for the first time, or answers


class _AskedError(CallError):
    """A program asked the model: it was started, and that is all that was wanted of it."""


class _NoModel:
    """A backend that answers nothing, and remembers that it was asked."""

    def __init__(self) -> None:
        self.asked = False

    def digest(self) -> str:
        """Return a digest that is no model's."""
        return "0" * 64

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002
        """Remember the call and refuse it."""
        self.asked = True
        raise _AskedError("not asked")


def start_programs(programs: Mapping[str, Program], sandbox: Sandbox, letter: str) -> Iterator[tuple[str, str | None]]:
    """Start every program as a trial does, several at once, until it asks the model or gives an answer.

    Args:
        programs: The programs by team; the packages that they require are installed.
        sandbox: Where they are started.
        letter: The trial's letter.

    Yields:
        A team, and why its program did not come that far; None if it did. A team may come more than once: with few
        programs, each is started several times.

    Raises:
        SandboxError: The sandbox could not be set up.
    """
    limits = Limits(tokens=1, seconds=START_SECONDS, prompt_words=1, call_seconds=0)
    model = Model(backend="recorded", name="none")
    runners = {
        team: ProgramRunner(program, sandbox, limits, interpreter_for(program.folder))
        for team, program in programs.items()
    }

    def start(team: str) -> tuple[str, str | None]:
        backend, started = _NoModel(), time.monotonic()
        run = runners[team].run_trial(TrialJob(Trial(letter, 1), model, backend.digest(), 0), backend)
        if run.reason is None or backend.asked:
            return team, None
        if time.monotonic() - started >= START_SECONDS:
            return team, f"neither asked the model nor gave an answer within {START_SECONDS:g} s"
        return team, run.reason

    starts = itertools.islice(itertools.cycle(programs), max(STARTS, len(programs)) if programs else 0)
    yield from map_in_threads(start, list(starts), STARTS)
