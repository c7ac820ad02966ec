"""The parts of `serve-local`'s answers: what Ollama says of a model and of a reply's costs."""

from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pcgeval.llm.llamacpp import Completion
from pcgeval.llm.shelf import ShelfModel


def costs(found: Completion, total: int, loading: int) -> dict[str, int]:
    """Return a reply's token counts, and its durations in nanoseconds."""
    return {
        "total_duration": total,
        "load_duration": loading,
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
