"""The table of blocks: the calls that are read, their words in messages and the level's XML follow from it."""

from typing import Final, Literal, NamedTuple

BlockType = Literal["RectSmall", "SquareTiny"]  # of the game; evaluator/world.py has their sizes in metres


class Shape(NamedTuple):
    """The size of a block in cells, and what the game builds.

    The width is odd, so that the block has a centre column. The rotation is in degrees.
    """

    width: int
    height: int
    type: BlockType
    rotation: int


BLOCKS: Final = {  # b, width and height, one digit each
    "b11": Shape(1, 1, "SquareTiny", 0),
    "b13": Shape(1, 3, "RectSmall", 90),
    "b31": Shape(3, 1, "RectSmall", 0),
}
*_FIRST, _LAST = (f"'{name}'" for name in BLOCKS)
NAMES = f"{', '.join(_FIRST)} and {_LAST}"
ANY_BLOCK = "|".join(BLOCKS)  # as a pattern
# The official pattern puts `|` between the digits of a class, so that it accepts `b|3`, too.
LOOSE_BLOCK = f"b[{'|'.join(sorted({name[1] for name in BLOCKS}))}][{'|'.join(sorted({name[2] for name in BLOCKS}))}]"
