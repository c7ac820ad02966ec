"""The interface of all language models: requests, replies, failures; and what is known of models by their names.

profiles.yaml has the limits, the fields that the endpoint takes, and the price of models that judge. params.yaml
overrides a known profile field by field (`rubric.model.profile`). A field that is None is unknown, or is not sent.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

import yaml
from pydantic import TypeAdapter

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, sha256_json
from pcgeval.core.text import well_formed
from pcgeval.formats.failures import Failure
from pcgeval.formats.params import Model, ModelProfile
from pcgeval.formats.trials import Blame, ChatReply, Message

__all__ = ["ChatReply", "Message"]  # from elsewhere

Option = int | float | str | bool
_TOKEN_BYTES = 4  # mean of English prose and of code


@dataclass(frozen=True)
class BlameVerdict:
    """Whose fault it is that a request got no reply."""

    blame: Blame  # `reply` if there is one
    reason: str = ""  # a clause of our words
    field: str | None = None  # the refused setting by its name in params.yaml
    sent_as: str | None = None  # the same by the server's name
    is_certain: bool = False  # the server placed the fault in a field, so that no text of a request can be behind it
    failure: Failure | None = None  # of a request
    context: int | None = None  # the size that the server names, in tokens

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt is longer than the context."""
        return self.failure is not None and self.failure.kind == "context-exceeded"


class LlmError(PcgevalError):
    """A model cannot be asked at all (no access, unknown model, refused setting); its run stops and can be resumed."""


class CallError(PcgevalError):
    """One call got no reply; `verdict` says whose fault it is, if a server was asked."""

    def __init__(
        self,
        text: str,
        verdict: BlameVerdict | None = None,
        status: int | None = None,
        words: str = "",
        wait: float = 0.0,
    ) -> None:
        """Add the HTTP status of the answer, what the server said, and the seconds that it asks to wait."""
        super().__init__(text)
        self.verdict, self.status, self.words, self.wait = verdict, status, words, wait


@dataclass(frozen=True)
class ChatRequest:
    """Everything that determines a reply: the model, its digest, the conversation, and options by their Ollama names.

    With a `schema` (JSON Schema) the reply is JSON of that schema, unless the server refuses schemas. For a judge's
    request, which is `adaptable`, an option that the server refuses is left out, missing token counts are estimated,
    and the server may use a cached prefix.
    """

    model: str
    digest: str
    messages: tuple[Message, ...]
    options: Mapping[str, Option]
    schema: Mapping[str, Any] | None = None
    adaptable: bool = False

    @property
    def key(self) -> str:
        """The SHA-256 of the whole request, by which logs and recordings find its reply."""
        values = vars(self) | {"messages": [vars(message) for message in self.messages]}
        del values["adaptable"]
        if self.schema is None:
            del values["schema"]  # the first recordings had no schemas
        return sha256_json(values)


class Backend(Protocol):
    """One model that several threads may ask."""

    def digest(self) -> str:
        """Return the SHA-256 of the model's bytes, or `unpinned_digest`; raises LlmError without the model."""

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds; raises CallError for this call or LlmError for all of them.

        A request is sent once; an adaptable one is sent again without a field that the server refuses.
        """


Chat = Callable[[ChatRequest, float], ChatReply]  # as `Backend.chat`


def unpinned_digest(model: str) -> str:
    """Return the digest of a model of which only the name is known: it pins the name and not the bytes."""
    return "unpinned:" + sha256_bytes(f"openai:{model}".encode())


def usual_tokens(text: str) -> int:
    """Estimate the number of tokens of a text."""
    return math.ceil(len(well_formed(text).encode()) / _TOKEN_BYTES)


def full_name(name: str) -> str:
    """Return a model's name without Ollama's default registry and owner, with its tag, in lower case, to compare it."""
    name = name.casefold().removeprefix("registry.ollama.ai/").removeprefix("library/")
    return name if ":" in name.rsplit("/", 1)[-1] else f"{name}:latest"


TOKEN_FIELDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
OPENAI_URL = "https://api.openai.com/v1"
USUAL_CONTEXT = 128_000  # tokens of a hosted model's context that a judge uses by default
_LOCAL_CONTEXT = 32_768  # the same for a model on a local server, which needs memory for it
_OPENAI_ONLY = ("o1", "o3", "o4-mini", "gpt-3.5", "gpt-4", "gpt-4o", "gpt-5", "chatgpt-4o")


class _KnownProfile(ModelProfile):
    snapshots: tuple[str, ...] = ()  # dates that may follow the name without another price


@cache
def _known() -> dict[str, _KnownProfile]:
    values = yaml.safe_load(files(__package__).joinpath("profiles.yaml").read_text("utf-8"))
    return TypeAdapter(dict[str, _KnownProfile]).validate_python(values)


def profile_of(model: Model) -> ModelProfile:
    """Return the known profile of a model's name, else the usual one of a server, as its `profile` changes it."""
    usual = ModelProfile(context=_LOCAL_CONTEXT if model.base_url is None else USUAL_CONTEXT)
    name, known = next((pair for pair in _known().items() if _begins(model.name, pair[0])), (model.name, usual))
    changes: dict[str, Any] = {}
    if isinstance(known, _KnownProfile) and model.name not in {name, *(f"{name}-{date}" for date in known.snapshots)}:
        changes["price"] = None
    if model.profile is not None:
        changes |= {field: getattr(model.profile, field) for field in model.profile.model_fields_set}
    return known.model_copy(update=changes)


def is_openai_model(name: str) -> bool:
    """Tell whether a name is one of OpenAI's hosted models."""
    return any(_begins(name, known) for known in _OPENAI_ONLY) and not _begins(name, "gpt-oss")


def _begins(name: str, known: str) -> bool:
    """Tell whether a model's name, without its owner's, is the known one, maybe with a version or a size after it."""
    bare = name.rpartition("/")[2].casefold()
    return bare.startswith(known) and not bare[len(known) :][:1].isalnum()
