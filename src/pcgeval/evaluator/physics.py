"""The stability of a level: ten seconds of gravity, the best of up to three trials, as in the official evaluator."""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import degrees, inf

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.errors import PcgevalError
from pcgeval.core.packages import install_command
from pcgeval.evaluator.pymunk_world import PymunkWorld
from pcgeval.evaluator.world import Stability, World
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.params import PhysicsParams
from pcgeval.formats.stages import BlockPath, KeyFrame
from pcgeval.levels.blocks import Block, level_blocks
from pcgeval.levels.conversion import LevelError

FRAME_SECONDS = 0.1  # between two frames
STAYS = (50, 50, 10)  # millimetres, millimetres, degrees: a block that stays this near to its start has no path
NEAR = 15  # millimetres: the largest error between key frames
NEAR_ANGLE = 4  # degrees: the same for rotations

STEPS_BETWEEN_SLEEP_CHECKS = 5  # asking every block costs about as much as a step
LOST_BELOW = 2  # times `moved_distance`: a block that is so far below its place does not climb back
INSIDE_DISTANCE = 0.2  # metres: blocks with nearer centres overlap, however they are turned
MAX_INSIDE = 5000  # overlapping pairs; the work of a step grows with them, and the grid allows next to none


class SimulationError(PcgevalError):
    """A level cannot be simulated."""


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


def simulate(xml: str | bytes, physics: PhysicsParams | None = None, *, paths: bool = True) -> Stability:
    """Simulate a level and return the best of up to `physics.trials` trials, of equal ones the first.

    The first trial takes the level as written. The others shift every block by up to `physics.jitter` metres in x and
    y, drawn from `physics.seed`; the official evaluator's trials differ by the timing of its frames. A trial in which
    nothing moves ends the search, and one that cannot become the best ends early. `physics.starts` more trials with
    other jitters do not count: their scores show how fragile the level is.

    Args:
        xml: The level.
        physics: Settings of the simulation; default: those of `params.yaml` as published.
        paths: Whether to record the paths of the blocks for a replay, which takes time.

    Raises:
        LevelError: The text is not a level.
        SimulationError: Too many blocks overlap, or the engine lost track of one.
    """
    physics = physics or PhysicsParams()
    blocks = level_blocks(xml)
    _check_overlaps(blocks)
    best, recording = _trial(blocks, 1, physics, record=paths)
    for trial in range(2, physics.trials + 1):
        if best.moving_blocks == 0:
            break
        other = _trial(blocks, trial, physics, record=True, to_beat=best.moving_blocks)
        if other[0].score > best.score:
            best, recording = other
    more = range(physics.trials + 1, physics.trials + 1 + physics.starts)
    starts = tuple(_trial(blocks, trial, physics, record=False)[0].score for trial in more)
    return replace(best, starts=starts, paths=recording.paths() if paths else ())


def build_world(blocks: Sequence[Block], physics: PhysicsParams) -> World:
    """Return a new world of `physics.engine` with a level's blocks; raise PcgevalError without the engine."""
    if physics.engine == "pymunk":
        return PymunkWorld(blocks, physics)
    try:
        from pcgeval.evaluator.box2d_world import Box2dWorld  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PcgevalError(
            f"physics.engine is box2d, which is not installed here. Run `{install_command('box2d')}` "
            "(Python 3.11 to 3.13; Linux on x86-64, or macOS), or set physics.engine to pymunk."
        ) from error
    return Box2dWorld(blocks, physics)


def simulate_or_reason(xml: str | bytes, physics: PhysicsParams, *, paths: bool = True) -> Stability | Failure:
    """Return the end of a level, or why its simulation failed; see `simulate`."""
    try:
        return simulate(xml, physics, paths=paths)
    except LevelError as error:
        return error.failure
    except SimulationError as error:
        return failure("level-unreadable", fault=str(error))


def _check_overlaps(blocks: Sequence[Block]) -> None:
    centres = np.array([complex(block.x, block.y) for block in blocks])
    near = np.abs(centres[:, None] - centres[None, :]) < INSIDE_DISTANCE
    if (pairs := (int(near.sum()) - len(blocks)) // 2) > MAX_INSIDE:
        raise SimulationError(f"{pairs} pairs of blocks lie in each other, more than {MAX_INSIDE}. Spread them out.")


def _trial(
    blocks: Sequence[Block], trial: int, physics: PhysicsParams, *, record: bool, to_beat: float = math.inf
) -> tuple[Stability, Recording]:
    """Simulate a trial; a recorded one ends as soon as `to_beat` blocks are lost, that is, broke or fell.

    A block has fallen if it lies so far below its place that only climbing could count as staying.
    """
    start = blocks if trial == 1 else _jittered(blocks, f"{physics.seed}:{trial}", physics.jitter)
    world = build_world(start, physics)
    recording, step = Recording(world), 0
    recording.add(0)
    between = max(1, round(FRAME_SECONDS / physics.step))
    for step in _steps(world, physics):
        if record and step % between == 0:
            recording.add(step * physics.step)
            if recording.lost(LOST_BELOW * physics.moved_distance) >= to_beat:
                break
    if record and step % between:
        recording.add(step * physics.step)
    return _stability(blocks, world, trial, physics), recording


def _jittered(blocks: Sequence[Block], seed: str, jitter: float) -> list[Block]:
    rng = random.Random(seed)  # noqa: S311 - no secret
    return [
        replace(block, x=block.x + rng.uniform(-jitter, jitter), y=block.y + rng.uniform(-jitter, jitter))
        for block in blocks
    ]


def _steps(world: World, physics: PhysicsParams) -> Iterator[int]:
    for step in range(1, round(physics.seconds / physics.step) + 1):
        world.advance()
        yield step
        if step % STEPS_BETWEEN_SLEEP_CHECKS == 0 and world.asleep:
            return


def _stability(blocks: Sequence[Block], world: World, trial: int, physics: PhysicsParams) -> Stability:
    """Return the end of a trial; `moved` follows from the rounded positions, so the published figures show it."""
    positions = np.round(world.places, 6) + 0.0  # + 0.0: no negative zeros
    if not np.isfinite(positions).all():
        raise SimulationError("the simulation lost track of a block: its blocks overlap too much")
    positions.setflags(write=False)
    moved = tuple(
        is_dead or math.hypot(x - block.x, y - block.y) >= physics.moved_distance
        for is_dead, block, (x, y, _) in zip(world.dead, blocks, positions.tolist(), strict=True)
    )
    return Stability(tuple(block.type for block in blocks), positions, moved, world.dead, trial)


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
