"""The interface of all language-model backends: requests, replies, and the ways in which a call can fail."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, sha256_json
from pcgeval.core.trials import ChatReply, Message
from pcgeval.core.untrusted import well_formed

__all__ = ["ChatReply", "Message"]  # from elsewhere

Option = int | float | str | bool
# values of `done_reason` for replies without an answer; endpoints add "content_filter"
REFUSAL = "refusal"
REASONING = "reasoning"  # the reply has thoughts only
_TOKEN_BYTES = 4  # mean of English prose and of code


class LlmError(PcgevalError):
    """A backend cannot serve at all (no server, unknown model, other digest); the run stops and can be resumed."""


class CallError(PcgevalError):
    """One call failed; its trial is recorded as failed."""


class RefusedError(CallError):
    """The server refused the request itself: its answer begins with `body` and may name the field `param`."""

    def __init__(self, text: str, param: object = None, body: str = "") -> None:
        """Describe the refusal."""
        super().__init__(text)
        self.param, self.body = param, body


class ContextExceededError(CallError):
    """A prompt is longer than the model's context; `context` is its size in tokens if the server says it."""

    def __init__(self, text: str, context: int | None = None) -> None:
        """Describe the refusal."""
        super().__init__(text)
        self.context = context


class ServerFaultError(CallError):
    """A call failed through its server and not through the request, so that another run may get a reply."""


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
        """Answer within `timeout` seconds; raises CallError for this call or LlmError for all of them."""


Chat = Callable[[ChatRequest, float], ChatReply]  # as `Backend.chat`


def unpinned_digest(model: str) -> str:
    """Return the digest of a model of which only the name is known: it pins the name and not the bytes."""
    return "unpinned:" + sha256_bytes(f"openai:{model}".encode())


def usual_tokens(text: str) -> int:
    """Estimate the number of tokens of a text."""
    return math.ceil(len(well_formed(text).encode()) / _TOKEN_BYTES)
