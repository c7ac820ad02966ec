"""One model at an HTTP server: bounded exchanges, retries, and adaptation to what the server refuses.

All clients run on one event loop in a background thread, so that every thread uses the same open connections, and a
deadline also ends an answer that drips. A retry asks for the same reply, because a request carries its seed.
"""

import asyncio
import functools
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard, TypeVar

import httpx

from pcgeval.core.console import count
from pcgeval.core.trials import MAX_COUNT
from pcgeval.core.untrusted import printable_line
from pcgeval.llm.protocol import (
    REASONING,
    REFUSAL,
    CallError,
    ChatReply,
    ChatRequest,
    ContextExceededError,
    LlmError,
    RefusedError,
    ServerFaultError,
    usual_tokens,
)

REQUESTS = 6  # of one call at most
PAUSE = 1.0  # seconds after the first failed request; doubles each time
SILENCE = 60.0  # seconds without a byte after which a reply that has begun counts as broken off
REPLY_LIMIT = 32 * 2**20  # bytes on the wire; a streamed reply of 25 000 tokens has about 5 MB
_TIMEOUT = httpx.Timeout(None, connect=10.0)  # seconds; the deadline bounds the rest, as loading a model takes minutes
# servers close a connection after 5 idle seconds (llama.cpp, uvicorn, Node); the client closes it first
_CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
_LIST_SECONDS, _LIST_REQUESTS = 30.0, 3  # for the server's list of models: a person waits for it
_NOT_OFFERED = {404, 405, 501}  # statuses of an address that the server does not have
_SEARCHED = 2_000  # characters of a refusal in which names of fields are looked for
_TOO_LONG = re.compile(
    r"context_length_exceeded|(?:maximum|max|exceeds?|available|model's) (?:the )?(?:model's )?(?:maximum )?context"
    r"|prompt is too long|too many tokens|reduce the length",
    re.IGNORECASE,
)
_CONTEXT_SIZE = re.compile(r"(?:context[^.0-9]{0,60}?|n_ctx\D{0,5})([0-9]{4,8})", re.IGNORECASE)
_certificates = functools.cache(httpx.create_ssl_context)  # reading them takes a tenth of a second
_Answer = TypeVar("_Answer")
_LOOP = asyncio.new_event_loop()
threading.Thread(target=_LOOP.run_forever, name="model servers", daemon=True).start()


class TransientError(Exception):
    """One request failed, and another one may succeed, `wait` seconds later; `advice` helps if none succeeds."""

    def __init__(self, text: str, wait: float = 0.0, advice: str = "") -> None:
        """Describe the failure."""
        super().__init__(text)
        self.wait, self.advice = wait, advice


class MissingModelError(LlmError):
    """The server knows no such model, or no such address."""


@dataclass(frozen=True)
class Part:
    """One part of a streamed reply, or a whole reply; token counts are as the server reports them."""

    text: str = ""
    reason: str | None = None  # why the reply ended
    prompt_tokens: object = None
    output_tokens: object = None
    cached_tokens: object = None
    is_thought: bool = False
    is_refusal: bool = False


class ModelServer(ABC):
    """One model at one HTTP server: a backend, usable from several threads."""

    _interface: ClassVar[str]
    _key_variable: ClassVar[str]
    _start_advice: ClassVar[str]
    _missing_advice: ClassVar[str]
    _schema_field: ClassVar[str]
    _client_errors: ClassVar[tuple[type[Exception], ...]]  # in which the client wraps errors

    def __init__(self, name: str, address: str, report: Callable[[str], None]) -> None:
        """Open the client for a model at an address; `open_backend` describes the rest. Raises LlmError."""
        self.name, self.address = name, address
        self._report = report
        self._refused: frozenset[str] = frozenset()  # fields that the server does not take
        try:
            self._client: Any = self._opened(address)
        except (ValueError, httpx.InvalidURL) as error:
            raise LlmError(
                f"{address!r} is no address of a server ({error}). Write it like http://127.0.0.1:11434."
            ) from error

    @abstractmethod
    def _opened(self, address: str) -> Any:
        """Return the client; raises ValueError or InvalidURL."""

    @abstractmethod
    async def _listed_digest(self) -> str:
        """Return the model's digest by the server's list of models."""

    @abstractmethod
    def _fields(self, request: ChatRequest, refused: Collection[str]) -> dict[str, Any]:
        """Return the fields of a request's body that can be left out, or sent under another name, if refused."""

    @abstractmethod
    def _parts(self, request: ChatRequest, fields: dict[str, Any]) -> AsyncIterator[Part]:
        """Make one request with these fields and yield the parts of the reply."""

    def digest(self) -> str:
        """Return the digest that the server has for the model; raises LlmError without server or model."""
        try:
            return self._retried(self._listed_digest, time.monotonic(), _LIST_SECONDS, _LIST_REQUESTS)
        except CallError as error:
            raise LlmError(f"{self.address} does not list its models: {error}. Look at the server's log.") from error

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds; raises a CallError for this call, or LlmError for all of them.

        A server that refuses the schema, or a field of an adaptable request, is asked without it. Later calls omit it
        as soon as the server has accepted a request without it: until then the refusal may mean something else.
        """
        started, refused, reports = time.monotonic(), self._refused, list[str]()
        while True:
            fields = self._fields(request, refused)
            try:
                reply = self._retried(functools.partial(self._ask, request, fields), started, timeout)
            except RefusedError as error:
                option = str(error.param)
                if option in request.options and not request.adaptable:  # no program chose it
                    value = f"{option}: {request.options[option]}"
                    raise LlmError(f"{error}. Correct the option `{value}` of the model in params.yaml.") from error
                name = _refused_field(error, fields) if request.adaptable else None
                name = name or (self._schema_field if self._schema_field in fields else None)
                if name is None:  # the loop ends, because a refused field is never sent again
                    raise
                refused |= {name}
                instead = self._fields(request, refused).keys() - fields.keys()
                change = f"is sent as {instead.pop()}" if instead else "is left out"
                reports.append(f"{self.address} does not take {name}; it {change} from now on ({error.body:.200})")
            else:
                for report in reports:
                    self._report(f"model {self.name}: {report}")
                self._refused |= refused
                return reply

    async def _ask(self, request: ChatRequest, fields: dict[str, Any]) -> ChatReply:
        """Make one request and join the parts of the reply."""
        started = time.monotonic()
        texts: list[str] = []
        end = usage = Part()
        is_thought = is_refusal = False
        async for part in self._parts(request, fields):
            texts.append(part.text)
            end = part if part.reason else end
            usage = usage if part.prompt_tokens is None else part
            is_thought |= part.is_thought
            is_refusal |= part.is_refusal
        if end.reason is None:
            raise TransientError("the reply broke off before its end")
        text, reason, seconds = "".join(texts), self._printable(end.reason), round(time.monotonic() - started, 3)
        if not text.strip() and reason == "stop" and (is_refusal or is_thought):
            reason = REFUSAL if is_refusal else REASONING
        read, written, cached = usage.prompt_tokens, usage.output_tokens, usage.cached_tokens
        if not _is_count(read) or not _is_count(written) or (request.adaptable and not read):
            if request.adaptable:
                read = sum(usual_tokens(message.content) for message in request.messages)
                return ChatReply(text, read, usual_tokens(text), reason, seconds, estimated=True)
            reported = printable_line(f"{read!r} tokens read and {written!r} written")
            raise ServerFaultError(f"the server reports {reported}: without them the token limit cannot be kept")
        cached = min(cached, read) if request.adaptable and _is_count(cached) else None
        return ChatReply(text, read, written, reason, seconds, cached)

    def _retried(
        self, ask: Callable[[], Awaitable[_Answer]], started: float, seconds: float, requests: int = REQUESTS
    ) -> _Answer:
        """Return the first answer to some requests, in so many seconds after a time of the monotonic clock.

        Raises ServerFaultError if all requests failed, and LlmError if no server listens.
        """
        number, deadline = 1, started + seconds
        while True:
            try:
                return self._exchanged(ask, deadline)
            except TransientError as error:
                wait = max(PAUSE * 2 ** (number - 1), error.wait)
                if number == requests or time.monotonic() + wait >= deadline:
                    if error.advice:
                        raise LlmError(f"{error}. {error.advice}") from error
                    asked = f"{count(number, 'request')} in {seconds:g} s"
                    raise ServerFaultError(f"model {self.name}: {error}; no usable reply to {asked}") from error
                self._report(f"model {self.name}, server {self.address}: {error}; trying again in {wait:g} s")
            time.sleep(wait)
            number += 1

    def _exchanged(self, ask: Callable[[], Awaitable[_Answer]], deadline: float) -> _Answer:
        """Run one exchange on the event loop; raises TransientError for a failure that another one may not meet."""

        async def exchange() -> _Answer:
            async with asyncio.timeout(deadline - time.monotonic()):
                try:
                    return await ask()
                except self._client_errors as error:  # without a cause, the server reports it in the middle of a stream
                    failure = TransientError(f"the server failed ({self._printable(error)})")
                    raise (error.__cause__ or error.__context__ or failure) from None

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
            text = f"no {self._interface} server answers at {self.address} ({reason})"
            raise TransientError(text, advice=self._start_advice) from error
        except httpx.RequestError as error:
            raise TransientError(f"the exchange broke off ({type(error).__name__})") from error
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError, AssertionError) as error:
            # the clients do not check the shape of an answer: JSON of another shape raises these in them
            raise TransientError(f"the answer does not follow {self._interface}'s interface") from error

    def _http_settings(self) -> dict[str, Any]:
        """Return the settings of the httpx client, with which `_check_answer` sees every answer first."""
        return {
            "timeout": _TIMEOUT,
            "limits": _CONNECTIONS,
            "verify": _certificates(),
            "trust_env": False,  # no proxy
            "headers": {"accept-encoding": "identity"},
            "event_hooks": {"response": [self._check_answer]},
        }

    async def _check_answer(self, response: httpx.Response) -> None:
        """Bound an answer in size and silence, and raise what an error status means."""
        if "content-encoding" in response.headers:  # a few compressed bytes could unfold to gigabytes
            raise httpx.RemoteProtocolError("the answer is compressed although that was not asked for")
        response.request.extensions["timeout"]["read"] = SILENCE  # httpcore reads it again where the body begins
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - as all of an asynchronous client
        response.stream = _LimitedStream(response.stream)
        if not (response.is_success or response.has_redirect_location):
            await response.aread()
            raise self._status_error(response)

    def _status_error(self, response: httpx.Response) -> Exception:
        """Return what an error status means for the call, or for all calls."""
        status = response.status_code
        body = self._printable(response.content.decode(errors="replace"), _SEARCHED)  # whatever charset it claims
        try:
            error = response.json()["error"]
        except (ValueError, TypeError, LookupError, RecursionError):
            error = body
        facts = error if isinstance(error, dict) else {"message": error}
        text = f"{status}: {self._printable(facts.get('message') or body)}"
        if status in _NOT_OFFERED:
            return self._missing_model(text)
        if status in {401, 402, 403} or facts.get("code") == "insufficient_quota":
            advice = f"Check {self._key_variable} and what is left on its account"
            return LlmError(f"{self.address} refuses access ({text}). {advice}; finished trials stay.")
        if _TOO_LONG.search(body) and 400 <= status < 500 and status != 429:
            size = _CONTEXT_SIZE.search(body)
            message = f"model {self.name}: the prompt is too long ({body:.300})"
            return ContextExceededError(message, int(size[1]) if size else None)
        if 400 <= status < 500 and status not in {408, 409, 425, 429}:
            message = f"model {self.name}: the server refused the request ({text})"
            return RefusedError(message, facts.get("param"), body)
        wait = response.headers.get("retry-after", "")
        if re.fullmatch(r"[0-9]{1,9}", wait):
            return TransientError(f"the server failed ({text}) and asks to wait {wait} s", float(wait))
        return TransientError(f"the server failed ({text})")

    def _missing_model(self, detail: str) -> MissingModelError:
        advice = self._missing_advice.format(self.name)
        return MissingModelError(f"model {self.name} is not at {self.address} ({detail}). {advice}")

    def _printable(self, text: object, limit: int = 300) -> str:
        """Bring foreign text to one line of bounded length."""
        return printable_line(str(text), limit)


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


async def parts_of(answer: Any) -> AsyncIterator[Any]:
    """Yield the parts of a streamed answer, or one that is not streamed as its only part."""
    if isinstance(answer, AsyncIterable):
        async for part in answer:
            yield part
    else:
        yield answer


def _is_count(tokens: object) -> TypeGuard[int]:
    return isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens <= MAX_COUNT


def _refused_field(error: RefusedError, sent: Collection[str]) -> str | None:
    """Return the field that a refusal names: as its `param`, in quotes, or else as a word."""
    if isinstance(error.param, str) and (name := error.param.split(".")[0]) in sent:
        return name
    for pattern in (r"[\"'`\\]{}[\"'`\\.]", r"(?<![\w-]){}(?![\w-])"):
        if names := [name for name in sent if re.search(pattern.format(name), error.body)]:
            return min(names, key=error.body.find)
    return None
