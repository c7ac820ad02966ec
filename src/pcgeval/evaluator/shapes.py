"""The colliders and the sprites of the competition's two blocks, as in the Science Birds Evaluator."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pcgeval.levels.blocks import BlockType


class Size(NamedTuple):
    """Width and height of an unrotated rectangle, in metres."""

    width: float
    height: float


COLLIDERS: dict[BlockType, Size] = {"RectSmall": Size(0.70, 0.22), "SquareTiny": Size(0.22, 0.21)}
SPRITES: dict[BlockType, Size] = {"RectSmall": Size(0.72, 0.24), "SquareTiny": Size(0.24, 0.23)}


class Point(NamedTuple):
    """A point in the level in metres, y upwards."""

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


def square_around(points: Sequence[Point]) -> tuple[Point, float]:
    """Return the upper left corner and the side of the smallest square around points."""
    left, right = min(point.x for point in points), max(point.x for point in points)
    bottom, top = min(point.y for point in points), max(point.y for point in points)
    side = max(right - left, top - bottom)
    return Point((left + right - side) / 2, (bottom + top + side) / 2), side
