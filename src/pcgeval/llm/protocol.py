"""What every language-model backend understands: a request, a reply, and the ways in which a call can fail."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal, Protocol

from pcgeval.errors import PcgevalError
from pcgeval.files import sha256_json

Option = int | float | str | bool


class LlmError(PcgevalError):
    """A backend cannot serve at all (no server, unknown model, other digest); the run stops and can be resumed."""


class CallError(PcgevalError):
    """One call failed for good (timeout, prompt too long, broken reply); its trial is recorded as failed."""


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """Everything that determines a reply: model, its digest, the conversation, and options by their Ollama names."""

    model: str
    digest: str
    messages: tuple[Message, ...]
    options: Mapping[str, Option]

    @property
    def key(self) -> str:
        """SHA-256 of the whole request: recorded replies are found by it."""
        return sha256_json(asdict(self))


@dataclass(frozen=True)
class ChatReply:
    """One reply with its costs; `seconds` is the wall time that the model took when it was really asked."""

    text: str
    prompt_tokens: int
    output_tokens: int
    done_reason: str
    seconds: float


class Backend(Protocol):
    """A place where one model can be asked."""

    def digest(self) -> str:
        """Return the SHA-256 that identifies the model's bytes; raises LlmError if the model cannot be had."""

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer within `timeout` seconds; raises CallError for this call or LlmError for all of them."""
