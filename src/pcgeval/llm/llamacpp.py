"""llama.cpp's own server on this machine (extra `local-llm`), asked through OpenAI's interface.

Options have Ollama's names and defaults, so that the same request means the same to either server. The number of
threads and the size of the context do not change a text; a cached prompt does, so the cache stays off for trials.
"""

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcgeval.core.console import print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.core.packages import packages_for
from pcgeval.core.params import Model
from pcgeval.core.untrusted import well_formed
from pcgeval.llm.openai import OpenAiServer
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError, Message, OnText, Option

CONTEXT = 4096  # tokens; Ollama's default num_ctx
_HTTP_THREADS = 64  # calls that wait for their turn hold one each
# Ollama's documented defaults (its API reference, "Parameters")
_DEFAULTS: dict[str, Option] = {
    "temperature": 0.8,
    "top_k": 40,
    "top_p": 0.9,
    "min_p": 0.0,
    "repeat_penalty": 1.1,
    "repeat_last_n": 64,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "num_predict": -1,
    "seed": 0,
}
_OPTIONS = frozenset({*_DEFAULTS, "num_ctx", "stop"})


class LlamaCpp(OpenAiServer):
    """One loaded GGUF model; llama.cpp answers calls from several threads one after another."""

    def __init__(
        self,
        path: Path,
        context: Option | None = None,
        report: Callable[[str], None] = print_stderr,
        on_text: OnText | None = None,
    ) -> None:
        """Load a GGUF file, with a context of so many tokens, and serve it at a free port of 127.0.0.1.

        `report` and `on_text` receive what `open_backend` says.

        Raises:
            LlmError: The context is no size, or the file is missing or no model.
            MissingPackageError: The extra is not installed.
        """
        context = CONTEXT if context is None else context
        if isinstance(context, bool) or not isinstance(context, int) or context < 1:
            raise LlmError(f"{path.name}: num_ctx is {context!r}. Set it to a number of tokens, such as {CONTEXT}.")
        if not path.is_file():
            raise LlmError(f"{path}: no such model file. Fetch it with `pcgeval models fetch`.")
        self.path = path
        self._digest: str | None = None
        self._server = _start(path, context)
        url = f"{self._server.listening_address}/v1"
        super().__init__(Model(backend="openai", name=path.stem, base_url=url), report, on_text)

    def digest(self) -> str:
        """Return the SHA-256 of the GGUF file."""
        self._digest = self._digest or sha256_file(self.path)
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer one request within `timeout` seconds, waiting for other calls included.

        The same request gives the same text.

        Raises:
            CallError: There was no reply in time, or llama.cpp refused the request.
            LlmError: An option is not known.
        """
        messages = tuple(Message(message.role, well_formed(message.content)) for message in request.messages)
        options = _native_options(request.options) | {"cache_prompt": request.adaptable}
        return super().chat(replace(request, messages=messages, options=options), timeout)


def _native_options(options: Mapping[str, Option]) -> dict[str, Option]:
    """Return a request's options with Ollama's defaults for absent ones, without those of loading a model."""
    if unknown := sorted(set(options) - _OPTIONS):
        raise LlmError(f"option {unknown[0]!r} is not known. Use some of {', '.join(sorted(_OPTIONS))}.")
    return {name: value for name, value in {**_DEFAULTS, **options}.items() if name != "num_ctx"}


def serve(path: Path, name: str, port: int) -> None:
    """Serve a GGUF file under this name with OpenAI's interface on 127.0.0.1 until Ctrl-C, a call at a time.

    Raises:
        LlmError: llama.cpp cannot load the file or listen on the port.
    """
    server = _start(path, CONTEXT, name, port)
    print_stderr(f"{name}: {server.listening_address}/v1 (Ctrl-C stops it)")
    threading.Event().wait()


def _start(path: Path, context: int, name: str = "", port: int = 0) -> Any:
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
        processor.n_threads = max((os.cpu_count() or 2) - 1, 1)  # llama.cpp crawls where another program holds a core
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
