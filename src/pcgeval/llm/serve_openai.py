"""OpenAI's chat completions for `serve-local`: the request brought to Ollama's form, and the words of the answer.

Beside the interface's own fields it reads Ollama's options (`top_k`, `min_p`, `repeat_penalty`, `num_ctx`, ...) from
the body, as llama.cpp's server does; what is absent has Ollama's value there: temperature 1, top_p 1, else its
defaults. A prompt that is too long is refused, never cut.
"""

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from pcgeval.llm.llamacpp import PromptTooLongError
from pcgeval.llm.protocol import Message
from pcgeval.llm.serve_answers import Finished, Json
from pcgeval.llm.serve_ask import Ask
from pcgeval.llm.serve_requests import ChatBody, OptionsBody, refuse
from pcgeval.llm.shelf import ShelfModel

_UNSUPPORTED = ("tools", "functions", "logprobs", "logit_bias", "audio", "prediction")


class _CompletionMessage(BaseModel):
    model_config = ConfigDict(frozen=True)

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str = ""

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, content: Any) -> Any:
        if content is None:
            return ""
        if not isinstance(content, list):
            return content
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            raise ValueError("only text is supported by this server")
        return "".join(str(text) for text in texts)


class _StreamOptions(BaseModel):
    model_config = ConfigDict(frozen=True)

    include_usage: bool = False


class CompletionBody(OptionsBody):
    """A request to /v1/chat/completions."""

    model: str = Field(min_length=1)
    messages: Annotated[tuple[_CompletionMessage, ...], Field(min_length=1, max_length=10_000)]
    stream: bool = False
    stream_options: _StreamOptions = _StreamOptions()
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int | None = Field(None, ge=1, lt=2**31)
    max_completion_tokens: int | None = Field(None, ge=1, lt=2**31)
    response_format: dict[str, Any] | None = None
    n: Literal[1] = 1

    @model_validator(mode="before")
    @classmethod
    def _one_stop(cls, values: Any) -> Any:
        refuse(values, _UNSUPPORTED)
        if isinstance(values, dict) and isinstance(values.get("stop"), str):
            return {**values, "stop": [values["stop"]]}
        return values

    def as_chat(self) -> ChatBody:
        """Return the same request to /api/chat."""
        options = self.model_dump(include=set(OptionsBody.model_fields), exclude_none=True)
        most = self.max_completion_tokens or self.max_tokens
        return ChatBody(
            model=self.model,
            stream=self.stream,
            options=OptionsBody(**options, **({"num_predict": most} if most else {})),
            format=self._format(),
            truncate=False,
        )

    def _format(self) -> Any:
        match self.response_format:
            case {"type": "json_object"}:
                return "json"
            case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
                return schema
        return ""


@dataclass(frozen=True)
class CompletionAnswers:
    """Answers of /v1/chat/completions; a stream is server-sent events (the HTML standard's text/event-stream)."""

    model: str
    fingerprint: str
    include_usage: bool
    stream_type: str = "text/event-stream"
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def piece(self, text: str) -> bytes:
        """Return a piece of a streamed reply."""
        return self._chunk([_choice({"role": "assistant", "content": text}, None)])

    def end(self, finished: Finished) -> bytes:
        """Return the chunk with the reason of the end, the one with the usage if it was asked for, and the end mark."""
        last = self._chunk([_choice({}, finished.completion.done_reason)])
        costs = self._chunk([], usage=_usage(finished)) if self.include_usage else b""
        return last + costs + b"data: [DONE]\n\n"

    def whole(self, finished: Finished) -> Json:
        """Return the one value of a reply that is not streamed."""
        found = finished.completion
        message = {"role": "assistant", "content": found.text}
        choice = {"index": 0, "message": message, "finish_reason": found.done_reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(finished)}

    def fault(self, text: str) -> bytes:
        """Return an error as the last event."""
        return _event(error_value(text))

    def _chunk(self, choices: list[Json], **more: Any) -> bytes:
        usage = {"usage": None} if self.include_usage else {}
        return _event({**self._head("chat.completion.chunk"), "choices": choices, **usage, **more})

    def _head(self, kind: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def completion_ask(body: CompletionBody, model: ShelfModel) -> Ask:
    """Read a request to /v1/chat/completions; the fingerprint in its answers is the model file's."""
    # a developer is who a system message comes from, in newer words; a tool's reaches the model through its template
    roles = {"developer": "system"}
    messages = tuple(
        Message(roles.get(message.role, message.role), message.content)  # type: ignore[arg-type]
        for message in body.messages
    )
    answers = CompletionAnswers(body.model, f"fp_{model.digest[:16]}", body.stream_options.include_usage)
    return Ask(body.as_chat(), messages, None, answers)


def model_value(model: ShelfModel) -> Json:
    """Return a model's entry in the list of models."""
    return {"id": model.name, "object": "model", "created": int(model.modified.timestamp()), "owned_by": "library"}


def error_value(text: str, error: Exception | None = None) -> Json:
    """Return an error as OpenAI's interface words it."""
    code = "context_length_exceeded" if isinstance(error, PromptTooLongError) else None
    return {"error": {"message": text, "type": "api_error", "param": None, "code": code}}


def _choice(delta: Json, reason: str | None) -> Json:
    return {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}


def _usage(finished: Finished) -> Json:
    found = finished.completion
    return {
        "prompt_tokens": found.prompt_tokens,
        "completion_tokens": found.output_tokens,
        "total_tokens": found.prompt_tokens + found.output_tokens,
    }


def _event(value: Json) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"
