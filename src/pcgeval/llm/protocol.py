"""The interface of all language-model backends: requests, replies, and the ways in which a call can fail."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, sha256_json
from pcgeval.core.text import well_formed
from pcgeval.formats.failures import Failure
from pcgeval.formats.trials import Blame, ChatReply, Message

__all__ = ["ChatReply", "Message"]  # from elsewhere

Option = int | float | str | bool
_TOKEN_BYTES = 4  # mean of English prose and of code


@dataclass(frozen=True)
class BlameVerdict:
    """Whose fault it is that a request got no reply.

    Attributes:
        blame: `reply` if there is one.
        reason: Why, in a clause of our words.
        field: The refused setting by its name in params.yaml, and `sent_as` by the server's.
        is_certain: Whether the server placed the fault in a field, so that no text of a request can be behind it.
        failure: The failure of a request.
        context: The size of the context that the server names, in tokens.
    """

    blame: Blame
    reason: str = ""
    field: str | None = None
    sent_as: str | None = None
    is_certain: bool = False
    failure: Failure | None = None
    context: int | None = None

    @property
    def is_too_long(self) -> bool:
        """Whether the prompt is longer than the context."""
        return self.failure is not None and self.failure.kind == "context-exceeded"


class LlmError(PcgevalError):
    """A model cannot be asked at all (no access, unknown model, refused setting); its run stops and can be resumed."""


class CallError(PcgevalError):
    """One call got no reply.

    Attributes:
        verdict: Whose fault it is, if a server was asked.
        status: The HTTP status of the answer, if there was one.
        words: What the server said.
        wait: The seconds that the server asks to wait.
    """

    def __init__(
        self,
        text: str,
        verdict: BlameVerdict | None = None,
        status: int | None = None,
        words: str = "",
        wait: float = 0.0,
    ) -> None:
        """Describe the failure."""
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
