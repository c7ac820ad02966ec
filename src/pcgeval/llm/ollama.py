"""The backend `ollama`: an Ollama server, asked through the official client."""

import difflib
import os
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, TypeVar

import httpx
import ollama

from pcgeval.core.untrusted import listed
from pcgeval.llm.http import TIMEOUT, BoundedTransport, HttpExchange, HttpServer, each_part
from pcgeval.llm.local_models import full_name
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, OnText, Option, ServerFaultError
from pcgeval.llm.retry import RetryPolicy, TransientError
from pcgeval.llm.tokens import usual_tokens

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
# the client's list lacks one of the server's; the effort is a field of the request
_OPTIONS = frozenset({*ollama.Options.model_fields, "min_p", "reasoning_effort"})
_MOST_NAMED = 10  # models of a server
_T = TypeVar("_T")


class OllamaServer(HttpServer):
    """One model on one Ollama server; may be used from several threads."""

    _interface = "Ollama"
    _key_variable = "OLLAMA_API_KEY"
    _start_advice = (
        "Start one with `ollama serve`; another address goes into the model's `host` in params.yaml or into "
        "OLLAMA_HOST."
    )

    def __init__(
        self,
        name: str,
        host: str | None = None,
        *,
        stream: bool = True,
        keep_alive: str | int | None = None,
        silence: float = RetryPolicy.silence,
        on_text: OnText | None = None,
    ) -> None:
        """Name a model and a server; the host is OLLAMA_HOST or 127.0.0.1:11434 where none is given.

        Args:
            name: The model.
            host: The server's address.
            stream: Whether replies come word by word; without it a stall shows only when time is up.
            keep_alive: How long the server keeps the model in memory, in Ollama's format; None: as the server is set.
            silence: Seconds without a byte after which a reply that has begun counts as broken off.
            on_text: Is given each piece of a reply as it comes.

        Raises:
            LlmError: The host is no address.
        """
        address = host or os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        super().__init__(name, address, stream=stream, silence=silence)
        self._keep_alive, self._on_text = keep_alive, on_text
        try:
            self._client = ollama.AsyncClient(address, transport=BoundedTransport(silence), timeout=TIMEOUT)
        except (ValueError, httpx.InvalidURL) as error:
            raise LlmError(
                f"host {address!r} is no address ({error}). Write it like http://127.0.0.1:11434."
            ) from error

    def digest(self, deadline: float) -> str:
        """Return the SHA-256 that the server's list of models has for this one.

        Raises:
            LlmError: No such model, or no digest; the message says what to run.
            TransientError: No list, this time.
        """
        try:
            listing = self._asked(deadline, self._client.list)
        except CallError as error:
            raise TransientError(str(error)) from error
        for model in listing.models:
            if model.model and full_name(model.model) == full_name(self.name):
                found = _DIGEST.fullmatch((model.digest or "").lower())
                if found is None:
                    raise LlmError(
                        f"model {self.name}: the server at {self.address} names no SHA-256 ({model.digest!r}). "
                        "Update the server."
                    )
                return found[1]
        names = [model.model for model in listing.models if model.model]
        raise self._missing_model(f"it has {listed(names, _MOST_NAMED)}" if names else "it has none")

    def ask(self, request: ChatRequest, deadline: float) -> ChatReply:
        """Return the model's reply.

        Raises:
            CallError: The server refused this request, or the reply is not usable.
            LlmError: The server does not have the model.
            TransientError: The request failed in a way that another may not.
        """
        return self._asked(deadline, lambda: self._chat(request))

    async def _chat(self, request: ChatRequest) -> ChatReply:
        messages = [asdict(message) for message in request.messages]
        # the server takes a list of stop words only
        options = {name: [value] if name == "stop" else value for name, value in request.options.items()}
        fields: dict[str, Any] = {"keep_alive": self._keep_alive}
        if effort := options.pop("reasoning_effort", None):
            fields["think"] = effort
        fields["options"] = options
        if request.schema is not None:
            fields["format"] = request.schema
        started = time.monotonic()
        text: list[str] = []
        part: ollama.ChatResponse | None = None
        chat: Any = self._client.chat
        async for part in each_part(await chat(request.model, messages, **fields, stream=self._stream)):
            text.append(part.message.content or "")
            if self._on_text and text[-1]:
                self._on_text(text[-1])
        if part is None or not part.done:
            raise TransientError("the reply broke off before its end")
        reply = ChatReply(
            text="".join(text),
            prompt_tokens=max(part.prompt_eval_count or 0, 0),
            output_tokens=max(part.eval_count or 0, 0),
            done_reason=part.done_reason or "unknown",
            seconds=round(time.monotonic() - started, 3),
        )
        for name, count in (("prompt_eval_count", part.prompt_eval_count), ("eval_count", part.eval_count)):
            if (count is None or count < 0) and not request.adaptable:
                raise ServerFaultError(f"the server reports {name} {count}: without it the token limit cannot be kept")
        if request.adaptable and not (reply.prompt_tokens and reply.output_tokens):
            read = sum(usual_tokens(message.content) for message in request.messages)
            return replace(reply, prompt_tokens=read, output_tokens=usual_tokens(reply.text), estimated=True)
        return reply

    def _asked(self, deadline: float, work: Callable[[], Awaitable[_T]]) -> _T:
        async def answered(exchange: HttpExchange) -> _T:
            try:
                return await work()
            except ollama.ResponseError as error:
                raise self._status_error(error.status_code, error.error, exchange.retry_after) from error

        return self._run(deadline, answered)

    def _missing_model(self, detail: str) -> LlmError:
        return LlmError(
            f"model {self.name} is not on the server at {self.address} ({detail}). "
            f"Get it with `ollama pull {self.name}`."
        )


def check_options(model: str, options: Mapping[str, Option]) -> None:
    """Refuse options that an Ollama server would silently ignore; raises LlmError."""
    for name in sorted(set(options) - _OPTIONS):
        close = difflib.get_close_matches(name, sorted(_OPTIONS), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Use some of {', '.join(sorted(_OPTIONS))}."
        raise LlmError(f"model {model}: Ollama has no option {name!r}. {hint}")
