"""Writing a level as Science Birds XML, byte for byte like the official converter."""

from decimal import Decimal
from functools import cache
from typing import Final

from pcgeval.levels.blocks import BlockType
from pcgeval.levels.calls import Kind, read_calls
from pcgeval.levels.grid import SHAPES, drop

CELL = Decimal("0.2401")  # metres; this and the next two are the official converter's
LEFT, GROUND = Decimal(2), Decimal("-3.5")
LEAST_VIEW = Decimal(17)  # metres
_DRAWN: Final[dict[Kind, tuple[BlockType, int]]] = {  # the game's type and its rotation in degrees
    "b11": ("SquareTiny", 0),
    "b13": ("RectSmall", 90),
    "b31": ("RectSmall", 0),
}
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
    return _HEAD.format(least=_plain(least), most=_plain(least + 5))


@cache
def _block_line(kind: Kind, column: int, row: int) -> str:
    """Return the element of a block with this centre column and bottom row."""
    width, height = SHAPES[kind]
    x = LEFT + CELL * (column - width // 2) + CELL * width / 2
    y = GROUND + CELL * row + CELL * height / 2
    block_type, rotation = _DRAWN[kind]
    return _BLOCK.format(type=block_type, x=_plain(x), y=_plain(y), rotation=rotation)


def _plain(number: Decimal) -> str:
    """Write exact decimals without trailing zeros or an exponent."""
    return f"{number.normalize():f}"
