"""The result of simulating one level: which blocks stayed where they were put."""

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
        types: The type of each block.
        positions: Shape (n, 3), float64, read-only: x and y in metres (y upwards) and the rotation in radians at the
            end, rounded to 6 decimals. A dead block has the place where it died.
        moved: Whether each block ended `moved_distance` or more from its place in the level, or died.
        dead: Whether each block was destroyed by impacts; it is not drawn.
        trial: Which of the trials is the best one, reported here; 1 is the level exactly as written.
        starts: The scores of `physics.starts` more trials with a jitter, which do not count.
        paths: The ways of the blocks that moved visibly or broke; none if it was not simulated here.
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
    """Return the share of blocks that stayed, 0 to 1, from whether each of them moved or died.

    A level without blocks scores 0: nothing stands. The official evaluator divides 0 by 0 there and writes NaN, which
    no later stage can use; the rules give nothing for an empty level.
    """
    return (len(moved) - sum(moved)) / len(moved) if moved else 0.0


def stability_file(team: str, moved: Mapping[Trial, Sequence[bool]]) -> StabilityFile:
    """Return a letter's file as the Science Birds Evaluator writes it, from which blocks of each level moved.

    The official tag is the full path of the level file; ours starts at the team's folder, so that it is the same on
    every machine.
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
