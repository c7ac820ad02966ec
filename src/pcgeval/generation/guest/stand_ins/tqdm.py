"""Replace tqdm, which the official package brings along: nobody sees a program's progress bars."""  # noqa: INP001

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["tqdm", "trange"]
sys.modules["tqdm.auto"] = sys.modules[__name__]  # the name by which notebooks import it


class tqdm(AbstractContextManager[Any]):  # noqa: N801 - its name
    """An iterable that passes the items on; every other method of a progress bar does nothing."""

    def __init__(self, iterable: Any = None, *_: object, **__: object) -> None:
        """Take the items, and any settings."""
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def __len__(self) -> int:
        return len(self.iterable)

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *_, **__: None

    @classmethod
    def write(cls, text: str, *_: object, **__: object) -> None:
        """Print a text."""
        print(text)


def trange(*arguments: int, **__: object) -> tqdm:
    """Return a progress bar over a range."""
    return tqdm(range(*arguments))
