"""llama.cpp's server on this machine (extra `local-llm`), asked through OpenAI's interface.

Options have Ollama's names and defaults, so that the same request means the same to either server. The number of
threads and the size of the context do not change a text; a cached prompt does, so the cache is off for trials.
"""

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcgeval.core.console import print_stderr
from pcgeval.core.files import sha256_file
from pcgeval.core.packages import packages_for
from pcgeval.formats.params import Model
from pcgeval.llm.openai import OpenAiServer
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError, Option

_CONTEXT = 4096  # tokens; Ollama's default num_ctx
_HTTP_THREADS = 64  # a call that waits for its turn holds one
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

    _says_model = False  # the digest is that of the loaded file

    def __init__(self, path: Path, context: Option | None = None, report: Callable[[str], None] = print_stderr) -> None:
        """Load a GGUF file with a context of so many tokens, and serve it on a free port of 127.0.0.1.

        Raises LlmError if llama.cpp cannot load the file.
        """
        context = _CONTEXT if context is None else context
        if type(context) is not int or context < 1:
            raise LlmError(f"{path.name}: num_ctx is {context!r}. Set it to a number of tokens, such as {_CONTEXT}.")
        self.path = path
        self._digest: str | None = None
        self._server = _start(path, context)
        url = f"{self._server.listening_address}/v1"
        super().__init__(Model(backend="openai", name=path.stem, base_url=url), report)

    def digest(self) -> str:
        """Return the SHA-256 of the GGUF file."""
        self._digest = self._digest or sha256_file(self.path)
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds, the wait for other calls included; raises LlmError for unknown options."""
        if unknown := sorted(request.options.keys() - _OPTIONS):
            raise LlmError(f"option {unknown[0]!r} is not known. Use some of {', '.join(sorted(_OPTIONS))}.")
        options = {**_DEFAULTS, **request.options, "cache_prompt": request.adaptable}
        options.pop("num_ctx", None)  # the model is loaded with it
        return super().chat(replace(request, options=options), timeout)


def serve(path: Path, name: str, port: int) -> None:
    """Serve a GGUF file under a name, with OpenAI's interface, on 127.0.0.1 until Ctrl-C; raises LlmError."""
    server = _start(path, _CONTEXT, name, port)
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
    # the queue answers this only once it runs; a server that is freed earlier waits for its thread for ever
    server.handle_metrics()
    return server
