"""llama.cpp in this process (extra `local-llm`): a GGUF file answers deterministically for a seed.

Options carry Ollama's names and Ollama's defaults, so that the same request means the same to either server. The number
of threads and the size of the context do not change a text; a cached prompt does, so the cache stays off.
"""

import json
import os
import threading
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from pcgeval.core.console import print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.core.packages import packages_for
from pcgeval.core.untrusted import well_formed
from pcgeval.llm.http import certificates, run_until
from pcgeval.llm.protocol import (
    CallError,
    ChatReply,
    ChatRequest,
    LlmError,
    Message,
    OnText,
    Option,
    RefusedError,
    ServerFaultError,
)
from pcgeval.llm.schemas import checked_schema

CONTEXT = 4096  # tokens; Ollama's default num_ctx
THREADS = min(os.cpu_count() or 1, 2)  # of llama.cpp: more are slower where another program holds a core
_HTTP_THREADS = 64  # calls that wait for their turn hold one each, and texts are to be counted meanwhile
_COUNTING = 300.0  # seconds; a text of a megabyte takes a few
# Ollama's documented defaults (its API reference, "Parameters"), under llama.cpp's names
_SAMPLING: dict[str, tuple[str, Option]] = {
    "temperature": ("temperature", 0.8),
    "top_k": ("top_k", 40),
    "top_p": ("top_p", 0.9),
    "min_p": ("min_p", 0.0),
    "repeat_penalty": ("repeat_penalty", 1.1),
    "repeat_last_n": ("repeat_last_n", 64),
    "presence_penalty": ("presence_penalty", 0.0),
    "frequency_penalty": ("frequency_penalty", 0.0),
    "num_predict": ("max_tokens", -1),
    "seed": ("seed", 0),
}
KNOWN_OPTIONS = frozenset({*_SAMPLING, "num_ctx", "stop"})


class PromptTooLongError(RefusedError):
    """The prompt has more tokens than the context holds."""

    def __init__(self, prompt_tokens: int, context: int) -> None:
        """Name both sizes, in tokens."""
        super().__init__(
            f"the input length exceeds the context length ({prompt_tokens} tokens, num_ctx {context}). "
            "Shorten the prompt, or raise num_ctx."
        )
        self.excess = prompt_tokens - context


@dataclass(frozen=True)
class Completion:
    """An answer of llama.cpp; `done_reason` is stop or length."""

    text: str
    prompt_tokens: int
    output_tokens: int
    done_reason: str
    prompt_seconds: float
    output_seconds: float
    cached_tokens: int = 0  # of the prompt's, which were not read again


class LlamaCpp:
    """One loaded GGUF model; llama.cpp answers calls from several threads one after another.

    It is asked at the port that it opens on 127.0.0.1.
    """

    def __init__(
        self, path: Path, *, context: int = CONTEXT, threads: int | None = None, on_text: OnText | None = None
    ) -> None:
        """Load a model; raises LlmError if the file or the llama.cpp package is missing."""
        if not path.is_file():
            raise LlmError(f"{path}: no such model file. Fetch it with `pcgeval models fetch`.")
        self.path = path
        self._digest: str | None = None
        self._on_text = on_text
        self._server: Any = _start(path, context, threads or THREADS)

    def close(self) -> None:
        """Free the model's memory; it cannot be asked any more."""
        self._server = None

    def digest(self) -> str:
        """Return the SHA-256 of the GGUF file."""
        self._digest = self._digest or sha256_file(self.path)
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer one request within `timeout` seconds, waiting for other calls included.

        The same request gives the same text.
        """
        started = time.monotonic()

        async def whole() -> Completion:
            part: str | Completion = ""
            async for part in self.stream(completion_body(request), reuse_prefix=request.adaptable):
                if self._on_text and isinstance(part, str):
                    self._on_text(part)
            assert isinstance(part, Completion)  # noqa: S101 - as `stream` promises
            return part

        try:
            found = run_until(started + timeout, whole)
        except TimeoutError as error:
            raise CallError(f"model {request.model}: no full reply within {timeout:g} s") from error
        except CallError as error:
            kind = RefusedError if isinstance(error, RefusedError) else ServerFaultError
            raise kind(f"model {request.model}: {error}") from error
        seconds = round(time.monotonic() - started, 3)
        cached = found.cached_tokens if request.adaptable else None
        return ChatReply(found.text, found.prompt_tokens, found.output_tokens, found.done_reason, seconds, cached)

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has within a message; raises LlmError if the model is closed."""
        body = {"content": well_formed(text), "add_special": False, "parse_special": True}
        try:
            answer = httpx.post(
                self._url("/tokenize"), json=body, timeout=_COUNTING, trust_env=False, verify=certificates()
            )
            return len(answer.json()["tokens"])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise LlmError(f"{self.path}: llama.cpp does not count tokens ({error!r}).") from error

    async def stream(self, body: Mapping[str, Any], *, reuse_prefix: bool = False) -> AsyncIterator[str | Completion]:
        """Yield the pieces of an answer to a body with `messages`, or with an untemplated `prompt`, then its whole.

        With `reuse_prefix`, what the prompt has in common with the one before is not read again; that may change a
        text.

        Raises:
            PromptTooLongError: The prompt does not fit.
            RefusedError: llama.cpp refused the body.
            ServerFaultError: It failed.
        """
        pieces: list[str] = []
        reason: str | None = None
        usage: Mapping[str, Any] = {}
        timings: Mapping[str, Any] = {}
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        async with self.post(path, asked, reuse_prefix=reuse_prefix) as answer:
            async for line in answer.aiter_lines():
                if not line.startswith("data: {"):
                    continue
                chunk = json.loads(line.removeprefix("data: "))
                if "error" in chunk:
                    raise _failure(chunk["error"])
                usage = chunk.get("usage") or usage
                timings = chunk.get("timings") or timings
                for choice in chunk["choices"]:
                    reason = choice["finish_reason"] or reason
                    if piece := choice["text"] if "text" in choice else choice["delta"].get("content"):
                        pieces.append(piece)
                        yield piece
        if reason is None or not usage:
            raise ServerFaultError("llama.cpp broke off its reply")
        yield Completion(
            text="".join(pieces),
            prompt_tokens=int(usage["prompt_tokens"]),
            output_tokens=int(usage["completion_tokens"]),
            done_reason=reason,
            prompt_seconds=timings.get("prompt_ms", 0.0) / 1000,
            output_seconds=timings.get("predicted_ms", 0.0) / 1000,
            cached_tokens=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
        )

    @asynccontextmanager
    async def post(
        self, path: str, body: Mapping[str, Any], *, reuse_prefix: bool = False
    ) -> AsyncIterator[httpx.Response]:
        """Post a body to llama.cpp; hanging up ends its work. The arguments and errors are those of `stream`."""
        content = json.dumps({**body, "cache_prompt": reuse_prefix})
        try:
            async with (
                httpx.AsyncClient(timeout=None, trust_env=False, verify=certificates()) as client,  # noqa: S113
                client.stream("POST", self._url(path), content=content) as answer,
            ):
                if answer.status_code != 200:
                    await answer.aread()
                    raise _failure(answer.json()["error"])
                yield answer
        except httpx.TransportError as error:
            raise ServerFaultError(f"llama.cpp broke off ({type(error).__name__})") from error

    def _url(self, path: str) -> str:
        if self._server is None:
            raise LlmError(f"{self.path}: the model is closed.")
        return f"{self._server.listening_address}{path}"


def completion_body(request: ChatRequest) -> dict[str, Any]:
    """Translate a request into llama.cpp's chat completion body.

    Raises:
        LlmError: An option that llama.cpp would silently ignore.
        SchemaError: The schema may not be put to it.
    """
    if unknown := sorted(set(request.options) - KNOWN_OPTIONS):
        raise LlmError(f"option {unknown[0]!r} is not known. Use some of {', '.join(sorted(KNOWN_OPTIONS))}.")
    body = {"messages": message_bodies(request.messages), **sampling(request.options)}
    if "stop" in request.options:
        body["stop"] = [request.options["stop"]]
    return body if request.schema is None else {**body, **schema_format(request.schema)}


def schema_format(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return what asks llama.cpp for JSON of a schema; raises SchemaError where that may not be asked."""
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": checked_schema(schema)}}}


def message_bodies(messages: Iterable[Message]) -> list[dict[str, str]]:
    """Return messages as llama.cpp wants them."""
    return [{"role": message.role, "content": well_formed(message.content)} for message in messages]


def sampling(options: Mapping[str, Any]) -> dict[str, Any]:
    """Translate Ollama's sampling options into llama.cpp's; absent ones get Ollama's defaults."""
    fields = {name: options.get(ours, default) for ours, (name, default) in _SAMPLING.items()}
    if isinstance(fields["max_tokens"], int) and fields["max_tokens"] <= 0:
        fields["max_tokens"] = -1  # Ollama has several ways to say "until the model stops", llama.cpp has this one
    return fields


def _failure(error: Mapping[str, Any]) -> CallError:
    """Return what llama.cpp's error object means."""
    if error.get("type") == "exceed_context_size_error":
        return PromptTooLongError(error["n_prompt_tokens"], error["n_ctx"])
    text = " ".join(str(error.get("message", error)).split())[:500]
    if error.get("code") == 400:  # such as a JSON schema that makes no grammar
        return RefusedError(f"llama.cpp refused the request: {text}")
    return ServerFaultError(text)


def serve(path: Path, name: str, port: int) -> None:
    """Serve a model with OpenAI's interface on 127.0.0.1, with as many calls at once as llama.cpp chooses.

    Args:
        path: The GGUF file.
        name: The model's name for clients.
        port: The port.

    Raises:
        LlmError: llama.cpp cannot load the file or listen on the port.
        KeyboardInterrupt: It was stopped.
    """
    server = _start(path, CONTEXT, THREADS, name=name, port=port)
    print_stderr(f"{name}: {server.listening_address}/v1 (Ctrl-C stops it)")
    threading.Event().wait()


def _start(path: Path, context: int, threads: int, *, name: str = "", port: int = 0) -> Any:
    with packages_for("a local model"):
        import xllamacpp  # noqa: PLC0415 - an optional extra
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.model_alias = {name} if name else set()
    settings.port = port
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.warmup = False
    settings.verbosity = 0
    for processor in (settings.cpuparams, settings.cpuparams_batch):
        processor.n_threads = threads
        processor.poll = 0  # busy polling collapses on a loaded machine
    settings.n_threads_http = _HTTP_THREADS
    settings.endpoint_metrics = True
    try:
        server = xllamacpp.Server(settings)
    except RuntimeError as error:
        raise LlmError(
            f"{path}: llama.cpp cannot load it ({error}). Fetch it again with `pcgeval models fetch`."
        ) from error
    # its queue answers this only once it runs; a server that is freed before that waits for its own thread for ever
    server.handle_metrics()
    return server
