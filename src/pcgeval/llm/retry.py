"""The only retries of a call to a language model: at most 6 requests with exponential back-off, over all its servers.

A retry asks for the same reply: a request carries its seed. A server that keeps failing is left out for a while.

A model that is pulled again in the middle of a run keeps its name. So a reply counts only if its server's list of
models still has the digest that the request names; any other one stops the run. A list that cannot be had is asked for
again, and not the reply.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pcgeval.core.console import count, print_stderr
from pcgeval.llm.protocol import UNPINNED, ChatReply, ChatRequest, LlmError, RefusedError, ServerFaultError
from pcgeval.llm.schemas import SchemaError

_LIST_SECONDS = 30.0  # for one server's list of models
_LIST_REQUESTS = 3  # a person waits for the first message
_FAILURES = 3  # one after the other until a server is left out
_LONGEST_REST = 300.0  # seconds
_LONGEST_WAIT = 3600.0  # seconds that a server may ask to be left out
_SERVERS_BEFORE_PAUSE = 2  # more would spend all requests of a call in the first moment of an outage


@dataclass(frozen=True)
class RetryPolicy:
    """Limits of the retries of one call; times in seconds."""

    requests: int = 6  # of one call at most, to all servers together
    pause: float = 1.0  # once all servers, or two of more, have failed; doubles each time
    silence: float = 60.0  # without a byte once a reply has begun; loading a model may take longer than that
    rest: float = 15.0  # until a server that was left out is asked again; doubles up to five minutes


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
    """One server that has the model; each call of a method is one request."""

    address: str

    def digest(self, deadline: float) -> str:
        """Return the digest of the model here; raises LlmError where it is missing, or TransientError."""

    def ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Return the reply of the model here; raises LlmError, CallError or TransientError."""


@dataclass(eq=False)
class _Host:
    """A server and its recent calls."""

    server: Server
    calls: int = 0  # at this moment
    last_call: int = 0  # its number among all calls
    failures: int = 0  # since the last reply
    rests: int = 0  # one after the other
    rests_until: float = 0.0  # on the monotonic clock
    unchecked: dict[str, ChatReply] = field(default_factory=dict)  # by request: replies whose model is not sure


class ServedModel:
    """One model on one or several servers: a backend, usable from several threads."""

    def __init__(
        self,
        name: str,
        servers: Sequence[Server],
        policy: RetryPolicy | None = None,
        report: Callable[[str], None] = print_stderr,
    ) -> None:
        """Take at least one server; `report` is told of servers that are left out, and that are back."""
        self.name = name
        self._hosts = [_Host(server) for server in servers]
        self._policy = policy or RetryPolicy()
        self._report = report
        self._calls = 0
        self._takes_schemas = True
        self._lock = threading.Lock()

    def digest(self) -> str:
        """Return the digest that all servers have for the model; those that do not answer are left out.

        Raises:
            LlmError: No server answers, one lacks the model, or two have different ones; the message says what to do.
        """
        found: dict[str, str] = {}
        errors: list[TransientError] = []
        for host in self._hosts:
            try:
                found[host.server.address] = self._listed_digest(host.server)
            except TransientError as error:
                errors.append(error)
                self._leave_out(host, error)
        if not found:
            each = "; ".join(
                f"the server at {host.server.address} does not list its models: {error}"
                for host, error in zip(self._hosts, errors, strict=True)
            )
            raise _all_unreachable(errors) or LlmError(f"{each}. Look at its log.")
        if len(set(found.values())) > 1:
            each = ", ".join(f"{address} has {digest}" for address, digest in found.items())
            raise LlmError(
                f"model {self.name}: the servers have different models under this name: {each}. "
                "Get the same one on all of them, or take the others out of `hosts` in params.yaml."
            )
        return next(iter(found.values()))

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds and six requests.

        Raises:
            CallError: The reply was not complete in time.
            RefusedError: A server refused this request.
            ServerFaultError: No usable reply within these bounds.
            LlmError: No server is there any more, or one no longer has the model.
        """
        deadline = time.monotonic() + timeout
        pause = self._policy.pause
        left = self._policy.requests
        asked = request if self._takes_schemas or request.schema_required else replace(request, schema=None)
        errors: dict[_Host, TransientError] = {}  # the latest of each server
        while True:
            tried: list[_Host] = []
            while left > 0 and len(tried) < _SERVERS_BEFORE_PAUSE and (host := self._next(tried, deadline)) is not None:
                left -= 1
                tried.append(host)
                try:
                    reply = self._ask(host, asked, deadline)
                except TransientError as error:
                    errors[host] = error
                except RefusedError as error:
                    if asked.schema is None or isinstance(error, SchemaError):
                        raise
                    if request.schema_required or left == 0:
                        raise RefusedError(f"{error}; its server may not support JSON schemas") from error
                    asked = replace(request, schema=None)
                    tried.clear()
                else:
                    if asked.schema is not request.schema:  # only now: the schema was at fault and not the prompt
                        self._takes_schemas = False
                    return reply
            with self._lock:
                others = self._up(tried)
            wait = pause if others else max(pause, min(error.wait for error in errors.values()))
            if left == 0 or time.monotonic() + wait >= deadline:
                text = "; ".join(dict.fromkeys(map(str, errors.values())))
                bounds = f"{timeout:g} s and {count(self._policy.requests - left, 'request')}"
                raise _all_unreachable(list(errors.values())) or ServerFaultError(
                    f"model {self.name}: {text}; no usable reply within {bounds}"
                )
            time.sleep(wait)
            pause *= 2

    def _listed_digest(self, server: Server) -> str:
        deadline = time.monotonic() + _LIST_SECONDS
        pause = self._policy.pause
        for _ in range(1, min(_LIST_REQUESTS, self._policy.requests)):
            try:
                return server.digest(deadline)
            except TransientError as error:
                wait = max(pause, error.wait)
                if time.monotonic() + wait >= deadline:
                    raise
                time.sleep(wait)
                pause *= 2
        return server.digest(deadline)

    def _next(self, tried: Sequence[_Host], deadline: float) -> _Host | None:
        """Choose the least busy server that is up and was not tried; where none is up, the one that rests least longer.

        None: all that could be tried were, or time is up. The choice counts as a call until `_ask` has returned.
        """
        with self._lock:
            up = self._up(tried)
            if tried and (not up or time.monotonic() >= deadline):
                return None
            if up:
                host = min(up, key=lambda host: (host.calls, host.last_call))
            else:
                host = min(self._hosts, key=lambda host: host.rests_until)
            self._calls += 1
            host.last_call = self._calls
            host.calls += 1
            return host

    def _up(self, tried: Sequence[_Host]) -> list[_Host]:
        """Return the servers that are up and were not tried; the caller holds the lock."""
        now = time.monotonic()
        return [host for host in self._hosts if host.rests_until <= now and host not in tried]

    def _ask(self, host: _Host, request: ChatRequest, deadline: float) -> ChatReply:
        try:
            reply = host.unchecked.pop(request.key, None) or host.server.ask(request, deadline)
            self._check_digest(host, request, reply, deadline)
        except TransientError as error:
            if time.monotonic() < deadline:  # else it is the call's time that ended
                with self._lock:
                    host.failures += 1
                if isinstance(error, UnreachableError) or error.wait > 0 or host.failures >= _FAILURES:
                    self._leave_out(host, error)
            raise
        finally:
            with self._lock:
                host.calls -= 1
        with self._lock:
            is_back = host.rests > 0
            host.failures, host.rests, host.rests_until = 0, 0, 0.0
        if is_back:
            self._report(f"model {self.name}, server {host.server.address}: answers again")
        return reply

    def _check_digest(self, host: _Host, request: ChatRequest, reply: ChatReply, deadline: float) -> None:
        """Look whether the model is still the one that was to be asked; the reply is put aside if the look fails."""
        if request.digest.startswith(UNPINNED):
            return
        try:
            found = host.server.digest(deadline)
        except TransientError:
            host.unchecked[request.key] = reply
            raise
        if found != request.digest:
            raise LlmError(
                f"model {self.name}: the server at {host.server.address} has {found}, this run is of {request.digest}. "
                "Was it pulled again meanwhile? The reply is thrown away. Restore the model, or run again with the "
                "other digest."
            )

    def _leave_out(self, host: _Host, error: TransientError) -> None:
        now = time.monotonic()
        with self._lock:
            if host.rests_until > now:
                return  # calls that fail together count once
            rest = min(self._policy.rest * 2 ** min(host.rests, 9), _LONGEST_REST)
            host.rests_until = now + max(rest, min(error.wait, _LONGEST_WAIT))
            host.rests += 1
            is_first = host.rests == 1
        if is_first:
            others = "the others go on without it" if len(self._hosts) > 1 else "trying again"
            self._report(f"model {self.name}, server {host.server.address}: {error}; {others}")


def _all_unreachable(errors: Sequence[TransientError]) -> LlmError | None:
    """Return the error for a model none of whose servers answers; None where one did, if only to fail."""
    unreachable = [error for error in errors if isinstance(error, UnreachableError)]
    if len(unreachable) < len(errors):
        return None
    return LlmError(f"{'; '.join(map(str, errors))}. {unreachable[-1].advice}")
