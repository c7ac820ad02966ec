"""The paths of a level's blocks during its simulation, as few key frames of those that moved; no score needs them."""

from collections.abc import Sequence
from math import degrees, inf

import numpy as np
from numpy.typing import NDArray

from pcgeval.evaluator.world import World
from pcgeval.formats.stages import BlockPath, KeyFrame

FRAME_SECONDS = 0.1  # between two frames
STAYS = (50, 50, 10)  # millimetres, millimetres, degrees: a block that stays this near to its start has no path
NEAR = 15  # millimetres: the largest error between key frames
NEAR_ANGLE = 4  # degrees: the same for rotations


class Recording:
    """The places of the blocks of one trial, frame by frame."""

    def __init__(self, world: World) -> None:
        """Take the world; `add` records it."""
        self._world = world
        self._times: list[int] = []  # milliseconds
        self._places: list[NDArray[np.float64]] = []
        self._dead: list[tuple[bool, ...]] = []

    def add(self, seconds: float) -> None:
        """Record a frame."""
        self._times.append(round(1000 * seconds))
        self._places.append(self._world.places)
        self._dead.append(self._world.dead)

    def lost(self, depth: float) -> int:
        """Return the number of blocks that broke or are `depth` metres or more below their first place."""
        fallen = self._places[0][:, 1] - self._places[-1][:, 1] >= depth
        return int(np.count_nonzero(fallen | np.array(self._dead[-1], dtype=bool)))

    def paths(self) -> tuple[BlockPath, ...]:
        """Return the paths of the blocks that moved visibly or broke, in the order of the level's blocks."""
        places = np.rint(np.array(self._places) * (1000, 1000, degrees(1))).astype(int)
        living = ~np.array(self._dead, dtype=bool)
        moves = (np.abs(places - places[0]) > STAYS).any(axis=(0, 2)) | ~living[-1]
        paths = []
        for block in np.flatnonzero(moves).tolist():
            rows = places[living[:, block], block].tolist()  # a broken block does not come back
            frames = [(time, x, y, angle) for time, (x, y, angle) in zip(self._times, rows, strict=False)]
            paths.append(BlockPath(block=block, keys=_key_frames(frames, is_dead=not living[-1, block])))
        return tuple(paths)


def _key_frames(frames: Sequence[KeyFrame], *, is_dead: bool) -> tuple[KeyFrame, ...]:
    """Return the key frames between which a block moves evenly, within `NEAR` and `NEAR_ANGLE`.

    Since the last key frame, each frame leaves a range of speeds along each axis that pass it near enough. When no
    speed in these ranges reaches the next frame, the frame before it becomes a key frame.
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
