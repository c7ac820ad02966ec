"""How `serve-local` words its answers: Ollama's way; what it says of a model."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from pcgeval.llm.llamacpp import Completion
from pcgeval.serve.shelf import ShelfModel

Json = dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """A reply that has ended, with what it took in nanoseconds, waiting and loading included."""

    completion: Completion
    total: int
    loading: int


class Answers(Protocol):
    """How one interface words the answer to one request."""

    @property
    def stream_type(self) -> str:
        """The content type of a stream."""

    def piece(self, text: str) -> bytes:
        """Return a piece of a streamed reply."""

    def end(self, finished: Finished) -> bytes:
        """Return what ends a streamed reply, after its last piece."""

    def whole(self, finished: Finished) -> Json:
        """Return a reply that is not streamed."""

    def fault(self, text: str) -> bytes:
        """Return what ends a streamed reply that failed."""


@dataclass(frozen=True)
class OllamaAnswers:
    """Answers of /api/chat and /api/generate; a stream is one JSON value a line."""

    model: str
    shape: Callable[[str], Json]  # puts a piece of text where the endpoint's answer has it
    stream_type: str = "application/x-ndjson"

    def piece(self, text: str) -> bytes:
        """Return a piece of a streamed reply."""
        return _line(self.part(text, done=False))

    def end(self, finished: Finished) -> bytes:
        """Return the last line, which has the costs."""
        return _line(self._last("", finished))

    def whole(self, finished: Finished) -> Json:
        """Return the one value of a reply that is not streamed."""
        return self._last(finished.completion.text, finished)

    def fault(self, text: str) -> bytes:
        """Return an error as the last line, as Ollama does."""
        return _line({"error": text})

    def part(self, text: str, **more: Any) -> Json:
        """Return one value of an answer."""
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        return {"model": self.model, "created_at": now, **self.shape(text), **more}

    def _last(self, text: str, finished: Finished) -> Json:
        return self.part(text, done=True, done_reason=finished.completion.done_reason, **costs(finished))


def _line(value: Json) -> bytes:
    return json.dumps(value).encode() + b"\n"


def costs(finished: Finished) -> dict[str, int]:
    """Return a reply's token counts, and its durations in nanoseconds."""
    found = finished.completion
    return {
        "total_duration": finished.total,
        "load_duration": finished.loading,
        "prompt_eval_count": found.prompt_tokens,
        "prompt_eval_duration": round(found.prompt_seconds * 1e9),
        "eval_count": found.output_tokens,
        "eval_duration": round(found.output_seconds * 1e9),
    }


def tag(model: ShelfModel) -> dict[str, Any]:
    """Return a model's entry in the list of models."""
    return {
        "name": model.name,
        "model": model.name,
        "modified_at": model.modified.isoformat(),
        "size": model.path.stat().st_size,
        "digest": model.digest,
        "details": details(model),
    }


def details(model: ShelfModel) -> dict[str, Any]:
    """Return a model's details from its GGUF metadata."""
    return {
        "parent_model": "",
        "format": "gguf",
        "family": model.family,
        "families": [model.family],
        "parameter_size": str(model.header.get("general.size_label", "unknown")),
        "quantization_level": model.quantization,
    }


def description(model: ShelfModel) -> dict[str, Any]:
    """Return what /api/show says of a model."""
    template = str(model.header.get("tokenizer.chat_template", ""))
    return {
        "license": str(model.header.get("general.license", "")),
        "modelfile": f"FROM {model.path.name}\n",
        "parameters": "",
        "template": template,
        "details": details(model),
        "model_info": {key: value for key, value in model.header.items() if key != "tokenizer.chat_template"},
        "capabilities": ["completion"],
        "modified_at": model.modified.isoformat(),
    }


def server_version() -> str:
    """Return the version that /api/version names."""
    try:
        return f"{version('pcgeval')}+serve-local"
    except PackageNotFoundError:
        return "0.0.0+serve-local"
