"""Replace tqdm, which the official package brings along: nobody sees a program's progress bars."""  # noqa: INP001

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Self

sys.modules["tqdm.auto"] = sys.modules[__name__]  # the name by which notebooks import it


class tqdm:  # noqa: N801 - its name
    """An iterable that passes the items on; the other methods of a progress bar do nothing."""

    write = staticmethod(print)

    def __init__(self, iterable: Any = None, *_: object, **__: object) -> None:
        """Take the items, and any settings."""
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def __len__(self) -> int:
        return len(self.iterable)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


def trange(*arguments: int, **__: object) -> tqdm:
    """Return a progress bar over a range."""
    return tqdm(range(*arguments))
