"""The backend `ollama`: an Ollama server, asked through the official client."""

import difflib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import httpx
import ollama

from pcgeval.core.params import Model
from pcgeval.core.untrusted import listed
from pcgeval.llm.local_models import full_name
from pcgeval.llm.protocol import REASONING, ChatReply, ChatRequest, LlmError, OnText, Option
from pcgeval.llm.server import ModelServer, TransientError, finished_reply, http_settings, parts_of

_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
# the client's list lacks one of the server's; the effort is a field of the request
_OPTIONS = frozenset({*ollama.Options.model_fields, "min_p", "reasoning_effort"})
_MOST_NAMED = 10  # models of a server


class OllamaServer(ModelServer):
    """One model on one Ollama server."""

    _interface = "Ollama"
    _key_variable = "OLLAMA_API_KEY"
    _start_advice = (
        "Start one with `ollama serve`; another address goes into the model's `host` in params.yaml or into "
        "OLLAMA_HOST."
    )

    def __init__(self, model: Model, report: Callable[[str], None], on_text: OnText | None = None) -> None:
        """Open the client; the host is OLLAMA_HOST or 127.0.0.1:11434 where the model names none.

        Raises:
            LlmError: The host is no address, or Ollama has no such option.
        """
        address = model.host or os.environ.get("OLLAMA_HOST") or "127.0.0.1:11434"
        super().__init__(model.name, address, report, on_text)
        self._model = model
        _check_options(model.name, model.options)
        try:
            self._client = ollama.AsyncClient(address, **http_settings())
        except (ValueError, httpx.InvalidURL) as error:
            raise LlmError(
                f"host {address!r} is no address ({error}). Write it like http://127.0.0.1:11434."
            ) from error

    async def _listed_digest(self) -> str:
        with self._translated_errors():
            listing = await self._client.list()
        for model in listing.models:
            if model.model and full_name(model.model) == full_name(self.name):
                digest = _DIGEST.fullmatch((model.digest or "").lower())
                if digest is None:
                    raise LlmError(
                        f"model {self.name}: the server at {self.address} names no SHA-256 "
                        f"({self._printable(model.digest)}). Update the server."
                    )
                return digest[1]
        names = [model.model for model in listing.models if model.model]
        raise self._missing_model(f"it has {listed(names, _MOST_NAMED)}" if names else "it has none")

    async def _ask(self, request: ChatRequest) -> ChatReply:
        messages = [asdict(message) for message in request.messages]
        # the server takes a list of stop words only
        options = {name: [value] if name == "stop" else value for name, value in request.options.items()}
        effort = options.pop("reasoning_effort", None)
        started = time.monotonic()
        text: list[str] = []
        part: ollama.ChatResponse | None = None
        has_thought = False
        chat: Any = self._client.chat  # its overloads know no variable `stream`
        with self._translated_errors():
            answer = await chat(
                request.model,
                messages,
                think=effort,
                stream=self._model.stream,
                format=request.schema,
                options=options,
                keep_alive=self._model.keep_alive,
            )
            async for part in parts_of(answer):
                text.append(part.message.content or "")
                has_thought |= bool(part.message.thinking)
                if self._on_text and text[-1]:
                    self._on_text(text[-1])
        if part is None or not part.done:
            raise TransientError("the reply broke off before its end")
        whole, reason = "".join(text), self._printable(part.done_reason or "unknown")
        if has_thought and not whole.strip() and reason == "stop":
            reason = REASONING
        return finished_reply(request, whole, reason, started, part.prompt_eval_count, part.eval_count)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        try:
            yield
        except ollama.ResponseError as error:
            cause = error.__context__  # the client hides it
            wait = cause.response.headers.get("retry-after", "") if isinstance(cause, httpx.HTTPStatusError) else ""
            raise self._status_error(error.status_code, error.error, wait) from error
        except ConnectionError as error:
            raise error.__context__ or error  # noqa: B904 - the client hides it, too

    def _missing_model(self, detail: str) -> LlmError:
        return LlmError(
            f"model {self.name} is not on the server at {self.address} ({detail}). "
            f"Get it with `ollama pull {self.name}`."
        )


def _check_options(model: str, options: Mapping[str, Option]) -> None:
    """Refuse options that an Ollama server would silently ignore."""
    for name in sorted(set(options) - _OPTIONS):
        close = difflib.get_close_matches(name, sorted(_OPTIONS), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Use some of {', '.join(sorted(_OPTIONS))}."
        raise LlmError(f"model {model}: Ollama has no option {name!r}. {hint}")
