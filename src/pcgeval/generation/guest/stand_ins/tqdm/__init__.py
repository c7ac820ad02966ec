"""Replace tqdm, which the official package brings along: nobody sees a program's progress bars."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["tqdm", "trange"]


class tqdm:  # noqa: N801 - its name
    """An iterable that passes the items on; every other method of a progress bar does nothing."""

    def __init__(self, iterable: Any = None, *_: object, **__: object) -> None:
        """Take the items, and any settings."""
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        """Return the items."""
        return iter(self.iterable)

    def __len__(self) -> int:
        """Return how many items there are."""
        return len(self.iterable)

    def __enter__(self) -> tqdm:  # noqa: PYI034 - typing.Self is younger than Python 3.9
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Have nothing to close."""

    def __getattr__(self, name: str) -> Any:
        """Return a method that does nothing."""
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
