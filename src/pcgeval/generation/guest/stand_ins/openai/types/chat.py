"""Offer the messages of a conversation, which are dicts, under any of the package's names for them."""

from __future__ import annotations


def __getattr__(name: str) -> type[dict[str, object]]:
    """Return a class of dicts for any name of a class."""
    if name[:1].isupper():
        return type(name, (dict,), {})
    raise AttributeError(name)
