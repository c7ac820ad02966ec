"""OpenAI's routes of `serve-local`: `/v1/models` and `/v1/chat/completions`, which llama.cpp's own server answers.

The request is checked, and completed with the defaults. Beside the interface's own fields these are Ollama's options
(`top_k`, `min_p`, `repeat_penalty`, `num_ctx`, ...); what is absent has Ollama's value: temperature 1, top_p 1, else
its defaults. A prompt that is too long is refused, never cut. Fields that would change what an answer has in it are
refused where they are not supported; other unknown ones, such as a sampler's of another server, are ignored.

Tools are ours: llama.cpp does not enforce `tool_choice` and ignores tools where a model's template knows none. While
tools are offered a stream begins when the reply has ended: whether it is a call shows only then.
"""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pcgeval.llm.llamacpp import CONTEXT, message_bodies, sampling, schema_format
from pcgeval.llm.protocol import Message
from pcgeval.serve.models import ModelFile, ModelManager
from pcgeval.serve.requests import Body, Json, OptionsBody, read_body, refuse, respond
from pcgeval.serve.tools import NamedTool, Offer, ToolBody, ToolCallBody

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
            return Message("user", f"<tool_response>\n{self.content}\n</tool_response>")
        calls = "\n".join(call.text for call in self.tool_calls)
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
    cache_prompt: bool = False  # llama.cpp's own: read only what the prompt before did not have; may change a text

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

    @property
    def wire(self) -> Json:
        """The body for llama.cpp; raises SchemaError for a schema that it cannot obey."""
        options = self.model_dump(include=set(OptionsBody.model_fields), exclude_none=True)
        fields = {
            **sampling({**options, "num_predict": self.max_completion_tokens or self.max_tokens or -1}),
            "model": self.model,
            "messages": message_bodies(_messages(self)),
            "stop": list(self.stop),
            "stream": self.stream and not self.offer.tools,
            "stream_options": {"include_usage": self.stream_options.include_usage},
        }
        if self.offer.must:
            return {**fields, **schema_format(self.offer.schema)}
        match self.response_format:
            case {"type": "json_schema", "json_schema": {"schema": schema}}:
                return {**fields, **schema_format(schema)}
        return {**fields, "response_format": self.response_format}


class OpenAiRoutes:
    """The endpoints over one model manager."""

    def __init__(self, manager: ModelManager) -> None:
        self._manager = manager
        self.routes = [
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route("/v1/chat/completions", self._complete, methods=["POST"]),
        ]

    async def _models(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_model_value(file) for file in self._manager.files]})

    async def _model(self, request: Request) -> Response:
        return JSONResponse(_model_value(self._manager.find(request.path_params["name"])))

    async def _complete(self, request: Request) -> Response:
        body = await read_body(request, CompletionBody)
        values = self._values(body, self._manager.find(body.model))
        return await respond(request, values, stream=body.stream)

    async def _values(self, body: CompletionBody, file: ModelFile) -> AsyncIterator[Json]:
        """Yield the chunks of a streamed answer, or one whole, in which llama.cpp would name the model's path."""
        identity = {"model": body.model, "system_fingerprint": f"fp_{file.digest[:16]}"}
        async with (
            self._manager.borrow(file, body.num_ctx or CONTEXT) as engine,
            engine.post("/v1/chat/completions", body.wire, reuse_prefix=body.cache_prompt) as answer,
        ):
            if body.wire["stream"]:
                async for line in answer.aiter_lines():
                    if line.startswith("data: {"):
                        yield {**json.loads(line.removeprefix("data: ")), **identity}
                return
            whole = {**json.loads(await answer.aread()), **identity}
        if body.offer.tools:
            _take_calls(whole, body.offer)
        if not body.stream:
            yield whole
            return
        for chunk in _chunks(whole, include_usage=body.stream_options.include_usage):
            yield chunk


def _take_calls(answer: Json, offer: Offer) -> None:
    """Move the calls of tools from the text of a whole answer to their place."""
    choice = answer["choices"][0]
    message = choice["message"]
    text, calls = offer.read(message["content"] or "")
    message["content"] = text or (None if calls else "")
    if calls:
        message["tool_calls"] = calls
        choice["finish_reason"] = "tool_calls"


def _chunks(answer: Json, *, include_usage: bool) -> list[Json]:
    """Return a whole answer as the chunks of a stream."""
    choice = answer["choices"][0]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    head = {name: answer[name] for name in ("id", "created", "model", "system_fingerprint")}
    head["object"] = "chat.completion.chunk"
    return [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        *([{**head, "choices": [], "usage": answer["usage"]}] if include_usage else []),
    ]


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


def _model_value(file: ModelFile) -> Json:
    """Return a model's entry in the list of models."""
    return {"id": file.name, "object": "model", "created": int(file.modified.timestamp()), "owned_by": "library"}
