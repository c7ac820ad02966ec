"""What folders and zip files that were handed in have in common: the files that they list, and their bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from pcgeval.core.errors import PcgevalError
from pcgeval.submissions.findings import Finding

CHUNK = 2**18  # bytes
MOST_FILES = 10_000
MOST_BYTES = 2**30  # the competition's rule: a program has at most 1 GB with all its data


class HandInError(PcgevalError):
    """What was named is neither a folder nor a zip file; or a file in it cannot be read."""


@dataclass(frozen=True)
class Item:
    """One file as the folder or the zip file lists it."""

    name: str  # with forward slashes, as it stands there
    size: int  # bytes, as it says


@dataclass(frozen=True)
class Listing:
    """What a submission holds, and what is wrong with that already."""

    items: tuple[Item, ...]
    findings: tuple[Finding, ...]
    is_readable: bool = True  # whether the files' bytes may be read at all


class HandIn(Protocol):
    """A folder or a zip file that was handed in."""

    def listing(self) -> Listing:
        """List the regular files, by name and size only; at most a few times MOST_FILES are looked at."""

    def chunks(self, item: Item) -> Iterator[bytes]:
        """Yield the bytes of a listed file, at most CHUNK at a time.

        Raises:
            HandInError: They cannot be read; the message follows the file's name.
        """
