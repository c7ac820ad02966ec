"""One model at a server: bounded HTTP exchanges and retries.

httpx bounds single reads and writes, and a server may drip, so each exchange also runs under `asyncio.timeout`. All
clients share one event loop in a background thread, so that every thread uses the same open connections. A retry asks
for the same reply, because a request carries its seed.
"""

import asyncio
import functools
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import httpx

from pcgeval.core.console import count
from pcgeval.core.trials import MAX_COUNT
from pcgeval.core.untrusted import printable_line
from pcgeval.llm.protocol import (
    CallError,
    ChatReply,
    ChatRequest,
    LlmError,
    OnText,
    RefusedError,
    ServerFaultError,
    usual_tokens,
)

REQUESTS = 6  # of one call at most
PAUSE = 1.0  # seconds after the first failed request; doubles each time
SILENCE = 60.0  # seconds without a byte after which a reply that has begun counts as broken off
REPLY_LIMIT = 32 * 2**20  # bytes on the wire; a streamed reply of 25 000 tokens has about 5 MB
_TIMEOUT = httpx.Timeout(None, connect=10.0)  # seconds; the deadline bounds the rest, as loading a model takes minutes
# servers close a connection that is idle for 5 s (llama.cpp, uvicorn, Node): ours must not be about to be used then
_CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
_LIST_SECONDS = 30.0  # for the server's list of models
_LIST_REQUESTS = 3  # a person waits for the first message
_certificates = functools.cache(httpx.create_ssl_context)  # reading them takes a tenth of a second
_Answer = TypeVar("_Answer")
_LOOP = asyncio.new_event_loop()
threading.Thread(target=_LOOP.run_forever, name="model servers", daemon=True).start()


class TransientError(Exception):
    """One request failed in a way that another may not.

    `wait` is how many seconds the server asks to wait; `advice` is what a person can do if nobody listens.
    """

    def __init__(self, text: str, wait: float = 0.0, advice: str = "") -> None:
        """Describe the failure."""
        super().__init__(text)
        self.wait, self.advice = wait, advice


class ModelServer(ABC):
    """One model at one HTTP server: a backend, usable from several threads."""

    _interface: ClassVar[str]
    _key_variable: ClassVar[str]
    _start_advice: ClassVar[str]

    def __init__(self, name: str, address: str, report: Callable[[str], None], on_text: OnText | None) -> None:
        """Name a model and the URL of its server; `report` and `on_text` receive what `open_backend` says."""
        self.name, self.address = name, address
        self._report, self._on_text = report, on_text
        self._is_failing = self._is_without_schemas = False

    @abstractmethod
    async def _listed_digest(self) -> str:
        """Return the model's digest by the server's list of models."""

    @abstractmethod
    async def _ask(self, request: ChatRequest) -> ChatReply:
        """Make one request."""

    @abstractmethod
    def _missing_model(self, detail: str) -> LlmError:
        """Return the error for a server without the model."""

    def digest(self) -> str:
        """Return the digest that the server has for the model.

        Raises:
            LlmError: The server does not answer, or lacks the model; the message says what to do.
        """
        try:
            return self._retried(self._listed_digest, time.monotonic() + _LIST_SECONDS, _LIST_REQUESTS)
        except (TransientError, CallError) as error:
            raise LlmError(
                f"the server at {self.address} does not list its models: {error}. Look at its log."
            ) from error

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds and six requests; a server that refuses the schema is asked without it.

        Raises:
            RefusedError: The server refused this request.
            ContextExceededError: The prompt is too long.
            ServerFaultError: No usable reply within these bounds.
            LlmError: The server is not there any more, or no longer has the model.
        """
        deadline = time.monotonic() + timeout
        plain = replace(request, schema=None)
        try:
            if request.schema is None or self._is_without_schemas:
                return self._retried(lambda: self._ask(plain), deadline, REQUESTS)
            try:
                return self._retried(lambda: self._ask(request), deadline, REQUESTS)
            except RefusedError:
                reply = self._retried(lambda: self._ask(plain), deadline, REQUESTS)
                self._is_without_schemas = True  # only now: the schema was at fault and not the prompt
                return reply
        except TransientError as error:
            raise ServerFaultError(f"model {self.name}: {error} in {timeout:g} s") from error

    def _retried(self, ask: Callable[[], Awaitable[_Answer]], deadline: float, requests: int) -> _Answer:
        """Return the first answer to some requests before a deadline of the monotonic clock.

        Raises:
            LlmError: Nobody listens.
            TransientError: All requests failed; the message says how many there were.
        """
        number, pause = 1, PAUSE
        while True:
            try:
                answer = self._exchanged(ask, deadline)
            except TransientError as error:
                wait = max(pause, error.wait)
                if number == requests or time.monotonic() + wait >= deadline:
                    if error.advice:
                        raise LlmError(f"{error}. {error.advice}") from error
                    raise TransientError(f"{error}; no usable reply to {count(number, 'request')}") from error
                self._tell(f"{error}; trying again", is_failing=True)
                time.sleep(wait)
                number, pause = number + 1, pause * 2
            else:
                self._tell("answers again", is_failing=False)
                return answer

    def _exchanged(self, ask: Callable[[], Awaitable[_Answer]], deadline: float) -> _Answer:
        """Run one exchange on the event loop; raises TransientError for what another one may not meet."""

        async def exchange() -> _Answer:
            async with asyncio.timeout(deadline - time.monotonic()):
                return await ask()

        running = asyncio.run_coroutine_threadsafe(exchange(), _LOOP)
        try:
            return running.result()
        except KeyboardInterrupt:
            running.cancel()
            raise
        except TimeoutError as error:
            raise TransientError("no whole answer came in time") from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = self._printable(error) or type(error).__name__
            raise TransientError(
                f"no {self._interface} server answers at {self.address} ({reason})", advice=self._start_advice
            ) from error
        except httpx.RequestError as error:
            raise TransientError(f"the exchange broke off ({type(error).__name__})") from error
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
            # the clients take the shape of an answer for granted: this is what JSON of another shape raises in them
            raise TransientError(f"the answer does not follow {self._interface}'s interface") from error

    def _tell(self, text: str, *, is_failing: bool) -> None:
        """Report once that the server begins to fail, and once that it answers again."""
        if is_failing != self._is_failing:
            self._is_failing = is_failing
            self._report(f"model {self.name}, server {self.address}: {text}")

    def _status_error(self, status: int, detail: object, retry_after: str = "", code: object = None) -> Exception:
        """Return the error for an answer with this status; -1 is one in the middle of a stream."""
        text = self._printable(detail)
        answer = f"{status}: {text}" if status > 0 else text
        if status == 404:
            return self._missing_model(text)
        if status in {401, 403}:
            return LlmError(f"the server at {self.address} refuses access ({answer}). Check {self._key_variable}.")
        if status == 402 or code == "insufficient_quota":
            return LlmError(f"{self.address} wants to be paid ({answer}). Finished trials stay; run again.")
        if 400 <= status < 500 and status not in {408, 409, 425, 429}:
            return RefusedError(f"model {self.name}: the server refused the request ({answer})")
        if not re.fullmatch(r"[0-9]{1,9}", retry_after):
            return TransientError(f"the server failed ({answer})")
        return TransientError(f"the server failed ({answer}) and asks to wait {retry_after} s", float(retry_after))

    def _printable(self, text: object) -> str:
        """Bring foreign text to one line of bounded length."""
        return printable_line(str(text))


def finished_reply(
    request: ChatRequest, text: str, reason: str, started: float, read: object, written: object
) -> ChatReply:
    """Return a reply with its costs: the tokens read and written, as the server reports them.

    A judge's are estimated where they are not reported. `started` is a time of the monotonic clock.

    Raises:
        ServerFaultError: The server reports no such numbers.
    """
    seconds = round(time.monotonic() - started, 3)
    is_reported = is_count(read) and is_count(written)
    if request.adaptable and not (is_reported and read):
        read = sum(usual_tokens(message.content) for message in request.messages)
        return ChatReply(text, read, usual_tokens(text), reason, seconds, estimated=True)
    if not is_reported:
        reported = printable_line(f"{read!r} tokens read and {written!r} written")
        raise ServerFaultError(f"the server reports {reported}: without them the token limit cannot be kept")
    return ChatReply(text, read, written, reason, seconds)  # type: ignore[arg-type]


def is_count(tokens: object) -> bool:
    """Tell whether a server's number of tokens is one."""
    return isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MAX_COUNT


async def parts_of(answer: Any) -> AsyncIterator[Any]:
    """Yield the parts of a streamed answer, or one that is not streamed as its only part."""
    if isinstance(answer, AsyncIterable):
        async for part in answer:
            yield part
    else:
        yield answer


def http_settings() -> dict[str, Any]:
    """Return how an httpx client connects: answers are neither compressed, nor too long, nor silent for too long."""
    return {
        "timeout": _TIMEOUT,
        "limits": _CONNECTIONS,
        "verify": _certificates(),
        "trust_env": False,  # no proxy
        "headers": {"accept-encoding": "identity"},
        "event_hooks": {"response": [_bound]},
    }


async def _bound(response: httpx.Response) -> None:
    if "content-encoding" in response.headers:  # a few compressed bytes could unfold to gigabytes
        raise httpx.RemoteProtocolError("the answer is compressed although that was not asked for")
    response.request.extensions["timeout"]["read"] = SILENCE  # httpcore reads it again where the body begins
    assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - as all of an asynchronous client
    response.stream = _LimitedStream(response.stream)


class _LimitedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received > REPLY_LIMIT:
                raise ServerFaultError(f"the reply is longer than {REPLY_LIMIT // 2**20} MB")
            yield chunk

    async def aclose(self) -> None:
        """Close the stream that is counted."""
        await self._stream.aclose()
