"""llama.cpp in this process (extra `local-llm`): a GGUF file answers deterministically for a seed.

Options carry Ollama's names and Ollama's defaults, so that the same request means the same to either server. The number
of threads and the size of the context do not change a text; a cached prompt does, so the cache stays off.
"""

import http.client
import json
import os
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcgeval.core.files import sha256_file
from pcgeval.core.untrusted import well_formed
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message, Option, RefusedError
from pcgeval.llm.schemas import checked_schema

CONTEXT = 4096  # tokens; Ollama's default num_ctx
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
_STREAMED: dict[str, Any] = {"cache_prompt": False, "stream": True, "stream_options": {"include_usage": True}}

OnText = Callable[[str], bool]  # is given each new piece of a reply and says whether to go on


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
    """What llama.cpp answered; `done_reason` is stop, length, or cancelled when the caller would not go on."""

    text: str
    prompt_tokens: int
    output_tokens: int
    done_reason: str
    prompt_seconds: float
    output_seconds: float


class LlamaCpp:
    """One loaded GGUF model; calls from several threads are served one after another."""

    def __init__(self, path: Path, *, context: int = CONTEXT, threads: int | None = None) -> None:
        """Load a model; raises LlmError if the file or the llama.cpp package is missing."""
        if not path.is_file():
            raise LlmError(f"{path}: no such model file. Fetch it with `pcgeval models fetch`.")
        self.path = path
        self._digest: str | None = None
        self._turn = threading.Lock()
        self._server: Any = _start(path, context, threads or min(os.cpu_count() or 1, 2))

    def close(self) -> None:
        """Free the model's memory; it cannot be asked any more."""
        self._server = None

    def digest(self) -> str:
        """Return the SHA-256 of the GGUF file."""
        self._digest = self._digest or sha256_file(self.path)
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer one request; the same request gives the same text.

        The deadline, waiting for other calls included, is looked at with every token; while llama.cpp reads the prompt
        it cannot be interrupted.
        """
        deadline = time.monotonic() + timeout
        if not self._turn.acquire(timeout=timeout):
            raise CallError(f"model {request.model}: other calls took all of the {timeout:g} s")
        try:
            started = time.monotonic()
            found = self.complete(completion_body(request), lambda _: time.monotonic() < deadline)
            seconds = round(time.monotonic() - started, 3)
        except CallError as error:
            kind = RefusedError if isinstance(error, RefusedError) else CallError
            raise kind(f"model {request.model}: {error}") from error
        finally:
            self._turn.release()
        if found.done_reason == "cancelled":
            raise CallError(f"model {request.model}: no full reply within {timeout:g} s")
        return ChatReply(found.text, found.prompt_tokens, found.output_tokens, found.done_reason, seconds)

    def count_tokens(self, text: str) -> int:
        """Return how many tokens a text has within a message; raises LlmError if the model is closed.

        It asks the port that llama.cpp opens on 127.0.0.1, which also answers while a reply is being written.
        """
        if self._server is None:
            raise LlmError(f"{self.path}: the model is closed.")
        address = urllib.parse.urlsplit(self._server.listening_address)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=_COUNTING)
        body = {"content": well_formed(text), "add_special": False, "parse_special": True}
        try:
            connection.request("POST", "/tokenize", json.dumps(body), {"Content-Type": "application/json"})
            return len(json.loads(connection.getresponse().read())["tokens"])
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise LlmError(f"{self.path}: llama.cpp does not count tokens ({error!r}).") from error
        finally:
            connection.close()

    def complete(self, body: Mapping[str, Any], on_text: OnText) -> Completion:
        """Answer a body with `messages`, or with an untemplated `prompt`, and the fields of `sampling`.

        Raises:
            PromptTooLongError: The prompt does not fit.
            RefusedError: llama.cpp refused the body.
            CallError: It failed.
        """
        collector = _Collector(on_text)
        handle = self._server.handle_completions if "prompt" in body else self._server.handle_chat_completions
        with ThreadPoolExecutor(1) as worker:  # a Ctrl-C in the main thread's callbacks would be lost, with a token
            call = worker.submit(handle, {**body, **_STREAMED}, collector)
            try:
                call.result()
            except (ValueError, TypeError, RuntimeError) as error:  # such as a JSON schema that makes no grammar
                raise RefusedError(f"llama.cpp refused the request: {_one_line(error)}") from error
            finally:
                collector.stop()
        return collector.completion()


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


class _Collector:
    """Gathers the chunks of one streamed reply; llama.cpp stops when a call of it returns True."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self._pieces: list[str] = []
        self._error: Mapping[str, Any] | None = None
        self._stopped = False
        self._raised: BaseException | None = None
        self._reason = "cancelled"
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}

    def stop(self) -> None:
        self._stopped = True

    def __call__(self, chunk: Mapping[str, Any]) -> bool:
        try:
            return self._stopped or self._take(chunk)
        except BaseException as error:  # noqa: BLE001 - llama.cpp swallows exceptions: `completion` raises it again
            self._raised = error
            return True

    def _take(self, chunk: Mapping[str, Any]) -> bool:
        if "error" in chunk:
            self._error = chunk["error"]
            return True
        self._usage = chunk.get("usage") or self._usage
        self._timings = chunk.get("timings") or self._timings
        for choice in chunk["choices"]:
            self._reason = choice["finish_reason"] or self._reason
            piece = choice["text"] if "text" in choice else choice["delta"].get("content")
            if piece:
                self._pieces.append(piece)
                return not self._on_text(piece)
        return False

    def completion(self) -> Completion:
        if self._raised is not None:
            raise self._raised
        if self._error is not None:
            if self._error.get("type") == "exceed_context_size_error":
                raise PromptTooLongError(self._error["n_prompt_tokens"], self._error["n_ctx"])
            kind = RefusedError if self._error.get("code") == 400 else CallError
            raise kind(_one_line(self._error.get("message", self._error)))
        if self._reason != "cancelled" and not self._usage:
            raise CallError("llama.cpp did not say how many tokens it used")
        return Completion(
            text="".join(self._pieces),
            prompt_tokens=int(self._usage.get("prompt_tokens", 0)),
            output_tokens=int(self._usage.get("completion_tokens", 0)),
            done_reason=self._reason,
            prompt_seconds=self._timings.get("prompt_ms", 0.0) / 1000,
            output_seconds=self._timings.get("predicted_ms", 0.0) / 1000,
        )


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:500]


def _start(path: Path, context: int, threads: int) -> Any:
    try:
        import xllamacpp  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise LlmError("llama.cpp is not installed. Run `pip install 'pcgeval[local-llm]'` or `make setup`.") from error
    settings = xllamacpp.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = context
    settings.n_parallel = 1
    settings.warmup = False
    settings.verbosity = 0
    for processor in (settings.cpuparams, settings.cpuparams_batch):
        processor.n_threads = threads
        processor.poll = 0  # busy polling collapses on a loaded machine
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
