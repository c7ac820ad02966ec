"""Find the first place in which a published file and the file of a new run differ."""

import csv
import filecmp
import io
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from pcgeval.core.text import printable_line

ABSENT = "absent"
_LONGEST = 80  # characters of a value
_MOST_BYTES = 2**24  # of a file whose values are compared
_BEFORE = 20  # characters before the first difference of two long texts
# the fields that name an entry of a list
_NAMES = ("team", "teamName", "letter", "character", "trial", "tag", "id", "key")


@dataclass(frozen=True)
class Difference:
    """The first place in which a published file differs from that of a new run."""

    path: str  # relative to the competition's folder
    place: str  # such as `teams[beta].total` or `line 3`; empty for the whole file
    published: str  # the value as text, cut if it is long
    again: str  # the value of the new run

    def __str__(self) -> str:
        """Return the difference in a line."""
        place = f": {self.place}" if self.place else ""
        return f"{self.path}{place}: published {self.published}, again {self.again}"


def compare_files(published: Path, again: Path, path: str) -> Difference | None:
    """Return the first difference of two files, one of which may be missing; None if they have the same bytes."""
    sizes = [file.stat().st_size if file.is_file() else None for file in (published, again)]
    if sizes == [None, None] or (None not in sizes and filecmp.cmp(published, again, shallow=False)):
        return None
    if None in sizes:
        return Difference(path, "", *(ABSENT if size is None else f"a file of {size} bytes" for size in sizes))
    place, value, value_again = "", f"{sizes[0]} bytes", f"{sizes[1]} other bytes"
    if sum(filter(None, sizes)) <= _MOST_BYTES:
        with suppress(ValueError, RecursionError, csv.Error, StopIteration):  # malformed, or the same values
            texts = published.read_bytes().decode(), again.read_bytes().decode()
            place, value, value_again = next(_differences(path, *texts))
    return Difference(path, place, *shown(value, value_again))


def _differences(path: str, one: str, other: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places in which two texts differ: values where the file has such, then lines."""
    if path.endswith(".json"):
        yield from _values("", json.loads(one), json.loads(other))
    elif path.endswith(".csv"):
        yield from _values("", *(list(csv.DictReader(io.StringIO(text, newline=""))) for text in (one, other)))
    for number, (line, line_again) in enumerate(zip_longest(one.splitlines(), other.splitlines()), start=1):
        if line != line_again:
            yield f"line {number}", line, line_again


def _values(place: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the places in which two values differ, depth first."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted(one.keys() | other.keys(), key=str):
            yield from _values(f"{place}.{key}".lstrip("."), one.get(key, ABSENT), other.get(key, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for number, (entry, entry_again) in enumerate(zip_longest(one, other, fillvalue=ABSENT)):
            names = [str(entry[name]) for name in _NAMES if name in entry] if isinstance(entry, dict) else []
            name = printable_line(" ".join(names), _LONGEST) or str(number)
            yield from _values(f"{place}[{name}]", entry, entry_again)
    elif one != other:
        yield place, one, other


def shown(one: Any, other: Any) -> tuple[str, str]:
    """Return two values as text, long ones cut to 80 characters around the place in which they differ."""
    texts = [value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in (one, other)]
    same = len(os.path.commonprefix(texts))  # noqa: RUF071 - texts, no paths
    start = max(0, same - _BEFORE) if max(map(len, texts)) > _LONGEST else 0
    before = "..." if start else ""
    return before + printable_line(texts[0][start:], _LONGEST), before + printable_line(texts[1][start:], _LONGEST)
