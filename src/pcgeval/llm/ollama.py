"""The backend `ollama`: an Ollama server, asked through the official client."""

import os
import re
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import ollama

from pcgeval.formats.params import Model
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError, full_name
from pcgeval.llm.server import ModelServer, NoReply, ReplyPart, parts_of

# the client's list lacks one of the server's options; the effort is a field of the request
_OPTIONS = frozenset({*ollama.Options.model_fields, "min_p", "reasoning_effort"})
DEFAULT_HOST = "127.0.0.1:11434"
_DIGEST_SECONDS = 5.0  # for the list of models after a reply


class OllamaServer(ModelServer):
    """One model on one Ollama server."""

    _interface = "Ollama"
    _key_variable = "OLLAMA_API_KEY"
    _start_advice = "Start one with `ollama serve`, or name one: --host, OLLAMA_HOST, or `host` in params.yaml."
    _missing_advice = "Get it with `ollama pull {}`."
    _schema_field = "format"
    _client_errors = (ollama.ResponseError, ConnectionError)

    def __init__(self, model: Model, report: Callable[[str], None]) -> None:
        """Open the client; the host is OLLAMA_HOST or 127.0.0.1:11434 where the model names none. Raises LlmError."""
        self._model = model
        super().__init__(model.name, model.host or os.environ.get("OLLAMA_HOST") or DEFAULT_HOST, report)
        if unknown := sorted(set(model.options) - _OPTIONS):  # the server would silently ignore it
            known = ", ".join(sorted(_OPTIONS))
            raise LlmError(f"model {model.name}: Ollama has no option {unknown[0]!r}. Use some of {known}.")

    def _new_client(self, address: str) -> ollama.AsyncClient:
        return ollama.AsyncClient(address, **self._http_settings())

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer as any server; raise LlmError if it has other bytes under the model's name after the reply."""
        reply = super().chat(request, timeout)
        if request.digest:
            with suppress(NoReply):  # whether the server is away is seen at the next call
                digest = self._exchanged(self._listed_digest, time.monotonic() + _DIGEST_SECONDS)
                if digest != request.digest:
                    change = f"has the digest {digest} now, and had {request.digest} before"
                    raise LlmError(f"model {self.name}: {self.address} {change}. Give it the former, then run again.")
        return reply

    async def _listed_digest(self) -> str:
        models = [model for model in (await self._client.list()).models if model.model]
        for model in models:
            if full_name(model.model or "") == full_name(self.name):
                if digest := re.fullmatch(r"(?:sha256:)?([0-9a-f]{64})", (model.digest or "").lower()):
                    return digest[1]
                shown = self._printable(model.digest)
                raise LlmError(f"model {self.name}: {self.address} names no SHA-256 ({shown}). Update the server.")
        raise self._missing_model([model.model or "" for model in models])

    def _fields(self, request: ChatRequest, refused: Collection[str]) -> dict[str, Any]:
        return {} if request.schema is None or "format" in refused else {"format": request.schema}

    def _names(self, request: ChatRequest, fields: Collection[str]) -> dict[str, str]:
        names = {name: name for name in (*request.options, *fields)}
        if "reasoning_effort" in names:
            names["think"] = names.pop("reasoning_effort")
        if self._model.keep_alive is not None:
            names["keep_alive"] = "keep_alive"
        return names | {"stream": "stream", "model": "name"}

    async def _parts(self, request: ChatRequest, fields: dict[str, Any]) -> AsyncIterator[ReplyPart]:
        # the server takes a list of stop words only
        options = {name: [value] if name == "stop" else value for name, value in request.options.items()}
        answer = await self._client.chat(
            request.model,
            [asdict(message) for message in request.messages],
            think=options.pop("reasoning_effort", None),
            stream=self._model.stream,
            options=options,
            keep_alive=self._model.keep_alive,
            **fields,
        )
        async for part in parts_of(answer):
            yield ReplyPart(
                part.message.content or "",
                (part.done_reason or "unknown") if part.done else None,
                part.prompt_eval_count,
                part.eval_count,
                is_thought=bool(part.message.thinking),
                model=part.model,
            )
