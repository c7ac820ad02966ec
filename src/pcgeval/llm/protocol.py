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
OnText = Callable[[str], None]  # receives the pieces of replies as they come, in a background thread
UNPINNED = "unpinned:"  # begins a digest that vouches for a name alone
# the `done_reason` of replies that hold no answer; a third one, "content_filter", is the endpoint's
REFUSAL = "refusal"
REASONING = "reasoning"  # all of the reply is thought
_TOKEN_BYTES = 4  # as in English prose and in code


class LlmError(PcgevalError):
    """A backend cannot serve at all (no server, unknown model, other digest); the run stops and can be resumed."""


class CallError(PcgevalError):
    """One call failed (out of time, prompt too long, a fault of the server); its trial is recorded as failed."""


class RefusedError(CallError):
    """A request that is wrong in itself, such as one with an invalid option; asking again cannot help."""


class ContextExceededError(CallError):
    """A prompt is longer than the model's context; `context` is its size in tokens where the server names it."""

    def __init__(self, text: str, context: int | None = None) -> None:
        """Describe the refusal."""
        super().__init__(text)
        self.context = context


class ServerFaultError(CallError):
    """A call failed through its server and not through the request, so that another run may get a reply."""


@dataclass(frozen=True)
class ChatRequest:
    """Everything that determines a reply: model, its digest, the conversation, and options by their Ollama names.

    With a `schema` (JSON Schema) the reply is JSON of that schema, unless the server takes no schemas.

    A judge's request is `adaptable`: an option that the server refuses is left out, tokens that it does not report are
    estimated, and a prefix that was read before need not be read again. None of this is fair to a competition's trials.
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
            del values["schema"]  # recordings were made before requests could have one
        return sha256_json(values)


class Backend(Protocol):
    """One model that can be asked, from several threads."""

    def digest(self) -> str:
        """Return the digest that identifies the model: the SHA-256 of its bytes, or one that begins with UNPINNED.

        Raises:
            LlmError: The model is not available.
        """

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds; raises CallError for this call or LlmError for all of them."""


def unpinned_digest(model: str) -> str:
    """Return the digest of a model of which only the name is known: it pins the name and not the bytes."""
    return UNPINNED + sha256_bytes(f"openai:{model}".encode())


def usual_tokens(text: str) -> int:
    """Return about how many tokens a text has."""
    return math.ceil(len(well_formed(text).encode()) / _TOKEN_BYTES)
