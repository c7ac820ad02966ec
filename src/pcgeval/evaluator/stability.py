"""The result of a simulation: the blocks that stayed, moved and broke."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.stage_files import BlockPath
from pcgeval.levels.blocks import BlockType


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
    positions: NDArray[np.float64]
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
