"""A live model as trials ask it: a neutral call decides whose fault a request without a reply is.

The neutral call is one short request with the model's options, the same for all teams and on nobody's account. It is
made before the first trial, and after every failure that the table of blame cannot decide:

- It fails. Then the server is away, and the run waits for it with growing pauses, up to `limits.outage_seconds`; or a
  setting is wrong, and the model's run ends at once.
- It is answered. Then the trial's request is sent once more, and if that fails again, the failure is the submission's:
  the record holds both attempts and the neutral reply between them. A server that fails other requests now and then,
  which succeed when they are repeated, has to fail one request more often.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pcgeval.core.console import duration
from pcgeval.core.failures import Failure, failure
from pcgeval.core.params import Limits, Model
from pcgeval.core.trials import Attempt, ChatReply
from pcgeval.core.untrusted import well_formed
from pcgeval.llm.call_log import NEUTRAL, CallLog, LoggedCall
from pcgeval.llm.protocol import Backend, CallError, ChatRequest, LlmError, Message
from pcgeval.llm.server import advice_on

TEXT = 'Answer with the single word "ready".'
SEED = 1
ATTEMPTS = 2  # to make a call that fails while the neutral call is answered
MOST_ATTEMPTS = 6  # the same at a server that fails other requests, too, or that says that it is busy
_SLOW, _SLOW_SECONDS = 5.0, 5.0  # a neutral call that takes this many times the usual, and seconds more, is slow
PAUSE = 1.0  # seconds after the first neutral call that fails; doubles each time
_LEAST_SECONDS = 60.0  # for a neutral call, however little time a trial has
_LONGEST_PAUSE, _LINE_SECONDS = 60.0, 60.0


class OutageError(LlmError):
    """A server did not answer a neutral call for `limits.outage_seconds`."""


@dataclass(frozen=True)
class Outcome:
    """The end of a trial's call: a reply or a failure, and the attempts without a reply."""

    reply: ChatReply | None
    failure: Failure | None
    attempts: tuple[Attempt, ...] = ()


def neutral_request(model: Model, digest: str) -> ChatRequest:
    """Return the neutral request to a model."""
    options = {"temperature": 1, **model.options, "seed": SEED}
    return ChatRequest(model.name, digest, (Message("user", TEXT),), options)


def neutral_call(backend: Backend, model: Model, limits: Limits) -> ChatReply:
    """Make the neutral call once; raises CallError, and LlmError as `Backend.chat`."""
    most = max(limits.seconds + limits.call_seconds, _LEAST_SECONDS)
    return backend.chat(neutral_request(model, ""), min(most, limits.outage_seconds or most))


@dataclass
class LiveModel:
    """One live model that the trials of a run share; several threads may ask it.

    Attributes:
        backend: The model.
        model: The model as params.yaml describes it.
        limits: The limits of trials and outages.
        log: Where neutral calls are kept, with their failures.
        report: Receives messages for a person.
        stopping: Ends every wait.
        answering: How the answering model calls itself, by the neutral call; None if the server does not say it.
    """

    backend: Backend
    model: Model
    limits: Limits
    log: CallLog
    report: Callable[[str], None]
    stopping: threading.Event = field(default_factory=threading.Event)
    answering: str | None = None
    _usual: float | None = None  # seconds of the fastest neutral call
    _unsteady: int = 0  # requests that failed and succeeded when they were repeated
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self) -> None:
        """Make the first neutral call, unless it is made, and wait for a server that is away.

        Raises:
            LlmError: A setting is wrong, or the model is not there.
            OutageError: The server was away for too long.
        """
        if self._usual is None:
            self.answering = self._neutral().model

    def digest(self) -> str:
        """Return the digest that the server has for the model; raises LlmError as `begin` does."""
        self.begin()
        return self.backend.digest()

    def ask(self, request: ChatRequest, seconds: float) -> Outcome:
        """Make a trial's call, each attempt in at most so many seconds; raises LlmError as `begin` does."""
        attempts: list[Attempt] = []
        while True:
            started = time.monotonic()
            try:
                reply = self.backend.chat(request, seconds)
            except CallError as error:
                verdict = error.verdict
                assert verdict is not None  # noqa: S101 - a live backend gives one
                took = round(time.monotonic() - started, 3)
                attempt: dict[str, Any] = {"status": error.status, "words": well_formed(error.words), "seconds": took}
                if verdict.blame == "request":
                    attempts.append(Attempt("request", **attempt))
                    return Outcome(None, verdict.failure, tuple(attempts))
                neutral = self._neutral()
                is_slow = error.status is None and self._is_slow(neutral)
                blame = "server" if is_slow else verdict.blame
                attempts.append(Attempt(blame, **attempt, neutral=neutral, field=verdict.field))
                if (failed := self._failure(attempts, verdict.reason)) is not None:
                    return Outcome(None, failed, tuple(attempts))
                if blame == "server":
                    self._pause(max(error.wait, PAUSE * 2 ** (len(attempts) - 1)))
            else:
                self._unsteady += bool(attempts)
                return Outcome(reply, None, tuple(attempts))

    def _failure(self, attempts: list[Attempt], reason: str) -> Failure | None:
        """Return the failure that these attempts prove; None if the call is to be made again."""
        if any(attempt.blame == "server" for attempt in attempts):  # the server said so, or was slow: never the team's
            return failure("server-failed", fault=reason) if len(attempts) >= MOST_ATTEMPTS else None
        if len(attempts) < min(ATTEMPTS + self._unsteady, MOST_ATTEMPTS):
            return None
        return failure("request-fails", attempts=len(attempts), last=reason, detail=attempts[-1].words)

    def _is_slow(self, neutral: ChatReply) -> bool:
        return neutral.seconds > _SLOW * (self._usual or 0.0) + _SLOW_SECONDS

    def _neutral(self) -> ChatReply:
        """Make a neutral call; wait while the server is away. One thread makes it while the others wait."""
        request, away_since, next_line, pause = neutral_request(self.model, ""), 0.0, 0.0, PAUSE
        with self._lock:
            while True:
                started = time.monotonic()
                try:
                    reply = neutral_call(self.backend, self.model, self.limits)
                except CallError as error:
                    self._keep(request, reason=str(error))
                    verdict = error.verdict
                    assert verdict is not None  # noqa: S101 - as above
                    if verdict.field is not None:
                        advice = advice_on(verdict.field, request.options.get(verdict.field))
                        raise LlmError(f"{error}. {advice}") from error
                    if verdict.blame == "request" and verdict.context is not None:
                        raise LlmError(f"{error}. Even a short request does not fit: raise the context.") from error
                    away_since = away_since or started
                    away = time.monotonic() - away_since
                    pause = min(max(pause, error.wait), _LONGEST_PAUSE)
                    if away + pause > self.limits.outage_seconds:
                        raise OutageError(
                            f"{error}. It has answered no neutral request for {duration(away)} (limits.outage_seconds "
                            f"is {self.limits.outage_seconds:g}). Look at the server's log, then run again; finished "
                            "trials stay."
                        ) from error
                    if time.monotonic() >= next_line:
                        self.report(f"{error}; waiting for the server since {duration(away)}")
                        next_line = time.monotonic() + _LINE_SECONDS
                    self._pause(pause)
                    pause *= 2
                else:
                    self._keep(request, reply=reply)
                    self._usual = min(self._usual or reply.seconds, reply.seconds)
                    return reply

    def _keep(self, request: ChatRequest, **outcome: Any) -> None:
        self.log.keep(LoggedCall(key=request.key, model=request.model, kind=NEUTRAL, **outcome))

    def _pause(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise LlmError(f"model {self.model.name}: the run was stopped. Run again to continue.")
