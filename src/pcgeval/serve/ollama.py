"""Ollama's routes of `serve-local`: `/`, and `/api/version`, `tags`, `show`, `ps`, `chat` and `generate`."""

import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from pcgeval.core.untrusted import well_formed
from pcgeval.llm.llamacpp import CONTEXT, Completion, LlamaCpp, PromptTooLongError, message_bodies, sampling
from pcgeval.llm.protocol import Message
from pcgeval.serve.models import ModelFile, ModelManager
from pcgeval.serve.requests import AskBody, ChatBody, GenerateBody, Json, ShowBody, read_body, respond

_FOR_EVER = "9999-12-31T23:59:59Z"
_MARKERS = 16  # tokens that a chat template may put around a message, at most


class OllamaRoutes:
    """The endpoints over one model manager."""

    def __init__(self, manager: ModelManager) -> None:
        self._manager = manager
        self.routes = [
            Route("/", self._root),
            Route("/api/version", self._version),
            Route("/api/tags", self._tags),
            Route("/api/ps", self._running),
            Route("/api/show", self._show, methods=["POST"]),
            Route("/api/chat", self._chat, methods=["POST"]),
            Route("/api/generate", self._generate, methods=["POST"]),
        ]

    async def _root(self, _: Request) -> Response:
        return PlainTextResponse("Ollama is running")

    async def _version(self, _: Request) -> Response:
        return JSONResponse({"version": f"{version('pcgeval')}+serve-local"})

    async def _tags(self, _: Request) -> Response:
        return JSONResponse({"models": [_tag(file) for file in self._manager.files]})

    async def _running(self, _: Request) -> Response:
        loaded = self._manager.loaded
        if loaded is None:
            return JSONResponse({"models": []})
        entry = {**_tag(loaded.file), "expires_at": _FOR_EVER, "size_vram": 0, "context_length": loaded.context}
        del entry["modified_at"]
        return JSONResponse({"models": [entry]})

    async def _show(self, request: Request) -> Response:
        file = self._manager.find((await read_body(request, ShowBody)).wanted)
        info = dict(file.header)
        return JSONResponse(
            {
                "license": str(info.get("general.license", "")),
                "modelfile": f"FROM {file.path.name}\n",
                "parameters": "",
                "template": str(info.pop("tokenizer.chat_template", "")),
                "details": _details(file),
                "model_info": info,
                "capabilities": ["completion"],
                "modified_at": file.modified.isoformat(),
            }
        )

    async def _chat(self, request: Request) -> Response:
        body = await read_body(request, ChatBody)
        # a tool's message reaches the model through its template, like any other
        messages = tuple(Message(each.role, each.content) for each in body.messages)  # type: ignore[arg-type]
        return await self._answer(
            request, body, messages or None, lambda text: {"message": {"role": "assistant", "content": text}}
        )

    async def _generate(self, request: Request) -> Response:
        """Answer one user message, or with `raw` a prompt without a template."""
        body = await read_body(request, GenerateBody)
        system = (Message("system", body.system),) if body.system else ()
        prompt = body.prompt if body.raw else (*system, Message("user", body.prompt))
        return await self._answer(request, body, prompt if body.prompt else None, lambda text: {"response": text})

    async def _answer(
        self, request: Request, body: AskBody, prompt: tuple[Message, ...] | str | None, shape: Callable[[str], Json]
    ) -> Response:
        """Answer a prompt, streamed or whole; without one the model is only loaded, or unloaded."""
        file = self._manager.find(body.wanted)
        if prompt is None and body.keep_alive == 0:
            await self._manager.unload(file)
        values = self._values(file, body, prompt, shape)
        return await respond(request, values, stream=prompt is not None and body.stream)

    async def _values(
        self,
        file: ModelFile,
        body: AskBody,
        prompt: tuple[Message, ...] | str | None,
        shape: Callable[[str], Json],
    ) -> AsyncIterator[Json]:
        """Yield an answer's values; the last has the costs, in nanoseconds with waiting and loading included."""

        def value(text: str, **more: Any) -> Json:
            now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
            return {"model": body.wanted, "created_at": now, **shape(text), "done": False, **more}

        keep = body.keep_alive != 0
        if prompt is None and not keep:
            yield value("", done=True, done_reason="unload")
            return
        started = time.monotonic_ns()
        async with self._manager.borrow(file, body.options.num_ctx or CONTEXT, keep=keep) as engine:
            loading = time.monotonic_ns() - started
            if prompt is None:
                yield value("", done=True, done_reason="load")
                return
            async for part in complete(engine, body, prompt):
                if isinstance(part, Completion):
                    completion = part
                elif body.stream:
                    yield value(part)
        yield value(
            "" if body.stream else completion.text,
            done=True,
            done_reason=completion.done_reason,
            total_duration=time.monotonic_ns() - started,
            load_duration=loading,
            prompt_eval_count=completion.prompt_tokens,
            prompt_eval_duration=round(completion.prompt_seconds * 1e9),
            eval_count=completion.output_tokens,
            eval_duration=round(completion.output_seconds * 1e9),
        )


async def complete(
    engine: LlamaCpp, body: AskBody, prompt: tuple[Message, ...] | str
) -> AsyncIterator[str | Completion]:
    """Ask the engine; a chat that is too long loses its oldest messages until it fits, unless `truncate` is false.

    Raises:
        PromptTooLongError: The system's messages and the last one are too long by themselves.
        CallError: llama.cpp refused the request.
    """
    fields = {**sampling(body.options.model_dump(exclude_none=True)), **body.response_format}
    if body.options.stop:
        fields["stop"] = list(body.options.stop)
    while True:
        asked = {"prompt": prompt} if isinstance(prompt, str) else {"messages": message_bodies(prompt)}
        try:
            async for part in engine.stream({**fields, **asked}):
                yield part
        except PromptTooLongError as error:
            shorter = prompt if isinstance(prompt, str) else _without_oldest(prompt, error.excess)
            if len(shorter) == len(prompt) or not body.truncate:
                raise
            prompt = shorter
        else:
            return


def _without_oldest(messages: tuple[Message, ...], excess: int) -> tuple[Message, ...]:
    """Drop the oldest messages but the system's and the last one: at least one, and none too many.

    A message holds no more tokens than its bytes and the markers around it. Dropping until the sum of these bounds is
    over the excess (in tokens) therefore never drops a message too many; what is still too long comes back here.
    """
    kept: list[Message] = []
    bound = 0
    for message in messages[:-1]:
        if message.role != "system" and bound <= excess:
            bound += len(well_formed(message.content).encode()) + _MARKERS
        else:
            kept.append(message)
    return (*kept, messages[-1])


def _tag(file: ModelFile) -> Json:
    """Return a model's entry in the list of models."""
    return {
        "name": file.name,
        "model": file.name,
        "modified_at": file.modified.isoformat(),
        "size": file.path.stat().st_size,
        "digest": file.digest,
        "details": _details(file),
    }


def _details(file: ModelFile) -> Json:
    from gguf.constants import LlamaFileType  # noqa: PLC0415 - an optional extra

    try:
        quantization = LlamaFileType(int(file.header["general.file_type"])).name.removeprefix("MOSTLY_")
    except (KeyError, ValueError):
        quantization = "unknown"
    return {
        "parent_model": "",
        "format": "gguf",
        "family": file.family,
        "families": [file.family],
        "parameter_size": str(file.header.get("general.size_label", "unknown")),
        "quantization_level": quantization,
    }
