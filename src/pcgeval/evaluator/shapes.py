"""The two blocks of the competition: what collides and what is drawn, as in the Science Birds Evaluator."""

import math
from dataclasses import dataclass

from pcgeval.levels.blocks import BlockType


@dataclass(frozen=True)
class Size:
    """Width and height of an unrotated rectangle, in metres."""

    width: float
    height: float


COLLIDERS: dict[BlockType, Size] = {"RectSmall": Size(0.70, 0.22), "SquareTiny": Size(0.22, 0.21)}
SPRITES: dict[BlockType, Size] = {"RectSmall": Size(0.72, 0.24), "SquareTiny": Size(0.24, 0.23)}


@dataclass(frozen=True)
class Point:
    """A place in the level in metres, y upwards."""

    x: float
    y: float


def corners(size: Size, x: float, y: float, angle: float) -> list[Point]:
    """Return the corners of a rectangle centred at (x, y) metres and turned by `angle` radians, in ring order."""
    cosine, sine = math.cos(angle), math.sin(angle)
    half_width, half_height = size.width / 2, size.height / 2
    return [
        Point(x + across * cosine - up * sine, y + across * sine + up * cosine)
        for across, up in (
            (-half_width, -half_height),
            (half_width, -half_height),
            (half_width, half_height),
            (-half_width, half_height),
        )
    ]
