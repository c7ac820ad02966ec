"""A live model: a neutral call decides whose fault a request without a reply is.

The neutral call is one short request with the model's options, the same for all teams and on nobody's account. It is
made before the first trial, and after every failure that the table of blame cannot decide:

- It fails. Then the server is away, and everybody waits for it with growing pauses, in a run up to
  `limits.outage_seconds`; or a setting is wrong, and the model's run ends at once.
- It is answered. Then the request is sent once more, and if that fails again, the failure is the request's: of a trial,
  the record holds both attempts and the neutral reply between them. A server that fails other requests now and then,
  which succeed when they are repeated, has to fail one request more often.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pcgeval.core.console import print_stderr
from pcgeval.core.text import duration, well_formed
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.params import Limits, Model
from pcgeval.formats.trials import Attempt, Blame, ChatReply
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
_RATE_LIMIT, _BUSY_SECONDS = 429, 120.0  # a server of this status is there; its limits are for a minute


class OutageError(LlmError):
    """A server answered no neutral call for as long as anybody waits for it."""


@dataclass(frozen=True)
class Outcome:
    """The end of a call: a reply or a failure, the attempts without a reply, and the error of the last of them."""

    reply: ChatReply | None
    failure: Failure | None
    attempts: tuple[Attempt, ...] = ()
    error: CallError | None = None


def neutral_request(model: Model, *, adaptable: bool = False) -> ChatRequest:
    """Return the neutral request to a model."""
    options = {"temperature": 1, **model.options, "seed": SEED}
    return ChatRequest(model.name, "", (Message("user", TEXT),), options, adaptable=adaptable)


def neutral_seconds(limits: Limits) -> float:
    """Return how long a neutral call of a run may take."""
    most = max(limits.seconds + limits.call_seconds, _LEAST_SECONDS)
    return min(most, limits.outage_seconds or most)


@dataclass
class LiveModel:
    """One live model that the trials of a run, or the calls of a judge, share; several threads may ask it.

    Attributes:
        backend: The model.
        neutral: The neutral request to it.
        seconds: How long a neutral call may take.
        outage_seconds: For how long a server that is away is waited for.
        log: Where neutral calls are kept, with their failures; by default in memory.
        report: Receives messages for a person.
        stopping: Ends every wait.
        answering: How the answering model calls itself, by the neutral call; None if the server does not say it.
    """

    backend: Backend
    neutral: ChatRequest
    seconds: Callable[[], float]
    outage_seconds: float
    log: CallLog = field(default_factory=lambda: CallLog(None))
    report: Callable[[str], None] = print_stderr
    stopping: threading.Event = field(default_factory=threading.Event)
    answering: str | None = None
    _usual: float | None = None  # seconds of the fastest neutral call
    _unsteady: int = 0  # requests that failed and succeeded when they were repeated
    _outage: OutageError | None = None
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

    def ask(self, request: ChatRequest, seconds: Callable[[], float]) -> Outcome:
        """Make a call, each attempt in at most so many seconds; raises LlmError as `begin` does."""
        attempts: list[Attempt] = []
        while True:
            started = time.monotonic()
            try:
                reply = self.backend.chat(request, seconds())
            except CallError as error:
                verdict, took = error.verdict, round(time.monotonic() - started, 3)
                attempt: dict[str, Any] = {"status": error.status, "words": well_formed(error.words), "seconds": took}
                if verdict is not None and verdict.blame == "request":
                    attempts.append(Attempt("request", **attempt))
                    return Outcome(None, verdict.failure, tuple(attempts), error)
                # a judge needs no proof that a server is busy which says so
                is_busy = error.status == _RATE_LIMIT and self.neutral.adaptable and len(attempts) < MOST_ATTEMPTS - 1
                neutral = None if is_busy else self._neutral()
                is_slow = error.status is None and neutral is not None and self._is_slow(neutral)
                blame: Blame = "server" if is_slow else verdict.blame if verdict else "undecided"
                attempts.append(Attempt(blame, **attempt, neutral=neutral, field=verdict.field if verdict else None))
                if (failed := self._failure(attempts, verdict.reason if verdict else str(error))) is not None:
                    return Outcome(None, failed, tuple(attempts), error)
                if blame == "server":
                    self._pause(min(max(error.wait, PAUSE * 2 ** (len(attempts) - 1)), _LONGEST_PAUSE))
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
        pause = PAUSE
        with self._lock:
            away_since = time.monotonic()
            next_line = away_since + 2 * PAUSE
            while True:
                if self._outage is not None:
                    raise self._outage
                try:
                    reply = self.backend.chat(self.neutral, self.seconds())
                except CallError as error:
                    self._keep(reason=str(error))
                    self._check_settings(error)
                    away, most = time.monotonic() - away_since, self.outage_seconds
                    if error.status == _RATE_LIMIT:
                        most = max(most, _BUSY_SECONDS)
                    if away >= most:
                        limit = "" if self.neutral.adaptable else f" (limits.outage_seconds is {most:g})"
                        self._outage = OutageError(
                            f"{error}. It has answered no neutral request for {duration(away)}{limit}. Look at the "
                            "server's log, then run again; what is finished stays."
                        )
                        raise self._outage from error
                    if time.monotonic() >= next_line:
                        self.report(f"{error}; waiting for the server since {duration(away)}")
                        next_line = time.monotonic() + _LINE_SECONDS
                    self._pause(min(max(pause, error.wait), _LONGEST_PAUSE, most - away))
                    pause *= 2
                else:
                    self._keep(reply=reply)
                    self._usual = min(self._usual or reply.seconds, reply.seconds)
                    return reply

    def _check_settings(self, error: CallError) -> None:
        """Raise LlmError if a neutral call failed through the model's settings."""
        if error.verdict is not None and (name := error.verdict.field) is not None:
            raise LlmError(f"{error}. {advice_on(name, self.neutral.options.get(name))}") from error
        if error.verdict is not None and error.verdict.is_too_long:
            raise LlmError(f"{error}. Even a short request does not fit: raise the context.") from error

    def _keep(self, **outcome: Any) -> None:
        self.log.keep(LoggedCall(key=self.neutral.key, model=self.neutral.model, kind=NEUTRAL, **outcome))

    def _pause(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise LlmError(f"model {self.neutral.model}: the run was stopped. Run again to continue.")
