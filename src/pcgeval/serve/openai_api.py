"""OpenAI's chat completions for `serve-local`: the request brought to Ollama's form, and the words of the answer.

Beside the interface's own fields it reads Ollama's options (`top_k`, `min_p`, `repeat_penalty`, `num_ctx`, ...) from
the body, as llama.cpp's server does; what is absent has Ollama's value there: temperature 1, top_p 1, else its
defaults. A prompt that is too long is refused, never cut. Fields that would change what an answer has in it are refused
where they are not supported; other unknown ones, such as a sampler's of another server, are ignored.

While tools are offered a stream has only comments until the reply has ended: whether it is a call shows only then.
"""

import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pcgeval.llm.llamacpp import PromptTooLongError
from pcgeval.llm.protocol import Message
from pcgeval.serve.answers import Finished, Json
from pcgeval.serve.ask import Ask
from pcgeval.serve.requests import Body, ChatBody, OptionsBody, refuse
from pcgeval.serve.shelf import ShelfModel
from pcgeval.serve.tools import NamedTool, Offer, ToolBody, ToolCallBody, call_texts, result_text

_UNSUPPORTED = (
    *("functions", "function_call", "logprobs", "top_logprobs", "logit_bias", "audio", "prediction"),
    *("web_search_options", "grammar", "json_schema"),
    # vLLM's
    *("prompt_logprobs", "return_token_ids", "continue_final_message", "structured_outputs"),
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar"),
)


class _CompletionMessage(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str = ""
    tool_calls: Annotated[tuple[ToolCallBody, ...], Field(max_length=1000)] = ()

    @field_validator("content", mode="before")
    @classmethod
    def _joined(cls, content: Any) -> Any:
        if not isinstance(content, list):
            return content
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(texts) < len(content) or not all(isinstance(text, str) for text in texts):
            raise ValueError("only text is supported by this server")
        return "".join(str(text) for text in texts)

    @property
    def as_message(self) -> Message:
        """The message as the model is shown it."""
        if self.role == "tool":
            return Message("user", result_text(self.content))
        calls = call_texts(self.tool_calls)
        role = "system" if self.role == "developer" else self.role  # the same in newer words
        return Message(role, f"{self.content}\n{calls}" if calls and self.content else self.content or calls)


class _StreamOptions(Body):
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
    response_format: dict[str, Any] = Field({"type": "text"})
    n: Literal[1] = 1
    modalities: tuple[Literal["text"], ...] = ("text",)
    tools: Annotated[tuple[ToolBody, ...], Field(max_length=128)] = ()
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True

    @model_validator(mode="before")
    @classmethod
    def _one_stop(cls, values: Any) -> Any:
        refuse(values, _UNSUPPORTED)
        if isinstance(values, dict) and isinstance(values.get("stop"), str):
            return {**values, "stop": [values["stop"]]}
        return values

    @field_validator("response_format")
    @classmethod
    def _is_known(cls, value: dict[str, Any]) -> dict[str, Any]:
        match value:
            case {"type": "text" | "json_object"} | {"type": "json_schema", "json_schema": {"schema": dict()}}:
                return value
        raise ValueError("it must be text, json_object, or a json_schema with its schema")

    @model_validator(mode="after")
    def _tools_fit(self) -> "CompletionBody":
        names = [tool.function.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("tools: two of them have the same name")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError(f"tool_choice: no tool {self.tool_choice.function.name[:100]!r} is offered")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice: required, but no tools are offered")
        if self.offer.tools and self.response_format["type"] != "text":
            raise ValueError("response_format together with tools is not supported by this server")
        return self

    @property
    def offer(self) -> Offer:
        """The tools that the model is offered, and which of them it must call."""
        if self.tool_choice == "none":
            return Offer()
        must: tuple[str, ...] = ()
        if isinstance(self.tool_choice, NamedTool):
            must = (self.tool_choice.function.name,)
        elif self.tool_choice == "required":
            must = tuple(tool.function.name for tool in self.tools)
        return Offer(self.tools, must, self.parallel_tool_calls)

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
            case {"type": "json_schema", "json_schema": {"schema": schema}}:
                return schema
        return self.offer.schema or ""


@dataclass(frozen=True)
class CompletionAnswers:
    """Answers of /v1/chat/completions; a stream is server-sent events (the HTML standard's text/event-stream)."""

    model: str
    fingerprint: str
    include_usage: bool
    offer: Offer
    stream_type: str = "text/event-stream"
    id: str = field(default_factory=lambda: f"chatcmpl-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def piece(self, text: str) -> bytes:
        """Return a piece of a streamed reply; while it may be a call, a comment that keeps the connection in use."""
        return b": going on\n\n" if self.offer.tools else self._text(text)

    def end(self, finished: Finished) -> bytes:
        """Return the chunk with the reason of the end, the one with the usage if it was asked for, and the end mark."""
        held_back = b""
        reason = finished.completion.done_reason
        if self.offer.tools:
            reply = self.offer.read(finished.completion.text)
            calls = [call.as_value(index) for index, call in enumerate(reply.calls)]
            held_back = self._text(reply.text) if reply.text else b""
            if calls:
                held_back += self._chunk([_choice({"role": "assistant", "tool_calls": calls}, None)])
                reason = "tool_calls"
        costs = self._chunk([], usage=_usage(finished)) if self.include_usage else b""
        return held_back + self._chunk([_choice({}, reason)]) + costs + b"data: [DONE]\n\n"

    def whole(self, finished: Finished) -> Json:
        """Return the one value of a reply that is not streamed."""
        found = finished.completion
        reply = self.offer.read(found.text)
        message: Json = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.calls:
            message["content"] = reply.text or None
            message["tool_calls"] = [call.as_value() for call in reply.calls]
        reason = "tool_calls" if reply.calls else found.done_reason
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return {**self._head("chat.completion"), "choices": [choice], "usage": _usage(finished)}

    def fault(self, text: str) -> bytes:
        """Return an error as the last event."""
        return _event(error_value(text))

    def _text(self, text: str) -> bytes:
        return self._chunk([_choice({"role": "assistant", "content": text}, None)])

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
    answers = CompletionAnswers(
        body.model, f"fp_{model.digest[:16]}", body.stream_options.include_usage, offer=body.offer
    )
    return Ask(body.as_chat(), _messages(body), None, answers)


def _messages(body: CompletionBody) -> tuple[Message, ...]:
    """Return the messages as the model is shown them: tools in the system's, results of one turn together."""
    messages: list[Message] = []
    for each, before in zip(body.messages, (None, *body.messages), strict=False):
        if each.role == "tool" and before is not None and before.role == "tool":
            messages[-1] = Message("user", f"{messages[-1].content}\n{each.as_message.content}")
        else:
            messages.append(each.as_message)
    if not body.offer.tools:
        return tuple(messages)
    if messages[0].role == "system":
        return (Message("system", f"{messages[0].content}\n\n{body.offer.introduction}"), *messages[1:])
    return (Message("system", body.offer.introduction), *messages)


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
