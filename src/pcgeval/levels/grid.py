"""Dropping blocks into the grid of the competition: 20 columns, 16 rows, row 0 at the bottom."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from pcgeval.core.failures import failure
from pcgeval.levels.calls import Call, Kind
from pcgeval.levels.errors import LevelError

COLUMNS = 20
ROWS = 16
UNKNOWN_TYPE = "BlockType does not exist."  # these three are the official converter's messages
HEIGHT_INTRUDED = "Height boundary is intruded."
WIDTH_INTRUDED = "Width boundary is intruded."
_KINDS = {UNKNOWN_TYPE: "unknown-block", HEIGHT_INTRUDED: "too-high", WIDTH_INTRUDED: "too-wide"}


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
        LevelError: A block is unknown or does not fit; the message is the official one, `failure` names the call.
    """
    tops = [0] * COLUMNS  # the row above the highest used cell of each column
    blocks = []
    for call in calls:
        try:
            blocks.append(_drop_one(call, tops))
        except LevelError as error:
            failed = failure(_KINDS[str(error)], number=len(blocks) + 1, call=repr(call.text))
            raise LevelError(str(error), failed) from None
    first = next((column for column, top in enumerate(tops) if top), 0)
    return Structure(tuple(blocks), first, max(tops))


def _drop_one(call: Call, tops: list[int]) -> Placed:
    """Place one block on top of what lies under its cells; the order of the checks is the official one."""
    kind, column = call.kind, call.column
    if kind is None:
        raise LevelError(UNKNOWN_TYPE)
    if column is None or column >= COLUMNS or tops[column] == ROWS:
        raise LevelError(HEIGHT_INTRUDED)
    width, height = SHAPES[kind]
    left, right = column - width // 2, column + width // 2 + 1
    if left < 0 or right > COLUMNS:
        raise LevelError(WIDTH_INTRUDED)
    # The official tool starts its search in the top row without looking beside the centre: a wide block next to a
    # full column stays there, overlapping it.
    row = min(max(tops[left:right]), ROWS - 1)
    if row + height > ROWS:
        raise LevelError(HEIGHT_INTRUDED)
    tops[left:right] = [row + height] * width
    return Placed(kind, column, row)
