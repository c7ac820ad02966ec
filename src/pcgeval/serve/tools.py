"""Tools for `serve-local`: how the model is told of them, and how its calls are read.

Both go through plain text in the form that Qwen's models were trained for (Nous Research's "Hermes" function calling),
so that any model can be offered tools, also one whose own template knows none. A call that must be made
(`tool_choice` required, or a function's name) is held to the tool's JSON schema by a grammar.
"""

import json
import re
import secrets
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
            call = _json({"name": name, "arguments": json.loads(arguments)})
        except (ValueError, RecursionError):
            call = _json({"name": name, "arguments": arguments})
        return f"<tool_call>\n{call}\n</tool_call>"


@dataclass(frozen=True)
class Offer:
    """The tools of one request; `must` names those of which one must be called."""

    tools: tuple[ToolBody, ...] = ()
    must: tuple[str, ...] = ()
    parallel: bool = True

    @property
    def introduction(self) -> str:
        """The part of the system message that describes them."""
        return _INTRODUCTION.format(signatures="\n".join(tool.signature for tool in self.tools))

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of a reply that must be a call."""
        schemas = [tool.call_schema for tool in self.tools if tool.function.name in self.must]
        return {"anyOf": schemas} if len(schemas) > 1 else schemas[0]

    def read(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """Take a reply apart: what it says, and the calls as an answer has them.

        What is no well-formed call of a tool that was offered stays text.
        """
        names = {tool.function.name for tool in self.tools}
        calls: list[dict[str, Any]] = []
        rest: list[str] = []
        place = 0
        for match in _CALL.finditer(text):
            before = text[place : match.start()]
            for piece, whole in ((before, before), (match[1] or match[2] or "", match[0])):
                calls += (found := _calls(piece, names))
                rest += [] if found else [whole]
            place = match.end()
        calls += (found := _calls(text[place:], names))
        rest += [] if found else [text[place:]]
        if not calls:
            return text, []
        return "".join(rest).strip(), calls if self.parallel else calls[:1]


def _calls(piece: str, names: set[str]) -> list[dict[str, Any]]:
    """Read a piece that consists of nothing but calls; none where anything else is in it."""
    calls: list[dict[str, Any]] = []
    rest = piece.strip()
    while rest:
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
            if not isinstance(value, dict) or not isinstance(name := value.get("name"), str) or name not in names:
                return []
            arguments = value.get("arguments", value.get("parameters", {}))
            if not isinstance(arguments, dict):
                return []
            function = {"name": name, "arguments": _json(arguments)}
        except (ValueError, RecursionError):
            return []
        calls.append({"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": function})
        rest = rest[end:].strip()
    return calls


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
