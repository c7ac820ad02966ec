"""The bodies of Ollama's requests, checked at the edge (Ollama's API reference, "Generate a (chat) completion")."""

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pcgeval.core.errors import PcgevalError
from pcgeval.llm.llamacpp import schema_format

_KEEP_ALIVE = 300.0  # seconds; Ollama's default
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}  # Go's durations
_DURATION = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")
# what Ollama offers and this server does not: refused, so that no client takes silence for obedience
_REFUSED = ("tools", "think", "images", "suffix", "template", "context", "logprobs")


class RequestError(PcgevalError):
    """A body that is no request of this interface; answered with status 400."""


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

    model: str = Field("", validation_alias="model")
    name: str = ""  # the older name of the same field

    @property
    def wanted(self) -> str:
        """The model's name, under either field."""
        if not (self.model or self.name):
            raise RequestError("model is required")
        return self.model or self.name


class AskBody(ShowBody):
    """What chat and generate have in common."""

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


def parse_body(kind: type[B], content: bytes) -> B:
    """Read a request's body.

    Raises:
        RequestError: It is empty, no JSON, or lacks something; the message names the field.
    """
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
