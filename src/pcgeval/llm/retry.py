"""The only retries of a call to a language model: at most 6 requests, with pauses that double.

A retry asks for the same reply: a request carries its seed.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from pcgeval.core.console import count, print_stderr
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError, RefusedError, ServerFaultError

_LIST_SECONDS = 30.0  # for the server's list of models
_LIST_REQUESTS = 3  # a person waits for the first message
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of the retries of one call; times in seconds."""

    requests: int = 6  # of one call at most
    pause: float = 1.0  # after the first failure; doubles each time
    silence: float = 60.0  # without a byte once a reply has begun; loading a model may take longer than that


class TransientError(Exception):
    """One request failed in a way that another may not; `wait` is the server's Retry-After in seconds, else 0."""

    def __init__(self, text: str, wait: float | None = None) -> None:
        """Describe what happened."""
        super().__init__(text)
        self.wait = wait or 0.0


class UnreachableError(TransientError):
    """Nobody listens; `advice` says what to start or where to look."""

    def __init__(self, text: str, advice: str) -> None:
        """Name the server that does not answer."""
        super().__init__(text)
        self.advice = advice


class Server(Protocol):
    """A server that has the model; each call of a method is one request."""

    address: str

    def digest(self, deadline: float) -> str:
        """Return the digest of the model here; raises LlmError where it is missing, or TransientError."""

    def ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Return the reply of the model here; raises LlmError, CallError or TransientError."""


class ServedModel:
    """One model on a server: a backend, usable from several threads."""

    def __init__(
        self,
        name: str,
        server: Server,
        policy: RetryPolicy | None = None,
        report: Callable[[str], None] = print_stderr,
    ) -> None:
        """Name the model and its server; `report` is told when the server begins to fail, and when it answers again."""
        self.name = name
        self._server = server
        self._policy = policy or RetryPolicy()
        self._report = report
        self._is_failing = self._is_without_schemas = False
        self._lock = threading.Lock()

    def digest(self) -> str:
        """Return the digest that the server has for the model.

        Raises:
            LlmError: The server does not answer, or lacks the model; the message says what to do.
        """
        requests = min(_LIST_REQUESTS, self._policy.requests)
        try:
            return self._retried(self._server.digest, time.monotonic() + _LIST_SECONDS, requests)
        except TransientError as error:
            raise LlmError(
                f"the server at {self._server.address} does not list its models: {error}. Look at its log."
            ) from error

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds and six requests.

        Raises:
            RefusedError: The server refused this request.
            ServerFaultError: No usable reply within these bounds.
            LlmError: The server is not there any more, or no longer has the model.
        """
        deadline = time.monotonic() + timeout
        try:
            return self._asked(request, deadline)
        except TransientError as error:
            raise ServerFaultError(f"model {self.name}: {error} in {timeout:g} s") from error

    def _asked(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Ask for a reply that follows the request's schema, or where it need not and no server takes it, any reply."""
        is_optional = request.schema is not None and not request.schema_required
        plain = replace(request, schema=None)
        if is_optional and self._is_without_schemas:
            return self._retried(lambda until: self._server.ask(plain, until), deadline, self._policy.requests)
        try:
            return self._retried(lambda until: self._server.ask(request, until), deadline, self._policy.requests)
        except RefusedError as error:
            if request.schema is None:
                raise
            if not is_optional:
                raise RefusedError(f"{error}; its server may not support JSON schemas") from error
        reply = self._retried(lambda until: self._server.ask(plain, until), deadline, self._policy.requests)
        self._is_without_schemas = True  # only now: the schema was at fault and not the prompt
        return reply

    def _retried(self, ask: Callable[[float], _Answer], deadline: float, requests: int) -> _Answer:
        """Return what one of some requests gives before a deadline of the monotonic clock.

        Raises:
            LlmError: Nobody listens.
            TransientError: All requests failed; the message says how many there were.
        """
        pause = self._policy.pause
        for number in range(1, requests + 1):
            try:
                answer = ask(deadline)
            except TransientError as error:
                wait = max(pause, error.wait)
                if number == requests or time.monotonic() + wait >= deadline:
                    if isinstance(error, UnreachableError):
                        raise LlmError(f"{error}. {error.advice}") from error
                    raise TransientError(f"{error}; no usable reply to {count(number, 'request')}") from error
                self._tell(f"{error}; trying again", is_failing=True)
                time.sleep(wait)
                pause *= 2
            else:
                self._tell("answers again", is_failing=False)
                return answer
        raise AssertionError("a policy asks once at least")

    def _tell(self, text: str, *, is_failing: bool) -> None:
        """Tell a person once that the server begins to fail, and once that it answers again."""
        with self._lock:
            is_new, self._is_failing = is_failing != self._is_failing, is_failing
        if is_new:
            self._report(f"model {self.name}, server {self._server.address}: {text}")
