"""Requests to `serve-local`: read within bounds, and checked at the edge.

The bodies are those of Ollama's API reference, "Generate a (chat) completion".
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from pcgeval.core.errors import PcgevalError
from pcgeval.llm.llamacpp import PromptTooLongError, schema_format

Json = dict[str, Any]
BODY_LIMIT = 16 * 2**20  # bytes
BODY_SECONDS = 60.0  # for a whole body
_KEEP_ALIVE = 300.0  # seconds; Ollama's default
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}  # Go's durations
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")
# what Ollama offers and this server does not: refused rather than ignored
_REFUSED = ("tools", "think", "images", "suffix", "template", "context", "logprobs")


class RequestError(PcgevalError):
    """A request's body is invalid; answered with status 400."""


class Body(BaseModel):
    """A part of a request's body: null is the same as absent."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, values: Any) -> Any:
        return (
            {key: value for key, value in values.items() if value is not None} if isinstance(values, dict) else values
        )


B = TypeVar("B", bound=Body)
_Int = Annotated[int, Field(ge=-(2**31), lt=2**32)]


class OptionsBody(Body):
    """The options that change a text here; the others of Ollama are ignored, as Ollama ignores unknown ones."""

    temperature: float | None = None
    top_k: _Int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: _Int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    num_predict: _Int | None = None
    seed: _Int = -1  # Ollama: another text each time
    num_ctx: int | None = Field(None, ge=1)
    stop: Annotated[tuple[str, ...], Field(max_length=64)] = ()


class MessageBody(Body):
    """One message of a chat."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    images: list[Any] = []


class ShowBody(Body):
    """A request about one model."""

    model: str = ""
    name: str = ""  # the older name of the same field

    @property
    def wanted(self) -> str:
        """The model's name, under either field."""
        if not (self.model or self.name):
            raise RequestError("model is required")
        return self.model or self.name


class AskBody(ShowBody):
    """The fields that chat and generate share."""

    stream: bool = True
    options: OptionsBody = OptionsBody()
    format: Literal["", "json"] | dict[str, Any] = ""
    keep_alive: float = _KEEP_ALIVE  # seconds; negative: for ever
    truncate: bool = True

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported(cls, values: Any) -> Any:
        refuse(values, _REFUSED)
        return values

    @field_validator("keep_alive", mode="before")
    @classmethod
    def _seconds(cls, value: Any) -> Any:
        return _duration(value) if isinstance(value, str) else value

    @property
    def response_format(self) -> dict[str, Any]:
        """The constraint on the text in llama.cpp's words; raises SchemaError where it may not be put to it."""
        if isinstance(self.format, dict):
            return schema_format(self.format)
        return {"response_format": {"type": "json_object"}} if self.format else {}


class ChatBody(AskBody):
    """A request to /api/chat; no messages: load or unload the model."""

    messages: Annotated[tuple[MessageBody, ...], Field(max_length=10_000)] = ()

    @model_validator(mode="after")
    def _no_images(self) -> "ChatBody":
        if any(message.images for message in self.messages):
            raise ValueError("images are not supported by this server")
        return self


class GenerateBody(AskBody):
    """A request to /api/generate; no prompt: load or unload the model."""

    prompt: str = ""
    system: str = ""
    raw: bool = False

    @model_validator(mode="after")
    def _raw_is_whole(self) -> "GenerateBody":
        if self.raw and self.system:
            raise ValueError("raw mode does not support template, system, or context")
        return self


def refuse(values: Any, names: Iterable[str]) -> None:
    """Raise ValueError where a body asks for something that this server does not offer."""
    if isinstance(values, dict) and (asked := [name for name in names if values.get(name)]):
        raise ValueError(f"{asked[0]} is not supported by this server")


async def read_body(request: Request, kind: type[B]) -> B:
    """Read and check a request's body.

    Raises:
        HTTPException: It is too long, or takes too long.
        RequestError: It is empty, no JSON, or lacks something; the message names the field.
    """
    content = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if max(len(content), int(request.headers.get("content-length", 0))) > BODY_LIMIT:
                    raise HTTPException(413, f"the body is over {BODY_LIMIT // 2**20} MB")
    except TimeoutError as error:
        raise HTTPException(408, f"the body took more than {BODY_SECONDS:g} s") from error
    return parse_body(kind, bytes(content))


async def respond(request: Request, values: AsyncIterator[Json], *, stream: bool) -> Response:
    """Answer with the only value, or with a stream of all; what fails before the first one has a status of its own.

    A stream is one of server-sent events (HTML, "9.2") for OpenAI's interface, else a JSON value a line.

    Work ends when the client hangs up: before the first value, ClientDisconnect is raised.
    """
    first_value = asyncio.ensure_future(anext(values))
    hung_up = asyncio.ensure_future(request.receive())  # the body was read: nothing else can come
    try:
        await asyncio.wait({first_value, hung_up}, return_when=asyncio.FIRST_COMPLETED)
        if not first_value.done():
            raise ClientDisconnect
        first = await first_value
    finally:
        hung_up.cancel()
        if first_value.cancel():
            await asyncio.wait({first_value})
    if not stream:
        return JSONResponse(first)
    is_openai = _is_openai(request)
    framed = "data: {}\n\n" if is_openai else "{}\n"

    async def written() -> AsyncIterator[str]:
        yield framed.format(json.dumps(first))
        try:
            async for value in values:
                yield framed.format(json.dumps(value))
        except PcgevalError as error:
            yield framed.format(json.dumps(error_value(request, error)))
        if is_openai:
            yield framed.format("[DONE]")

    return StreamingResponse(written(), media_type="text/event-stream" if is_openai else "application/x-ndjson")


def error_value(request: Request, error: Exception) -> Json:
    """Return an error as the interface that was asked words it."""
    text = error.detail if isinstance(error, HTTPException) else str(error)
    if not _is_openai(request):
        return {"error": text}
    code = "context_length_exceeded" if isinstance(error, PromptTooLongError) else None
    return {"error": {"message": text, "type": "api_error", "param": None, "code": code}}


def _is_openai(request: Request) -> bool:
    return request.url.path.startswith("/v1/")


def parse_body(kind: type[B], content: bytes) -> B:
    """Check a request's body; raises RequestError as `read_body` does."""
    if not content:
        raise RequestError("missing request body")
    try:
        return kind.model_validate(json.loads(content))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        message = str(fault["msg"]).removeprefix("Value error, ")
        raise RequestError(f"{place}: {message}" if place else message) from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error


def _duration(text: str) -> float:
    """Read a duration of Go's syntax, such as 5m, 1h30m, -1s or 0, in seconds."""
    if text == "0":
        return 0.0
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.removeprefix("-"):
        raise ValueError(f"invalid duration {text!r}")
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    return -seconds if text.startswith("-") else seconds
