"""Replace the openai package where a program imports it without naming it in a requirements.txt.

Programs of the competition ask the model through the interface; this client can be opened, but not used.
"""  # noqa: INP001

from __future__ import annotations

import sys

sys.modules["openai.types"] = sys.modules["openai.types.chat"] = sys.modules[__name__]


class OpenAIError(Exception):
    """The base of the package's exceptions."""


class OpenAI:
    """A client that reaches nobody."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take any settings."""

    def __getattr__(self, name: str) -> object:
        raise OpenAIError(f"OpenAI.{name}: programs ask the model with chat_with_llm or chat_with_chatgpt")


AsyncOpenAI = OpenAI


def __getattr__(name: str) -> type:
    """Return an exception for a name that ends as one, and a class of dicts, as messages are, for any other class."""
    if name[:1].isupper():
        return type(name, (OpenAIError if name.endswith("Error") else dict,), {})
    raise AttributeError(f"the openai package is not installed, and its stand-in has no {name}")
