"""Drop blocks into the grid of the competition, 20 columns and 16 rows from the bottom up, and write the level."""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from pcgeval.core.text import plain
from pcgeval.formats.blocks import BLOCKS
from pcgeval.formats.failures import failure
from pcgeval.levels.extraction import Call, LevelError, quoted, read_calls

CELL = Decimal("0.2401")  # metres; this and the next two are the official converter's
LEFT, GROUND = Decimal(2), Decimal("-3.5")
LEAST_VIEW = Decimal(17)  # metres
_HEAD = """\
<?xml version="1.0" encoding="utf-16"?>
<Level width="3">
  <Camera x="2" y="0" minWidth="{least}" maxWidth="{most}" />
  <Birds>
    <Bird type="BirdRed" />
  </Birds>
  <Slingshot x="-9" y="-2.5" />
  <GameObjects>
"""
_BLOCK = '    <Block type="{type}" material="wood" x="{x}" y="{y}" rotation="{rotation}" />\n'
_TAIL = "  </GameObjects>\n</Level>"

COLUMNS = 20
ROWS = 16


class Placed(NamedTuple):
    """A block that came to rest: its centre column and its bottom row."""

    kind: str
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
    width, height, *_ = BLOCKS[kind]
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


def level_xml(code: str) -> str:
    """Convert extracted calls to a level, byte for byte as `convertTextToXML` of the competition's library does.

    The structure is shifted to the left edge; the blocks keep the order of the calls. No call gives an empty level.
    The text declares UTF-16, as the official one does; write it as UTF-8.

    Raises:
        LevelError: A call is invalid; the message is the official one, the failure names the call.
    """
    structure = drop(read_calls(code))
    first = structure.first_column
    lines = [_block_line(kind, column - first, row) for kind, column, row in structure.blocks]
    return "".join([_head(structure.rows), *lines, _TAIL])


@cache
def _head(rows: int) -> str:
    """Return the part before the blocks; the camera sees 3.2 times the height of the used rows, or 17 metres.

    The official formula also looks at the used cells of a row, but a full row needs only 13.6 metres.
    """
    least = max(2 * Decimal("1.6") * (-GROUND + CELL * rows), LEAST_VIEW)
    return _HEAD.format(least=plain(least), most=plain(least + 5))


@cache
def _block_line(kind: str, column: int, row: int) -> str:
    """Return the element of a block with this centre column and bottom row."""
    width, height, block_type, rotation = BLOCKS[kind]
    x = LEFT + CELL * (column - width // 2) + CELL * width / 2
    y = GROUND + CELL * row + CELL * height / 2
    return _BLOCK.format(type=block_type, x=plain(x), y=plain(y), rotation=rotation)
