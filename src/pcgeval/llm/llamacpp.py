"""llama.cpp in this process (extra `local-llm`): a GGUF file answers deterministically for a seed.

Options carry Ollama's names and Ollama's defaults, so that the same request means the same to either server.
"""

import os
import time
from pathlib import Path
from typing import Any

from pcgeval.files import sha256_file
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Option

CONTEXT = 4096  # tokens; Ollama's default num_ctx
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
KNOWN_OPTIONS = frozenset({*_SAMPLING, "num_ctx"})


class LlamaCpp:
    """One loaded GGUF model. Calls are served one after another."""

    def __init__(self, path: Path, *, context: int = CONTEXT, threads: int | None = None) -> None:
        """Load a model; raises LlmError if the file or the llama.cpp package is missing."""
        if not path.is_file():
            raise LlmError(f"{path}: no such model file. Fetch it with `pcgeval models fetch`.")
        self.path = path
        self._digest = sha256_file(path)
        self._server = _start(path, context, threads or min(os.cpu_count() or 1, 2))

    def digest(self) -> str:
        """Return the SHA-256 of the GGUF file."""
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002 - llama.cpp cannot be interrupted
        """Answer one request; the same request gives the same text."""
        started = time.monotonic()
        answer = self._server.handle_chat_completions(completion_body(request))
        if "error" in answer or not answer.get("choices"):
            detail = answer.get("error", answer)
            raise CallError(f"model {request.model}: {detail.get('message', detail)}")
        choice, usage = answer["choices"][0], answer["usage"]
        return ChatReply(
            text=choice["message"].get("content") or "",
            prompt_tokens=int(usage["prompt_tokens"]),
            output_tokens=int(usage["completion_tokens"]),
            done_reason=str(choice["finish_reason"]),
            seconds=round(time.monotonic() - started, 3),
        )


def completion_body(request: ChatRequest) -> dict[str, Any]:
    """Translate a request into llama.cpp's chat completion body.

    The prompt cache stays off: a cached prefix changes the arithmetic and with it the text.

    Raises:
        LlmError: An option that llama.cpp would silently ignore.
    """
    if unknown := sorted(set(request.options) - KNOWN_OPTIONS):
        raise LlmError(f"option {unknown[0]!r} is not known. Use some of {', '.join(sorted(KNOWN_OPTIONS))}.")
    sampling = {name: request.options.get(ours, default) for ours, (name, default) in _SAMPLING.items()}
    messages = [{"role": message.role, "content": message.content} for message in request.messages]
    return {"messages": messages, "cache_prompt": False, "stream": False, **sampling}


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
    try:
        return xllamacpp.Server(settings)
    except RuntimeError as error:
        raise LlmError(f"{path}: llama.cpp cannot load it ({error}). Fetch it again with `pcgeval models fetch`.") from error
