"""A model on one or several servers: calls are spread over them, and faults that pass are borne for a while.

Asking again is fair: a request carries its seed, so it is the same reply that is asked for, on whichever server.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pcgeval.core.console import print_stderr
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, RefusedError
from pcgeval.llm.schemas import SchemaError

_LIST_SECONDS = 30.0  # for one server's list of models
_LIST_ATTEMPTS = 3  # a person waits for the first message
_STRIKES = 3  # faults without a reply between them until a server is left out
_LONGEST_REST = 300.0  # seconds
_LONGEST_WAIT = 3600.0  # seconds that a server may ask to be left out


@dataclass(frozen=True)
class Patience:
    """How faults that pass are borne; times in seconds."""

    attempts: int = 6  # of one call, each on all servers that are up
    pause: float = 1.0  # before the second attempt; doubles with each further one
    silence: float = 60.0  # without a byte once a reply has begun; loading a model may take longer than that
    rest: float = 15.0  # until a server that was left out is tried again; doubles up to five minutes


class PassingFault(Exception):  # noqa: N818 - not an error until patience ends
    """One attempt failed in a way that another may not; `wait` is how long the server asks to be left alone."""

    def __init__(self, text: str, wait: float | None = None) -> None:
        """Say what happened, and how many seconds the server wants."""
        super().__init__(text)
        self.wait = wait or 0.0


class Unreachable(PassingFault):
    """Nobody listens; `advice` says what to start or where to look."""

    def __init__(self, text: str, advice: str) -> None:
        """Say who does not answer, and what to do."""
        super().__init__(text)
        self.advice = advice


class Server(Protocol):
    """One server that serves the model; each call of a method is one attempt."""

    address: str

    def digest(self, deadline: float) -> str:
        """Return the digest of the model here; raises LlmError where it is missing, PassingFault, CallError."""

    def ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Return the reply of the model with the request's digest; raises LlmError, CallError or PassingFault."""


@dataclass(eq=False)
class _Host:
    """A server and how it fares."""

    server: Server
    calls: int = 0  # at this moment
    last_call: int = 0  # its number among all calls
    strikes: int = 0
    rests: int = 0  # one after the other
    rests_until: float = 0.0  # on the monotonic clock


class ServedModel:
    """One model on its servers: a backend."""

    def __init__(
        self,
        name: str,
        servers: Sequence[Server],
        patience: Patience | None = None,
        report: Callable[[str], None] = print_stderr,
    ) -> None:
        """Take at least one server; `report` is told of servers that are left out, and that are back."""
        self.name = name
        self._hosts = [_Host(server) for server in servers]
        self._patience = patience or Patience()
        self._report = report
        self._calls = 0
        self._lock = threading.Lock()

    def digest(self) -> str:
        """Return the digest that all servers have for the model; those that do not answer are left out.

        Raises:
            LlmError: No server answers, one lacks the model, or two have different ones; the message says what to do.
        """
        found: dict[str, str] = {}
        faults: list[PassingFault] = []
        for host in self._hosts:
            try:
                found[host.server.address] = self._listed(host.server)
            except PassingFault as fault:
                faults.append(fault)
                self._rest(host, fault)
        if not found:
            raise self._unlisted(faults)
        if len(set(found.values())) > 1:
            each = ", ".join(f"{address} has {digest}" for address, digest in found.items())
            raise LlmError(
                f"model {self.name}: the servers have different models under this name: {each}. "
                "Get the same one on all of them, or take the others out of `hosts` in params.yaml."
            )
        return next(iter(found.values()))

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds, all attempts together.

        Raises:
            CallError: No usable reply in time or after several attempts, or a server refused this request.
            LlmError: No server is there any more, or one no longer has the model.
        """
        deadline = time.monotonic() + timeout
        pause = self._patience.pause
        for attempt in range(1, self._patience.attempts + 1):
            tried: list[_Host] = []
            faults: list[PassingFault] = []
            while (host := self._next(tried, deadline)) is not None:
                tried.append(host)
                try:
                    return self._ask(host, request, deadline)
                except PassingFault as fault:
                    faults.append(fault)
            wait = max(pause, min(fault.wait for fault in faults))
            if attempt == self._patience.attempts or time.monotonic() + wait >= deadline:
                break
            time.sleep(wait)
            pause *= 2
        raise self._given_up(faults, timeout)

    def _listed(self, server: Server) -> str:
        deadline = time.monotonic() + _LIST_SECONDS
        pause = self._patience.pause
        for _ in range(1, min(_LIST_ATTEMPTS, self._patience.attempts)):
            try:
                return server.digest(deadline)
            except PassingFault as fault:
                wait = max(pause, fault.wait)
                if time.monotonic() + wait >= deadline:
                    raise
                time.sleep(wait)
                pause *= 2
        return server.digest(deadline)

    def _next(self, tried: Sequence[_Host], deadline: float) -> _Host | None:
        """Choose the least busy server that is up and was not tried; where none is up, the one that rests least longer.

        None: all that could be tried were, or time is up. The choice counts as a call until `_ask` has returned.
        """
        now = time.monotonic()
        with self._lock:
            up = [host for host in self._hosts if host.rests_until <= now and host not in tried]
            if tried and (not up or now >= deadline):
                return None
            if up:
                host = min(up, key=lambda host: (host.calls, host.last_call))
            else:
                host = min(self._hosts, key=lambda host: host.rests_until)
            self._calls += 1
            host.last_call = self._calls
            host.calls += 1
            return host

    def _ask(self, host: _Host, request: ChatRequest, deadline: float) -> ChatReply:
        try:
            reply = host.server.ask(request, deadline)
        except PassingFault as fault:
            if time.monotonic() < deadline:  # else it is the call's time that ended
                self._blame(host, fault)
            raise
        except RefusedError as error:
            if request.schema is None or isinstance(error, SchemaError):
                raise
            raise RefusedError(f"{error}; it was asked for JSON of a schema, which it may not support") from error
        finally:
            with self._lock:
                host.calls -= 1
        self._praise(host)
        return reply

    def _blame(self, host: _Host, fault: PassingFault) -> None:
        with self._lock:
            host.strikes += 1
            tired = isinstance(fault, Unreachable) or fault.wait > 0 or host.strikes >= _STRIKES
        if tired:
            self._rest(host, fault)

    def _rest(self, host: _Host, fault: PassingFault) -> None:
        now = time.monotonic()
        with self._lock:
            if host.rests_until > now:
                return  # calls that fail together count once
            rest = min(self._patience.rest * 2 ** min(host.rests, 9), _LONGEST_REST)
            rest = max(rest, min(fault.wait, _LONGEST_WAIT))
            host.rests_until = now + rest
            host.rests += 1
            news = host.rests == 1
        if news:
            others = "the others go on without it" if len(self._hosts) > 1 else "trying again"
            self._report(f"model {self.name}, server {host.server.address}: {fault}; {others}")

    def _praise(self, host: _Host) -> None:
        with self._lock:
            back = host.rests > 0
            host.strikes, host.rests, host.rests_until = 0, 0, 0.0
        if back:
            self._report(f"model {self.name}, server {host.server.address}: answers again")

    def _unlisted(self, faults: Sequence[PassingFault]) -> LlmError:
        if (gone := _gone(faults)) is not None:
            return gone
        each = "; ".join(
            f"the server at {host.server.address} does not list its models: {fault}"
            for host, fault in zip(self._hosts, faults, strict=True)
        )
        return LlmError(f"{each}. Look at its log.")

    def _given_up(self, faults: Sequence[PassingFault], timeout: float) -> Exception:
        bounds = f"{timeout:g} s and {self._patience.attempts} attempts"
        text = "; ".join(dict.fromkeys(str(fault) for fault in faults))
        return _gone(faults) or CallError(f"model {self.name}: {text}; no usable reply within {bounds}")


def _gone(faults: Sequence[PassingFault]) -> LlmError | None:
    """Return the error for a model none of whose servers answers; None where one did, if only to fail."""
    unreachable = [fault for fault in faults if isinstance(fault, Unreachable)]
    if len(unreachable) < len(faults):
        return None
    return LlmError(f"{'; '.join(str(fault) for fault in faults)}. {unreachable[-1].advice}")
