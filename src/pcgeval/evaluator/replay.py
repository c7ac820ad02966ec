"""The ways that the blocks of a level took: recorded while it is simulated, kept as few key frames of those that moved.

The ways are for show: nothing that is measured follows from them.
"""

from collections.abc import Sequence
from math import degrees, inf

import numpy as np

from pcgeval.core.stage_files import BlockPath, KeyFrame
from pcgeval.evaluator.world import World

FRAME_SECONDS = 0.1  # between two looks at the blocks
STAYS = (50, 50, 10)  # millimetres, millimetres, degrees: a block that stays that near to its start is shown at its end
NEAR = 15  # millimetres: as near to where a block was it is shown in between
NEAR_ANGLE = 4  # degrees: the same for its rotation


class Recording:
    """Where the blocks of one trial were, frame by frame."""

    def __init__(self, world: World) -> None:
        """Record a world; nothing is looked at yet."""
        self._world = world
        self._times: list[int] = []  # milliseconds
        self._places: list[list[tuple[float, float, float]]] = []
        self._dead: list[tuple[bool, ...]] = []

    def add(self, seconds: float) -> None:
        """Record where the blocks are now."""
        self._times.append(round(1000 * seconds))
        self._places.append(self._world.places)
        self._dead.append(self._world.dead)

    def lost(self, depth: float) -> int:
        """Return how many blocks broke or are `depth` metres or more below where they were in the first frame."""
        blocks = zip(self._places[0], self._places[-1], self._dead[-1], strict=True)
        return sum(is_dead or start[1] - now[1] >= depth for start, now, is_dead in blocks)

    def paths(self) -> tuple[BlockPath, ...]:
        """Return the ways of the blocks that moved visibly or broke, in the order of the level's blocks."""
        places = np.array(self._places).reshape(len(self._times), -1, 3)
        places = np.rint(places * (1000, 1000, degrees(1))).astype(int)
        living = ~np.array(self._dead, dtype=bool)
        moves = (np.abs(places - places[0]) > STAYS).any(axis=(0, 2)) | ~living[-1]
        paths = []
        for block in np.flatnonzero(moves).tolist():
            rows = places[living[:, block], block].tolist()  # who broke does not come back
            frames = [(time, x, y, angle) for time, (x, y, angle) in zip(self._times, rows, strict=False)]
            paths.append(BlockPath(block=block, keys=_key_frames(frames, is_dead=not living[-1, block])))
        return tuple(paths)


def _key_frames(frames: Sequence[KeyFrame], *, is_dead: bool) -> tuple[KeyFrame, ...]:
    """Return the frames between which a block moves evenly, as near as that is shown; who lives stays at the last one.

    From the last key frame on, each place leaves a range of speeds along each axis that pass it near enough; when the
    next one cannot be reached with speeds in these ranges, the one before it becomes a key frame.
    """
    before, keys = frames[0], [frames[0]]
    start, start_x, start_y, start_angle = before
    low_x = low_y = low_turn = -inf
    high_x = high_y = high_turn = inf
    for frame in frames[1:]:
        time, x, y, angle = frame
        past = time - start
        if not (
            low_x * past <= x - start_x <= high_x * past
            and low_y * past <= y - start_y <= high_y * past
            and low_turn * past <= angle - start_angle <= high_turn * past
        ):
            keys.append(before)
            start, start_x, start_y, start_angle = before
            low_x = low_y = low_turn = -inf
            high_x = high_y = high_turn = inf
            past = time - start
        low_x, high_x = max(low_x, (x - NEAR - start_x) / past), min(high_x, (x + NEAR - start_x) / past)
        low_y, high_y = max(low_y, (y - NEAR - start_y) / past), min(high_y, (y + NEAR - start_y) / past)
        low_turn = max(low_turn, (angle - NEAR_ANGLE - start_angle) / past)
        high_turn = min(high_turn, (angle + NEAR_ANGLE - start_angle) / past)
        before = frame
    if is_dead or before[1:] != keys[-1][1:]:
        keys.append(before)
    return tuple(keys)
