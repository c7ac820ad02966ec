"""Replace the openai package where a program imports it without naming it in a requirements.txt.

Programs of the competition ask the model through the interface; an openai client can be made here, but not used.
"""

from __future__ import annotations


class OpenAIError(Exception):
    """The base of the package's exceptions."""


class OpenAI:
    """A client that reaches nobody."""

    def __init__(self, *_: object, **__: object) -> None:
        """Take any settings."""

    def __getattr__(self, name: str) -> object:
        """Refuse to be used."""
        raise OpenAIError(
            f"{type(self).__name__}.{name}: programs ask the model with chat_with_llm or chat_with_chatgpt"
        )


class AsyncOpenAI(OpenAI):
    """The same for programs that wait."""


def __getattr__(name: str) -> type[OpenAIError]:
    """Return an exception for any name that ends as one: a program may want to catch it."""
    if name.endswith("Error"):
        return type(name, (OpenAIError,), {})
    raise AttributeError(f"the openai package is not installed, and its stand-in has no {name}")
