"""The result of a simulation: the blocks that stayed, moved and broke."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.layout import Trial, tag
from pcgeval.core.stage_files import BlockPath, StabilityEntry, StabilityFile, rate
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
        """The share of blocks that stayed, 0 to 1."""
        return share_that_stayed(self.moved)


def share_that_stayed(moved: Sequence[bool]) -> float:
    """Return the share of blocks that stayed, 0 to 1; 0 without blocks, where the official evaluator writes NaN."""
    return (len(moved) - sum(moved)) / len(moved) if moved else 0.0


def stability_file(team: str, moved: Mapping[Trial, Sequence[bool]]) -> StabilityFile:
    """Return a letter's official file from `moved` of each level.

    The official tag is the full path of the level file; ours starts at the team's folder, the same on every machine.
    """
    levels = tuple(
        StabilityEntry(
            name=f"{team}/levels/{trial.letter}/{tag(team, trial)}.xml",
            score=share_that_stayed(of_level),
            total_blocks=len(of_level),
            moving_blocks=sum(of_level),
        )
        for trial, of_level in sorted(moved.items())
    )
    return StabilityFile(count=len(levels), rate=rate([level.score for level in levels]), levels=levels)
