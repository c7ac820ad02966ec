"""Dropping blocks into the grid of the competition: 20 columns, 16 rows, row 0 at the bottom."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pcgeval.core.failures import failure
from pcgeval.levels.calls import Call, Kind, quoted
from pcgeval.levels.errors import LevelError

COLUMNS = 20
ROWS = 16


class Shape(NamedTuple):
    """The size of a block in cells; the width is odd, so that it has a centre column."""

    width: int
    height: int


SHAPES: Final[dict[Kind, Shape]] = {"b11": Shape(1, 1), "b13": Shape(1, 3), "b31": Shape(3, 1)}


class Placed(NamedTuple):
    """A block that came to rest: its centre column and its bottom row."""

    kind: Kind
    column: int
    row: int


@dataclass(frozen=True)
class Structure:
    """All blocks in the order of dropping, the leftmost used column, and how many rows are used."""

    blocks: tuple[Placed, ...]
    first_column: int
    rows: int


def drop(calls: Iterable[Call]) -> Structure:
    """Drop the blocks one after the other.

    Raises:
        LevelError: A block is unknown or does not fit; the message is the official one, the failure names the call.
    """
    tops = [0] * COLUMNS  # the row above the highest used cell of each column
    blocks = [_drop_one(number, call, tops) for number, call in enumerate(calls, start=1)]
    first = next((column for column, top in enumerate(tops) if top), 0)
    return Structure(tuple(blocks), first, max(tops))


def _drop_one(number: int, call: Call, tops: list[int]) -> Placed:
    """Place one block on top of what lies under its cells; the order of the checks is the official one."""

    def refused(why: str, **values: Any) -> LevelError:
        because = failure(why, number=number, call=quoted(call.text), **values)
        return LevelError(because.sentence.partition(" (")[0], because)

    kind, column = call.kind, call.column
    if kind is None:
        raise refused("unknown-block")
    if column is None or column >= COLUMNS:
        raise refused("no-column", last=COLUMNS - 1)
    width, height = SHAPES[kind]
    left, right = column - width // 2, column + width // 2 + 1
    if tops[column] == ROWS:
        raise refused("too-high", free=0, rows=ROWS, height=height)
    if left < 0 or right > COLUMNS:
        raise refused("too-wide", block=kind, first=width // 2, last=COLUMNS - 1 - width // 2)
    # The official tool starts its search in the top row without looking beside the centre: a wide block next to a
    # full column stays there, overlapping it.
    row = min(max(tops[left:right]), ROWS - 1)
    if row + height > ROWS:
        raise refused("too-high", free=ROWS - row, rows=ROWS, height=height)
    tops[left:right] = [row + height] * width
    return Placed(kind, column, row)
