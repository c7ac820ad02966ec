"""Tools for `serve-local`: how the model is told of them, and how its calls are read.

Both go through plain text in the form that Qwen's models were trained for (Nous Research's "Hermes" function calling),
so that any model can be offered tools, also one whose own template knows none. A call that must be made
(`tool_choice` required, or a function's name) is held to the tool's JSON schema by a grammar.
"""

import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from pcgeval.llm.schemas import checked_schema
from pcgeval.serve.requests import Body

_INTRODUCTION = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{signatures}
</tools>

For each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""
# small models forget the tags, or fence the call as code
_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|\Z)|```(?:json)?\n(.*?)```", re.DOTALL)
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


class _Function(Body):
    name: _Name
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolBody(Body):
    """One tool that a request offers."""

    type: Literal["function"]
    function: _Function

    @model_validator(mode="after")
    def _can_be_shown(self) -> "ToolBody":
        """Refuse what no JSON can say, such as NaN, with the request."""
        _ = self.signature
        return self

    @cached_property
    def signature(self) -> str:
        """The tool as the model is shown it."""
        return _json({"type": "function", "function": self.function.model_dump(exclude_none=True)})

    @property
    def call_schema(self) -> dict[str, Any]:
        """The JSON schema of a call of it; raises SchemaError where its parameters' schema cannot be obeyed."""
        arguments = checked_schema(self.function.parameters or {"type": "object"})
        return {
            "type": "object",
            "properties": {"name": {"const": self.function.name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }


class _Named(Body):
    name: str


class NamedTool(Body):
    """A `tool_choice` that names the function to be called."""

    type: Literal["function"]
    function: _Named


class _Called(Body):
    name: str
    arguments: str = "{}"

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_text(cls, arguments: Any) -> Any:
        return _json(arguments) if isinstance(arguments, dict) else arguments


class ToolCallBody(Body):
    """One call in an assistant's message of an earlier turn."""

    type: Literal["function"] = "function"
    function: _Called

    @property
    def text(self) -> str:
        """The call as the model wrote it, or could have."""
        name, arguments = self.function.name, self.function.arguments
        try:
            return _call_text(_json({"name": name, "arguments": json.loads(arguments)}))
        except (ValueError, RecursionError):
            return _call_text(_json({"name": name, "arguments": arguments}))


@dataclass(frozen=True)
class ToolCall:
    """One call that a model made; `arguments` is a JSON object as text."""

    name: str
    arguments: str

    def as_value(self, index: int | None = None) -> dict[str, Any]:
        """Return it as an answer has it, within a stream with its index."""
        value = {
            "id": f"call_{secrets.token_hex(12)}",
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        }
        return value if index is None else {"index": index, **value}


@dataclass(frozen=True)
class Reply:
    """A reply taken apart: what it says, and which tools it calls."""

    text: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Offer:
    """The tools of one request; `must` names those of which one must be called."""

    tools: tuple[ToolBody, ...] = ()
    must: tuple[str, ...] = ()
    parallel: bool = True

    @property
    def introduction(self) -> str:
        """What the system message says of them."""
        return _INTRODUCTION.format(signatures="\n".join(tool.signature for tool in self.tools))

    @property
    def schema(self) -> dict[str, Any] | None:
        """The JSON schema of a reply that must be a call; None where it may be any text."""
        schemas = [tool.call_schema for tool in self.tools if tool.function.name in self.must]
        return {"anyOf": schemas} if len(schemas) > 1 else next(iter(schemas), None)

    def read(self, text: str) -> Reply:
        """Take a reply apart; what is no well-formed call of a tool that was offered stays text."""
        if not self.tools:
            return Reply(text)
        names = {tool.function.name for tool in self.tools}
        calls: list[ToolCall] = []
        rest: list[str] = []
        for piece, whole in _pieces(text):
            found = _calls(piece, names)
            calls += found
            rest += [] if found else [whole]
        if not calls:
            return Reply(text)
        return Reply("".join(rest).strip(), tuple(calls if self.parallel else calls[:1]))


def call_texts(calls: Sequence[ToolCallBody]) -> str:
    """Return an earlier turn's calls as the model wrote them."""
    return "\n".join(call.text for call in calls)


def result_text(content: str) -> str:
    """Return a tool's result as the model is shown it."""
    return f"<tool_response>\n{content}\n</tool_response>"


def _call_text(call: str) -> str:
    return f"<tool_call>\n{call}\n</tool_call>"


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yield a text's parts in order: what may be a call, and the same with its marks."""
    place = 0
    for match in _CALL.finditer(text):
        yield text[place : match.start()], text[place : match.start()]
        yield match[1] or match[2] or "", match[0]
        place = match.end()
    yield text[place:], text[place:]


def _calls(piece: str, names: set[str]) -> list[ToolCall]:
    """Read a piece that consists of nothing but calls; none where anything else is in it."""
    calls: list[ToolCall] = []
    rest = piece.strip()
    while rest:
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
            call = _call(value, names)
        except (ValueError, RecursionError):
            return []
        if call is None:
            return []
        calls.append(call)
        rest = rest[end:].strip()
    return calls


def _call(value: Any, names: set[str]) -> ToolCall | None:
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or name not in names:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return ToolCall(name, _json(arguments)) if isinstance(arguments, dict) else None


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
