"""The backend `openai`: any endpoint with OpenAI's chat completions (LM Studio, vLLM, ...), asked through the client.

Such an endpoint shows no digest of its model, so what a record carries pins the model's name and says so (UNPINNED).
What can be seen is watched: an endpoint that answers as another model in the middle of a run stops it, and a changed
`system_fingerprint` is reported. The key comes from OPENAI_API_KEY alone and is removed from all messages.

Options have Ollama's names. Those that the interface has itself are renamed or taken as they are. What only the
server's own settings can decide is refused. Any other name goes into the body as it stands: vLLM, LM Studio and
llama.cpp read `top_k`, `min_p` and more there, each under the names of its own manual.
"""

import json
import os
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import httpx

from pcgeval.core.console import print_stderr
from pcgeval.core.packages import packages_for
from pcgeval.core.profiles import TOKEN_FIELDS
from pcgeval.llm.http import TIMEOUT, BoundedTransport, HttpExchange, HttpServer, each_part
from pcgeval.llm.protocol import (
    CallError,
    ChatReply,
    ChatRequest,
    ContextExceededError,
    LlmError,
    OnText,
    Option,
    ServerFaultError,
    unpinned_digest,
)
from pcgeval.llm.retry import RetryPolicy, TransientError
from pcgeval.llm.tokens import usual_tokens

with packages_for("the backend openai"):
    import openai
    from openai.types.chat import ChatCompletion

_NO_KEY = "none"  # servers of one's own ask for none, but the client insists on sending one
_SHOWN = 20  # models that a message names
_T = TypeVar("_T")
_TOO_LONG = re.compile(
    r"context_length_exceeded|(?:maximum|max|exceeds?|available|model's) (?:the )?(?:model's )?(?:maximum )?context"
    r"|prompt is too long|too many tokens|reduce the length",
    re.IGNORECASE,
)
_CONTEXT_SIZE = re.compile(r"(?:context[^.0-9]{0,60}?|n_ctx\D{0,5})([0-9]{4,8})", re.IGNORECASE)
_RENAMED = {
    "temperature": "temperature",
    "top_p": "top_p",
    "seed": "seed",
    "num_predict": "max_tokens",
    "stop": "stop",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
# how Ollama loads a model: an endpoint of this kind has loaded its own already
_LOADING = frozenset(
    {
        *("num_ctx", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "vocab_only"),
        *("use_mmap", "use_mlock", "num_thread", "num_keep", "numa"),
    }
)
# what this program says itself, and what would change the shape of the answer
_RESERVED = frozenset(
    {
        *("model", "messages", "stream", "stream_options", "n", "tools", "tool_choice", "functions", "logprobs"),
        *("max_tokens", "max_completion_tokens", "response_format"),
    }
)


@dataclass(frozen=True)
class _Answer:
    """A reply, and what the endpoint said of the model that gave it."""

    reply: ChatReply
    model: str
    fingerprint: str


class OpenAiServer(HttpServer):
    """One model at one endpoint; may be used from several threads."""

    _interface = "OpenAI"
    _key_variable = "OPENAI_API_KEY"
    _start_advice = "Start the server of this model, or correct the model's `base_url` in params.yaml."

    def __init__(
        self,
        name: str,
        base_url: str,
        *,
        stream: bool = True,
        silence: float = RetryPolicy.silence,
        report: Callable[[str], None] = print_stderr,
        limit_field: str | None = "max_tokens",
        structured_output: str | None = "json_schema",
        on_text: OnText | None = None,
    ) -> None:
        """Name a model, by its id in the endpoint's list, and an endpoint, whose URL ends in /v1 as a rule.

        Args:
            name: The model.
            base_url: The endpoint.
            limit_field: The name of the field that bounds an answer; None: it is not bounded.
            structured_output: The type of `response_format` for a reply in JSON; None: none is sent.
            stream: Whether replies come word by word; without it a stall shows only when time is up.
            silence: Seconds without a byte after which a reply that has begun counts as broken off.
            report: Is told when the endpoint changes.
            on_text: Is given each piece of a reply as it comes.

        Raises:
            LlmError: The endpoint is no URL.
        """
        super().__init__(name, base_url, stream=stream, silence=silence)
        self._key = os.environ.get("OPENAI_API_KEY") or _NO_KEY
        self._report, self._on_text = report, on_text
        self._lock = threading.Lock()
        self._first_answer: _Answer | None = None
        self._fingerprint = ""
        self._limit_field, self._structured_output = limit_field, structured_output
        self._refused: dict[str, str | None] = {}  # fields that the endpoint refused, and what is sent instead
        try:
            httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise LlmError(
                f"base_url {base_url!r} is no URL ({error}). Write it like http://127.0.0.1:1234/v1."
            ) from error
        http: Any = httpx.AsyncClient(transport=BoundedTransport(silence), timeout=TIMEOUT, follow_redirects=True)
        self._client = openai.AsyncOpenAI(api_key=self._key, base_url=base_url, http_client=http, max_retries=0)

    def digest(self, deadline: float) -> str:
        """Return the digest that pins the model's name alone, once the endpoint has listed the model, if it lists any.

        Raises:
            LlmError: The endpoint lists other models only, or refuses access.
            TransientError: No list, this time.
        """
        try:
            listed = self._asked(deadline, lambda: _model_names(self._client))
        except CallError as error:
            raise TransientError(str(error)) from error
        if listed is not None and self.name not in listed:
            raise self._missing_model("it is not in the endpoint's list", listed)
        return unpinned_digest(self.name)

    def ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Return the model's reply.

        Raises:
            CallError: The endpoint refused this request, or the reply is not usable.
            LlmError: The endpoint refuses access, has no such model, or answers as another one than before.
            TransientError: The request failed in a way that another may not.
        """
        answer = self._asked(deadline, lambda: self._chat(request))
        with self._lock:
            first = self._first_answer = self._first_answer or answer
            before, self._fingerprint = self._fingerprint, answer.fingerprint or self._fingerprint
        if answer.model != first.model:
            raise LlmError(
                f"model {self.name}: {self.address} answered as {first.model} before and answers as {answer.model} "
                "now. Name the one that is meant, with its version, in params.yaml: to go on would mix the two."
            )
        if before and answer.fingerprint and answer.fingerprint != before:
            self._report(
                f"model {self.name}: {self.address} has system_fingerprint {answer.fingerprint} now, {before} before: "
                "its model or settings may have changed"
            )
        return answer.reply

    async def _chat(self, request: ChatRequest) -> _Answer:
        messages = [asdict(message) for message in request.messages]
        fields = self._fields(request)
        create: Any = self._client.chat.completions.create
        started = time.monotonic()
        while True:
            sent = self._accepted(fields) if request.adaptable else fields
            try:
                # in `extra_body`, the client passes on what it does not know, and nothing that is absent
                answer = await create(
                    model=request.model, messages=messages, stream=sent.pop("stream", False), extra_body=sent
                )
            except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
                self._check_length(error)
                if not (request.adaptable and self._adapt(error, sent)):
                    raise
            else:
                break
        if isinstance(answer, openai.AsyncStream) and "json" in answer.response.headers.get("content-type", ""):
            # an endpoint that does not stream answers whole
            answer = ChatCompletion.construct(**json.loads(await answer.response.aread()))
        return await _joined(answer, started, request, self._on_text)

    def _fields(self, request: ChatRequest) -> dict[str, Any]:
        """Return the body's fields beside the model and the messages."""
        fields = wire_fields(request.model, request.options, self._limit_field)
        if request.schema is not None and self._structured_output == "json_schema":
            form = {"name": "reply", "schema": request.schema, "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
        elif request.schema is not None and self._structured_output is not None:
            fields["response_format"] = {"type": self._structured_output}
        if self._stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return fields

    def _accepted(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields without those that the endpoint refused before, or under the names that it takes."""
        with self._lock:
            refused = dict(self._refused)
        sent = {}
        for name, value in fields.items():
            found: str | None = name
            while found in refused:
                found = refused[found]
            if found is not None:
                sent[found] = value
        if "stream" not in sent:
            sent.pop("stream_options", None)
        return sent

    def _adapt(self, error: openai.APIStatusError, sent: Mapping[str, Any]) -> bool:
        """Remember the field that an endpoint refused; return whether there is one, so that asking again helps."""
        text = self._printable(error.response.text)
        name = _refused_field(error.param, text, [*sent, "stream"] if self._stream else list(sent))
        if name is None:
            return False
        with self._lock:
            if name in self._refused:  # by another thread, meanwhile
                return True
            tried = {*self._refused, *self._refused.values(), name}
            others = [each for each in TOKEN_FIELDS if each not in tried and (each in text or each != TOKEN_FIELDS[-1])]
            others.sort(key=lambda each: each not in text)
            instead = self._refused[name] = others[0] if name in TOKEN_FIELDS and others else None
        how = f"is sent as {instead}" if instead else "is left out"
        self._report(f"model {self.name}: {self.address} does not take {name}; it {how} from now on ({text:.200})")
        return True

    def _check_length(self, error: openai.APIStatusError) -> None:
        text = self._printable(error.response.text)
        if _TOO_LONG.search(text):
            size = _CONTEXT_SIZE.search(text)
            raise ContextExceededError(
                f"model {self.name}: the prompt is too long ({text:.300})", int(size[1]) if size else None
            ) from error

    def _asked(self, deadline: float, work: Callable[[], Awaitable[_T]]) -> _T:
        async def answered(exchange: HttpExchange) -> _T:
            try:
                return await work()
            except openai.APIStatusError as error:
                body = error.body
                detail = body.get("message") if isinstance(body, Mapping) else body
                raise self._status_error(
                    error.status_code, detail or error.message, exchange.retry_after, error.code
                ) from error
            except openai.APIConnectionError as error:
                raise error.__cause__ or error  # noqa: B904 - a new cause would hide the one that it has
            except openai.APIError as error:  # in the middle of a stream
                raise self._status_error(-1, error.message, None) from error

        return self._run(deadline, answered)

    def _missing_model(self, detail: str, listed: Iterable[str] = ()) -> LlmError:
        others = sorted(self._printable(name) for name in listed)[:_SHOWN]
        there = f" It has {', '.join(others)}." if others else ""
        return LlmError(
            f"model {self.name} is not at {self.address} ({detail}).{there} "
            "Load it there, or correct the model's `name` or `base_url` in params.yaml."
        )

    def _printable(self, text: object) -> str:
        """Bring foreign text to one line without the key, which some servers repeat."""
        return super()._printable(text if self._key == _NO_KEY else str(text).replace(self._key, "(the key)"))


async def _model_names(client: openai.AsyncOpenAI) -> list[str] | None:
    """Return the models that an endpoint lists; None for one that offers no list."""
    try:
        return [str(model.id) for model in (await client.models.list()).data]
    except openai.APIStatusError as error:
        if error.status_code in {404, 405, 501}:
            return None
        raise


async def _joined(parts: Any, started: float, request: ChatRequest, on_text: OnText | None) -> _Answer:
    """Join a reply's parts, or take a whole one; endpoints leave out what the client's types promise."""
    text: list[str] = []
    reason = usage = model = fingerprint = None
    async for part in each_part(parts):
        for choice in getattr(part, "choices", None) or ():
            text.append(_text((choice.delta if hasattr(choice, "delta") else choice.message).content))
            if on_text and text[-1]:
                on_text(text[-1])
            reason = choice.finish_reason or reason
        usage = getattr(part, "usage", None) or usage
        model = getattr(part, "model", None) or model
        fingerprint = getattr(part, "system_fingerprint", None) or fingerprint
    if reason is None:
        raise TransientError("the reply broke off before its end")
    whole, seconds = "".join(text), round(time.monotonic() - started, 3)
    if usage is None and not request.adaptable:
        raise ServerFaultError("the endpoint reports no usage: without it the token limit cannot be kept")
    try:
        counts = _count(usage.prompt_tokens), _count(usage.completion_tokens)  # type: ignore[union-attr]
    except (ServerFaultError, AttributeError):  # no usage, or one of another shape
        if not request.adaptable:
            raise
        read = sum(usual_tokens(message.content) for message in request.messages)
        reply = ChatReply(whole, read, usual_tokens(whole), str(reason), seconds, estimated=True)
    else:
        cached = _cached_tokens(usage) if request.adaptable else None
        reply = ChatReply(whole, *counts, str(reason), seconds, cached_tokens=cached and min(cached, counts[0]))
    return _Answer(reply, str(model), str(fingerprint or ""))


def _text(content: Any) -> str:
    """Return the text of a message's content: itself, or its parts that are no thoughts."""
    if isinstance(content, list):
        parts = [each for each in content if isinstance(each, Mapping) and each.get("type", "text") == "text"]
        return "".join(str(part.get("text") or "") for part in parts)
    return content or ""


def _cached_tokens(usage: Any) -> int | None:
    """Return how much of a prompt the endpoint had in its cache, as OpenAI and vLLM, or DeepSeek, report it."""
    details = getattr(usage, "prompt_tokens_details", None)
    for found in (getattr(details, "cached_tokens", None), getattr(usage, "prompt_cache_hit_tokens", None)):
        if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
            return found
    return None


def _refused_field(named: object, text: str, sent: Iterable[str]) -> str | None:
    """Return which of the fields that were sent a refusal names: as its `param`, in quotes, or else as a word."""
    found = [name for name in sent if isinstance(named, str) and named.split(".")[0] == name]
    found = found or [name for name in sent if re.search(rf"[\"'`\\]{name}[\"'`\\.]", text)]
    found = found or [name for name in sent if re.search(rf"(?<![\w-]){name}(?![\w-])", text)]
    return min(found, key=text.find) if found else None


def _count(tokens: object) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise ServerFaultError(f"the endpoint reports a usage of {tokens!r} tokens: the token limit cannot be kept")
    return tokens


def wire_fields(model: str, options: Mapping[str, Option], limit_field: str | None = "max_tokens") -> dict[str, Any]:
    """Return the fields of a request's body for its options; `limit_field` is the one that bounds the answer.

    Raises:
        LlmError: An option that such an endpoint cannot obey.
    """
    if loading := sorted(_LOADING & set(options)):
        raise LlmError(
            f"model {model}: the backend openai cannot pass on {loading[0]!r}: the endpoint loads its model itself. "
            "Set it there, and take it out of the model's options in params.yaml."
        )
    if reserved := sorted(_RESERVED & set(options)):
        hint = "num_predict" if "tokens" in reserved[0] else "something else"
        raise LlmError(f"model {model}: {reserved[0]!r} is not an option. Use {hint}.")
    fields = {name: options[ours] for ours, name in _RENAMED.items() if ours in options}
    most = fields.get("max_tokens", 1)
    if isinstance(most, bool) or not isinstance(most, int):
        raise LlmError(f"model {model}: num_predict is {most!r}. Set it to a number of tokens.")
    fields.pop("max_tokens", None)
    if "num_predict" in options and most > 0 and limit_field is not None:
        fields[limit_field] = most  # 0 and less are Ollama's ways to say "until the model stops": here it is silence
    return {**fields, **{name: options[name] for name in options if name not in _RENAMED}}
