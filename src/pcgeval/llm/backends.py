"""From a model in params.yaml to its backend."""

import os
from collections.abc import Callable
from pathlib import Path

from pcgeval.core.console import print_stderr
from pcgeval.formats.params import Model
from pcgeval.llm.call_log import RecordedModel
from pcgeval.llm.local_models import find_model, model_file
from pcgeval.llm.profiles import OPENAI_URL, is_openai_model
from pcgeval.llm.protocol import Backend, LlmError


def open_backend(model: Model, recording: Path = Path(), report: Callable[[str], None] = print_stderr) -> Backend:
    """Open a model's backend; several threads may use it.

    Args:
        model: The model, as params.yaml describes it.
        recording: The file of its recorded calls, for the backend `recorded`.
        report: Receives messages for a person, such as that a server fails.

    Raises:
        LlmError: The recording, the model file, or an option is missing or wrong.
        MissingPackageError: An extra is not installed.
    """
    # a replay need not load the HTTP clients
    match model.backend:
        case "recorded":
            return RecordedModel.read(recording, model.digest)
        case "llamacpp":
            from pcgeval.llm.llamacpp import LlamaCpp  # noqa: PLC0415

            return LlamaCpp(model_file(model.name, model.digest), model.options.get("num_ctx"), report)
        case "ollama":
            from pcgeval.llm.ollama import OllamaServer  # noqa: PLC0415

            return OllamaServer(model, report)
        case "openai":
            from pcgeval.llm.openai import OpenAiServer  # noqa: PLC0415

            return OpenAiServer(model, report)


def named_model(name: str, base_url: str | None = None, host: str | None = None) -> Model:
    """Return the model that a person means by a name alone.

    A `base_url` means OpenAI's interface at that endpoint, a `host` that Ollama server. Otherwise it is one of OpenAI's
    models, at OPENAI_BASE_URL or OpenAI's endpoint; a local model; or a model of the Ollama server.
    """
    if base_url is not None or (host is None and is_openai_model(name)):
        url = base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        return Model(backend="openai", name=name, base_url=url)
    if host is None and find_model(name) is not None:
        return Model(backend="llamacpp", name=name)
    return Model(backend="ollama", name=name, host=host)


def pinned_digest(model: Model, backend: Backend) -> str:
    """Return the digest of a model that its backend serves; raises LlmError if params.yaml pins another one."""
    digest = backend.digest()
    if model.digest is not None and digest != model.digest:
        raise LlmError(
            f"model {model.name}: params.yaml pins digest {model.digest}, but the backend serves {digest}. "
            "Fetch the pinned model, or change the digest in params.yaml to evaluate the other one."
        )
    return digest
