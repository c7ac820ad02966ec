"""From a model in params.yaml to the place where it is asked."""

from pathlib import Path

from pcgeval.competition.params import Model
from pcgeval.llm.llamacpp import CONTEXT, LlamaCpp
from pcgeval.llm.local_models import model_file
from pcgeval.llm.protocol import Backend, LlmError
from pcgeval.llm.recorded import RecordedModel


def open_backend(model: Model, recording: Path) -> Backend:
    """Open a model's backend; `recording` is where its exchanges lie, for the backend `recorded`.

    Raises:
        LlmError: The recording, the model file or a package is missing; the message says what to run.
    """
    match model.backend:
        case "recorded":
            return RecordedModel(recording, model.digest)
        case "llamacpp":
            return LlamaCpp(model_file(model.name, model.digest), context=_context(model))
        case "ollama":
            from pcgeval.llm.ollama_server import OllamaModel  # noqa: PLC0415 - a replay need not load an HTTP client

            return OllamaModel(model.name, model.host)


def _context(model: Model) -> int:
    context = model.options.get("num_ctx", CONTEXT)
    if isinstance(context, bool) or not isinstance(context, int) or context < 1:
        raise LlmError(f"model {model.name}: num_ctx is {context!r}. Set it to a number of tokens, such as {CONTEXT}.")
    return context
