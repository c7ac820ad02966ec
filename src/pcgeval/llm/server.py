"""One model at an HTTP server: bounded exchanges, and adaptation of a judge's requests to what the server refuses.

All clients run on one event loop in a background thread, so that every thread uses the same open connections, and a
deadline also ends an answer that drips.
"""

import asyncio
import functools
import json
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import httpx

from pcgeval.core.text import listed, printable_line
from pcgeval.llm.blame import REFUSAL, Answer, Sent, advice_on, is_count, verdict_on
from pcgeval.llm.protocol import BlameVerdict, CallError, ChatReply, ChatRequest, LlmError, usual_tokens

PAUSE = 1.0  # seconds after the first request for the list of models that fails; doubles each time
SILENCE = 60.0  # seconds without a byte after which a reply that has begun counts as broken off
REPLY_LIMIT = 32 * 2**20  # bytes on the wire; a streamed reply of 25 000 tokens has about 5 MB
_BODY_LIMIT = 20_000  # characters of an error's body that are read
_TIMEOUT = httpx.Timeout(None, connect=10.0)  # seconds; the deadline bounds the rest, as loading a model takes minutes
# servers close a connection after 5 idle seconds (llama.cpp, uvicorn, Node); the client closes it first
_CONNECTIONS = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=2.0)
_LIST_SECONDS, _LIST_REQUESTS = 15.0, 3  # for the server's list of models: a person waits for it
_MOST_NAMED = 20  # models of a server
_SECRET_LENGTH = 16  # characters from which a key is no word
_CLOSED = "disconnected without sending a response"
_certificates = functools.cache(httpx.create_ssl_context)  # reading them takes a tenth of a second
_Answer = TypeVar("_Answer")
_LOOP = asyncio.new_event_loop()
threading.Thread(target=_LOOP.run_forever, name="model servers", daemon=True).start()


class NoReply(Exception):  # noqa: N818 - an answer that is no reply
    """An exchange ended without a whole reply."""

    def __init__(self, answer: Answer) -> None:
        """Keep what came back instead."""
        super().__init__(answer.trouble)
        self.answer = answer


@dataclass(frozen=True)
class ReplyPart:
    """One part of a streamed reply, or a whole reply; names and token counts are as the server reports them."""

    text: str = ""
    reason: str | None = None  # why the reply ended
    prompt_tokens: object = None
    output_tokens: object = None
    cached_tokens: object = None
    is_thought: bool = False
    is_refusal: bool = False
    model: str | None = None  # as the answering model calls itself
    fingerprint: str | None = None


class ModelServer(ABC):
    """One model at one HTTP server: a backend, usable from several threads."""

    _interface: ClassVar[str]
    _key_variable: ClassVar[str]
    _start_advice: ClassVar[str]
    _missing_advice: ClassVar[str]
    _schema_field: ClassVar[str]
    _says_model: ClassVar[bool] = True  # whether the answering model's name means anything
    _client_errors: ClassVar[tuple[type[Exception], ...]]  # in which the client wraps errors

    def __init__(self, name: str, address: str, report: Callable[[str], None]) -> None:
        """Open the client for a model at an address; `open_backend` describes the rest. Raises LlmError."""
        self.name, self.address = name, address
        self._report = report
        self._refused: frozenset[str] = frozenset()  # fields that the server does not take
        self._answering: str | None = None  # how the answering model calls itself
        try:
            self._client: Any = self._new_client(address)
        except (ValueError, httpx.InvalidURL) as error:
            raise LlmError(
                f"{address!r} is not a valid server address ({error}). Write it like http://127.0.0.1:11434."
            ) from error

    @abstractmethod
    def _new_client(self, address: str) -> Any:
        """Return the client; raises ValueError or InvalidURL."""

    @abstractmethod
    async def _listed_digest(self) -> str:
        """Return the model's digest, after the server has listed the model if it lists any."""

    @abstractmethod
    def _fields(self, request: ChatRequest, refused: Collection[str]) -> dict[str, Any]:
        """Return the fields of a request's body that can be left out, or sent under another name, if refused."""

    @abstractmethod
    def _names(self, request: ChatRequest, fields: Collection[str]) -> dict[str, str]:
        """Return the names in params.yaml of all fields and options that are sent, by the server's names."""

    @abstractmethod
    def _parts(self, request: ChatRequest, fields: dict[str, Any]) -> AsyncIterator[ReplyPart]:
        """Make one request with these fields and yield the parts of the reply."""

    def digest(self) -> str:
        """Return the digest that the server has for the model; raises LlmError without server or model."""
        started = time.monotonic()
        for number in range(_LIST_REQUESTS):
            try:
                return self._exchanged(self._listed_digest, started + _LIST_SECONDS)
            except NoReply as no_reply:
                answer = no_reply.answer
                if number + 1 < _LIST_REQUESTS:
                    time.sleep(PAUSE * 2**number)
        words = f"{answer.trouble or answer.status}: {self._printable(said_in(answer.body))}"
        advice = "Look at the server's log." if answer.status else self._start_advice
        raise LlmError(f"{self.address} has not listed its models, asked {_LIST_REQUESTS} times: {words}. {advice}")

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds; raises CallError for this call, or LlmError for all of them.

        An adaptable request is sent again without a field that the server refuses. Later calls omit that field as soon
        as the server has accepted a request without it: until then the refusal may mean something else.
        """
        deadline, refused, reports = time.monotonic() + timeout, self._refused, list[str]()
        while True:
            fields = self._fields(request, refused)
            try:
                reply = self._asked(request, fields, deadline)
            except CallError as error:
                if (name := self._to_omit(error, fields) if request.adaptable else None) is None:
                    raise
                refused |= {name}  # it is never sent again
                instead = self._fields(request, refused).keys() - fields.keys()
                change = f"is sent as {instead.pop()}" if instead else "is left out"
                reports.append(f"{self.address} does not take {name}; it {change} from now on ({error.words:.200})")
            else:
                for report in reports:
                    self._report(f"model {self.name}: {report}")
                self._refused |= refused
                return reply

    def _to_omit(self, error: CallError, fields: Collection[str]) -> str | None:
        """Return the field to leave out of an adaptable request that the server refused; None for none."""
        verdict = error.verdict
        if verdict is None:
            return None
        if verdict.sent_as in fields:
            return verdict.sent_as
        is_refused = verdict.blame in {"settings", "undecided"} and 400 <= (error.status or 0) < 500
        return self._schema_field if is_refused and self._schema_field in fields else None

    def _asked(self, request: ChatRequest, fields: dict[str, Any], deadline: float) -> ChatReply:
        """Make one exchange; raises CallError with the verdict on it, and LlmError for what stops every call."""
        answer, reply = Answer(), None
        try:
            reply, answer = self._exchanged(functools.partial(self._ask, request, fields), deadline)
        except NoReply as no_reply:
            answer = no_reply.answer
        names = self._names(request, fields)
        room = request.options.get("num_predict")
        has_room = isinstance(room, int) and room > 0 and not request.adaptable
        sent = Sent(request.model, names, int(room) if has_room and room else None)
        verdict = self._without_key_in(verdict_on(answer, sent), answer)
        if verdict.blame == "reply" and reply is not None:
            if not request.adaptable:  # a judge compares with the replies that it knows, too
                self._check_answering(reply.model)
            return reply
        words = self._printable(said_in(answer.body))
        text = f"model {self.name} at {self.address}: {verdict.reason}{f' ({words})' if words else ''}"
        is_certain = verdict.is_certain or not request.digest  # behind a neutral request stands no text of a team
        if verdict.blame == "settings" and is_certain and not (request.adaptable and verdict.sent_as in fields):
            raise LlmError(f"{text}. {self._advice(verdict, answer, request)}")
        raise CallError(text, verdict, answer.status, words or verdict.reason, answer.wait)

    def _advice(self, verdict: BlameVerdict, answer: Answer, request: ChatRequest) -> str:
        """Return what to do about a setting that a server refuses."""
        if verdict.field is None:
            return f"Check {self._key_variable} and what is left on its account; finished trials stay."
        if verdict.field == "name":
            if answer.model:
                return f"Name {self._without_key(answer.model)} in params.yaml if that is the right model."
            return self._missing_advice.format(self.name)
        return advice_on(verdict.field, request.options.get(verdict.field))

    def _check_answering(self, model: str | None) -> None:
        """Raise LlmError if another model answers than before."""
        self._answering = self._answering or model
        if model and model != self._answering:
            raise LlmError(
                f"model {self.name}: {self.address} answered as {self._answering} before and answers as {model} now. "
                "Name the right one, with its version, in params.yaml: otherwise the run mixes two models."
            )

    async def _ask(self, request: ChatRequest, fields: dict[str, Any]) -> tuple[ChatReply, Answer]:
        """Make one request, and return the reply and what the server says of it."""
        started = time.monotonic()
        texts: list[str] = []
        end = usage = names = ReplyPart()
        is_thought = is_refusal = False
        async for part in self._parts(request, fields):
            texts.append(part.text)
            end = part if part.reason else end
            usage = usage if part.prompt_tokens is None else part
            names = part if part.model else names
            is_thought |= part.is_thought
            is_refusal |= part.is_refusal
        text, seconds = "".join(texts), round(time.monotonic() - started, 3)
        if end.reason is None:
            raise NoReply(Answer(trouble="the reply broke off before its end"))
        reason = printable_line(end.reason)
        if not text.strip() and reason == "stop" and is_refusal:
            reason = REFUSAL
        read, written = usage.prompt_tokens, usage.output_tokens
        estimated = request.adaptable and not (is_count(read) and is_count(written) and read)
        if estimated:
            read = sum(usual_tokens(message.content) for message in request.messages)
            written = max(usual_tokens(text), 1)
        model = printable_line(names.model) if names.model and self._says_model else None
        answer = Answer(200, end=reason, prompt_tokens=read, output_tokens=written, model=model)
        cached = usage.cached_tokens
        reply = ChatReply(
            text,
            read if is_count(read) else 0,
            written if is_count(written) else 0,
            reason,
            seconds,
            cached_tokens=min(cached, read) if request.adaptable and is_count(cached) and is_count(read) else None,
            estimated=estimated or None,
            model=model and self._without_key(model),
            fingerprint=self._printable(names.fingerprint) if names.fingerprint else None,
            thoughts=True if is_thought and not text.strip() else None,
        )
        return reply, answer

    def _exchanged(self, ask: Callable[[], Awaitable[_Answer]], deadline: float) -> _Answer:
        """Run one exchange on the event loop; raises NoReply."""

        async def exchange() -> _Answer:
            async with asyncio.timeout(deadline - time.monotonic()):
                try:
                    return await self._unwrapped(ask)
                except httpx.RemoteProtocolError as error:
                    if _CLOSED not in str(error):
                        raise
                # the server closed a connection that was open since an earlier request
                return await self._unwrapped(ask)

        started, running = time.monotonic(), asyncio.run_coroutine_threadsafe(exchange(), _LOOP)
        try:
            return running.result()
        except KeyboardInterrupt:
            running.cancel()
            raise
        except TimeoutError as error:
            seconds = deadline - started
            raise NoReply(Answer(trouble=f"no whole answer came in {seconds:.0f} s")) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            reason = self._printable(error) or type(error).__name__
            trouble = f"no {self._interface} server answers"
            raise NoReply(Answer(body=f"{self.address}: {reason}", trouble=trouble)) from error
        except httpx.RequestError as error:
            raise NoReply(Answer(trouble=f"the exchange broke off ({type(error).__name__})")) from error
        except (ValueError, TypeError, AttributeError, LookupError, RecursionError, AssertionError) as error:
            # the clients do not check the shape of an answer: JSON of another shape raises these in them
            raise NoReply(Answer(trouble=f"the answer does not follow {self._interface}'s interface")) from error

    async def _unwrapped(self, ask: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Await an exchange, and raise what the client wrapped in its own errors."""
        try:
            return await ask()
        except self._client_errors as error:  # without a cause, the server reports it in the middle of a stream
            answer = Answer(body=str(error)[:_BODY_LIMIT], trouble="the server reported an error in its reply")
            raise (error.__cause__ or error.__context__ or NoReply(answer)) from None

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
        """Bound an answer in size and silence, and take an error status out of the client's hands."""
        if "content-encoding" in response.headers:  # a few compressed bytes could unfold to gigabytes
            raise httpx.RemoteProtocolError("the answer is compressed although that was not asked for")
        response.request.extensions["timeout"]["read"] = SILENCE  # httpcore reads it again where the body begins
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - as all of an asynchronous client
        response.stream = _LimitedStream(response.stream)
        if not (response.is_success or response.has_redirect_location):
            await response.aread()
            body = response.content.decode(errors="replace")[:_BODY_LIMIT]  # whatever its charset
            wait = response.headers.get("retry-after", "")
            seconds = float(wait) if re.fullmatch("[0-9]{1,9}", wait) else 0.0
            raise NoReply(Answer(response.status_code, body=body, wait=seconds))

    def _without_key_in(self, verdict: BlameVerdict, answer: Answer) -> BlameVerdict:
        """Return a verdict, which was reached on what the server really said, as records and messages show it."""
        failed = verdict.failure and replace(verdict.failure, detail=self._printable(answer.body))
        return replace(verdict, reason=self._without_key(verdict.reason), failure=failed)

    def _missing_model(self, names: Sequence[str]) -> LlmError:
        there = f"it has {listed(names, _MOST_NAMED) or 'none'}"
        return LlmError(
            f"model {self.name} is not at {self.address} ({there}). {self._missing_advice.format(self.name)}"
        )

    def _without_key(self, text: str) -> str:
        """Return foreign text without the key of the account, which some servers repeat."""
        if not (key := os.environ.get(self._key_variable)):
            return text
        # a dummy such as `x` or `token` stands in other words, too
        pattern = re.escape(key) if len(key) >= _SECRET_LENGTH else rf"(?<!\w){re.escape(key)}(?!\w)"
        return re.sub(pattern, "(the key)", text)

    def _printable(self, text: object) -> str:
        """Bring foreign text to one line of bounded length."""
        return printable_line(self._without_key(str(text)))


class _LimitedStream(httpx.AsyncByteStream):
    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received > REPLY_LIMIT:
                raise NoReply(Answer(trouble=f"the reply is longer than {REPLY_LIMIT // 2**20} MB"))
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


def said_in(body: str) -> str:
    """Return the message in the body of an error, or the whole body."""
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        return body
    for name in ("error", "message", "detail"):
        values = values.get(name, values) if isinstance(values, dict) else values
    return values if isinstance(values, str) else body
