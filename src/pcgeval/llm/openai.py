"""The backend `openai`: any endpoint with OpenAI's chat completions (LM Studio, vLLM, ...), asked through the client.

Such an endpoint shows no digest of its model, so what a record carries pins the model's name and says so (UNPINNED).
What can be seen is watched: an endpoint that answers as another model in the middle of a run stops it, and a changed
`system_fingerprint` is reported. The key comes from OPENAI_API_KEY alone and is removed from all messages.

Options have Ollama's names. Those that the interface has itself are renamed or taken as they are. What only the
server's own settings can decide is refused. Any other name goes into the body as it stands: vLLM, LM Studio and
llama.cpp read `top_k`, `min_p` and more there, each under the names of its own manual.
"""

import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import httpx

from pcgeval.core.console import print_stderr
from pcgeval.core.packages import packages_for
from pcgeval.llm.http import TIMEOUT, BoundedTransport, HttpServer, each_part
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Option, ServerFaultError, unpinned_digest
from pcgeval.llm.retry import RetryPolicy, TransientError
from pcgeval.llm.schemas import checked_schema

with packages_for("the backend openai"):
    import openai

_NO_KEY = "none"  # servers of one's own ask for none, but the client insists on sending one
_SHOWN = 20  # models that a message names
_T = TypeVar("_T")
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
    ) -> None:
        """Name a model, by its id in the endpoint's list, and an endpoint, whose URL ends in /v1 as a rule.

        Args:
            name: The model.
            base_url: The endpoint.
            stream: Whether replies come word by word; without it a stall shows only when time is up.
            silence: Seconds without a byte after which a reply that has begun counts as broken off.
            report: Is told when the endpoint changes.

        Raises:
            LlmError: The endpoint is no URL.
        """
        super().__init__(name, base_url, stream=stream, silence=silence)
        self._key = os.environ.get("OPENAI_API_KEY") or _NO_KEY
        self._report = report
        self._lock = threading.Lock()
        self._first_answer: _Answer | None = None
        self._fingerprint = ""
        try:
            httpx.URL(base_url)
        except httpx.InvalidURL as error:
            raise LlmError(
                f"base_url {base_url!r} is no URL ({error}). Write it like http://127.0.0.1:1234/v1."
            ) from error

    def digest(self, deadline: float) -> str:
        """Return the digest that pins the model's name alone, once the endpoint has listed the model, if it lists any.

        Raises:
            LlmError: The endpoint lists other models only, or refuses access.
            TransientError: No list, this time.
        """
        try:
            listed = self._with_client(deadline, _model_names)
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
        answer = self._with_client(deadline, lambda client: self._chat(client, request))
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

    async def _chat(self, client: openai.AsyncOpenAI, request: ChatRequest) -> _Answer:
        fields: dict[str, Any] = {
            "model": request.model,
            "messages": [asdict(message) for message in request.messages],
            **wire_fields(request.model, request.options),
        }
        if request.schema is not None:
            form = {"name": "reply", "schema": checked_schema(request.schema), "strict": True}
            fields["response_format"] = {"type": "json_schema", "json_schema": form}
        create: Any = client.chat.completions.create
        started = time.monotonic()
        if self._stream:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        return await _joined(await create(**fields), started)

    def _with_client(self, deadline: float, work: Callable[[openai.AsyncOpenAI], Awaitable[_T]]) -> _T:
        async def exchange(transport: BoundedTransport) -> _T:
            http: Any = httpx.AsyncClient(transport=transport, timeout=TIMEOUT, follow_redirects=True)
            try:
                async with openai.AsyncOpenAI(
                    api_key=self._key, base_url=self.address, http_client=http, max_retries=0
                ) as client:
                    return await work(client)
            except openai.APIStatusError as error:
                body = error.body
                detail = body.get("message") if isinstance(body, Mapping) else body
                raise self._status_error(
                    error.status_code, detail or error.message, transport.retry_after, error.code
                ) from error
            except openai.APIConnectionError as error:
                raise error.__cause__ or error  # noqa: B904 - a new cause would hide the one that it has
            except openai.APIError as error:  # in the middle of a stream
                raise self._status_error(-1, error.message, None) from error

        return self._exchange(deadline, exchange)

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


async def _joined(parts: Any, started: float) -> _Answer:
    """Join a reply's parts, or take a whole one; endpoints leave out what the client's types promise."""
    text: list[str] = []
    reason = usage = model = fingerprint = None
    async for part in each_part(parts):
        for choice in getattr(part, "choices", None) or ():
            text.append((choice.delta if hasattr(choice, "delta") else choice.message).content or "")
            reason = choice.finish_reason or reason
        usage = getattr(part, "usage", None) or usage
        model = getattr(part, "model", None) or model
        fingerprint = getattr(part, "system_fingerprint", None) or fingerprint
    if reason is None:
        raise TransientError("the reply broke off before its end")
    if usage is None:
        raise ServerFaultError("the endpoint reports no usage: without it the token limit cannot be kept")
    return _Answer(
        ChatReply(
            text="".join(text),
            prompt_tokens=_count(usage.prompt_tokens),
            output_tokens=_count(usage.completion_tokens),
            done_reason=str(reason),
            seconds=round(time.monotonic() - started, 3),
        ),
        str(model),
        str(fingerprint or ""),
    )


def _count(tokens: object) -> int:
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise ServerFaultError(f"the endpoint reports a usage of {tokens!r} tokens: the token limit cannot be kept")
    return tokens


def wire_fields(model: str, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the client's arguments for a request's options.

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
    if most <= 0:
        del fields["max_tokens"]  # Ollama's ways to say "until the model stops"; here that is said by silence
    return {**fields, "extra_body": {name: options[name] for name in options if name not in _RENAMED}}
