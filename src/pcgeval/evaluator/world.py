"""The Science Birds Evaluator: the shapes of its blocks, the settings of its physics, and the interface of the engines.

Units are metres, seconds, kilograms and radians. The evaluator runs in Unity 2019.4, with Box2D 2.3 as its 2D physics.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pcgeval.formats.blocks import BlockType
from pcgeval.formats.params import PhysicsParams
from pcgeval.formats.stages import BlockPath
from pcgeval.levels.blocks import Block

if TYPE_CHECKING:  # who draws the shapes of blocks needs no numpy
    import numpy as np
    from numpy.typing import NDArray

GRAVITY = 9.81 * 0.5  # m/s2 downwards: Unity's default times the blocks' gravity scale
DENSITY = 1.0  # kg/m2, wood
LINEAR_DRAG = 1.0  # 1/s: a velocity is divided by 1 + step * drag in each step
ANGULAR_DRAG = 0.05  # 1/s
BLOCK_FRICTION = 4.0  # wood; a pair has sqrt(f1 * f2)
GROUND_FRICTION = 0.4  # no material: Unity's default
GROUND_TOP = -3.5  # y of the ground's surface
GROUND_HALF_WIDTH = 10_000.0  # wider than any block can travel from the farthest place a level may name


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


def square_around(blocks: Sequence[tuple[BlockType, Sequence[float]]]) -> tuple[Point, float]:
    """Return the upper left corner and the side of the smallest square around colliders, given by type and place."""
    points = [point for kind, (x, y, angle) in blocks for point in corners(COLLIDERS[kind], x, y, angle)]
    left, right = min(point.x for point in points), max(point.x for point in points)
    bottom, top = min(point.y for point in points), max(point.y for point in points)
    side = max(right - left, top - bottom)
    return Point((left + right - side) / 2, (bottom + top + side) / 2), side


class World(ABC):
    """A level in motion; every sequence is in the order of the level's blocks.

    An engine gets the ground first and then the blocks in order, because the order of contacts changes the outcome.
    """

    def __init__(self, blocks: Sequence[Block], physics: PhysicsParams) -> None:
        self.step = physics.step
        self.life = [physics.life] * len(blocks)  # of each block, in m/s; at 0 or less it is dead
        self.dying: list[int] = []  # killed by the step in progress

    @abstractmethod
    def advance(self) -> None:
        """Simulate one step; blocks that die in it vanish at its end."""

    @property
    @abstractmethod
    def asleep(self) -> bool:
        """Whether every living block sleeps, after which nothing changes."""

    @property
    @abstractmethod
    def places(self) -> "NDArray[np.float64]":
        """The x, y and rotation of each block, shape (blocks, 3); a dead block stays where it died."""

    @property
    def dead(self) -> tuple[bool, ...]:
        """Whether each block was destroyed by impacts."""
        return tuple(life <= 0 for life in self.life)

    def damage(self, index: int, speed: float) -> None:
        """Take the relative speed of a new contact, in m/s, from a block's life."""
        if self.life[index] > 0:
            self.life[index] -= speed
            if self.life[index] <= 0:
                self.dying.append(index)


@dataclass(frozen=True, eq=False)
class Stability:
    """One simulated level; all sequences are in the order of the blocks in the XML file.

    Attributes:
        positions: Shape (n, 3), float64, read-only: x and y in metres (y upwards) and the rotation in radians at the
            end, rounded to 6 decimals. A dead block has the place where it died.
        moved: Whether each block ended `moved_distance` or more from its place in the level, or died.
        dead: Whether impacts destroyed each block.
        trial: The number of the best trial, reported here; trial 1 starts exactly as written.
        starts: The scores of `physics.starts` more trials with a jitter, which do not count.
        paths: The paths of the blocks that moved visibly or broke.
    """

    types: tuple[BlockType, ...]
    positions: "NDArray[np.float64]"
    moved: tuple[bool, ...]
    dead: tuple[bool, ...]
    trial: int = 1
    starts: tuple[float, ...] = ()
    paths: tuple[BlockPath, ...] = ()

    @property
    def total_blocks(self) -> int:
        """The number of blocks in the level (`startingObjects` of the official file)."""
        return len(self.types)

    @property
    def moving_blocks(self) -> int:
        """The number of blocks that moved or died (`movingObjects` of the official file)."""
        return sum(self.moved)

    @property
    def score(self) -> float:
        """The share of blocks that stayed, 0 to 1; 0 without blocks, where the official evaluator writes NaN."""
        return (self.total_blocks - self.moving_blocks) / self.total_blocks if self.types else 0.0
