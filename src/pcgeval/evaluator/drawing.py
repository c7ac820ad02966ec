"""Draw levels as SVG, and tell what became of the block of each call."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from pcgeval.evaluator.shapes import COLLIDERS, SPRITES, Point, Size, corners
from pcgeval.levels.blocks import Block, BlockType

VIEW = 240  # units along each side of a level's picture; a cell of the largest level is 15 of them
_MARGIN = 12
_COLOURS = {"stayed": "#24405e", "moved": "#e0762f"}
Fate = Literal["stayed", "moved", "broke", "not simulated"]


class SimulatedBlocks(Protocol):
    """The end of a level: a `Stability`, or a `SimulatedTrial` of simulations.json."""

    @property
    def types(self) -> Sequence[BlockType]:
        """The type of each block."""

    @property
    def positions(self) -> Any:
        """X and y in metres and the rotation in radians of each block."""

    @property
    def moved(self) -> Sequence[bool]:
        """Whether each block moved or broke."""

    @property
    def dead(self) -> Sequence[bool]:
        """Whether each block broke."""


@dataclass(frozen=True)
class CalledBlock:
    """A call of the answer and what became of its block; call and block have the same number, from 1.

    Attributes:
        call: The line of code, cut if it is long; of a level without calls the block's type.
        distance: Metres between the block's places before and after the simulation; None if it was not simulated or
            broke.
        fell: Metres of it downwards; negative upwards.
        turned: Degrees by which it turned, from 0 to 180.
    """

    number: int
    call: str
    fate: Fate
    distance: float | None = None
    fell: float | None = None
    turned: float | None = None


def called_blocks(calls: Sequence[str], blocks: Sequence[Block], end: SimulatedBlocks) -> Iterator[CalledBlock]:
    """Yield each call with the fate of its block: all are in the order of the calls, and equally many."""
    ends = zip(end.positions, end.moved, end.dead, strict=True)
    for number, (call, block, (place, moved, dead)) in enumerate(zip(calls, blocks, ends, strict=True), start=1):
        if dead:
            yield CalledBlock(number, call, "broke")
            continue
        x, y, angle = (float(each) for each in place)
        turned = abs((math.degrees(angle) - block.rotation + 180) % 360 - 180)
        yield CalledBlock(
            number=number,
            call=call,
            fate="moved" if moved else "stayed",
            distance=round(math.hypot(x - block.x, y - block.y), 6),
            fell=round(block.y - y, 6),
            turned=round(turned, 3),
        )


def outlines(level: SimulatedBlocks) -> dict[str, str]:
    """Outline the living blocks as SVG paths in whole units, y downwards: those that `stayed` and those that `moved`.

    As in the evaluator's picture, the square around all living colliders fills the view, and sprites, which are a
    little larger, are cut off at it.
    """
    blocks = zip(level.types, level.positions, level.moved, level.dead, strict=True)
    living = [(kind, place, moved) for kind, place, moved, dead in blocks if not dead]
    if not living:
        return {}
    corner, side = _square(point for kind, place, _ in living for point in corners(COLLIDERS[kind], *place))
    paths = {"stayed": "", "moved": ""}
    for kind, place, moved in living:
        paths["moved" if moved else "stayed"] += _outline(SPRITES[kind], place, corner, VIEW / side)
    return {name: path for name, path in paths.items() if path}


def level_svg(level: SimulatedBlocks) -> str:
    """Return a level as an SVG document: blocks that stayed dark, those that moved orange, broken ones left out."""
    paths = "".join(f'<path d="{path}" fill="{_COLOURS[name]}"/>' for name, path in outlines(level).items())
    return _document(paths)


def replay_svg(types: Sequence[BlockType], frames: NDArray[np.float64], every: float) -> str:
    """Return a simulation as an animated SVG document, which any browser plays again and again.

    Args:
        types: The type of each block.
        frames: Shape (t, n, 3): x and y in metres and the rotation in radians of each block; NaN once it broke.
        every: Seconds between two frames.
    """
    present = ~np.isnan(frames[..., 0])
    if not present.any():
        return _document("")
    corner, side = _square(
        point
        for frame, there in zip(frames, present, strict=True)
        for kind, place, is_there in zip(types, frame.tolist(), there.tolist(), strict=True)
        if is_there
        for point in corners(COLLIDERS[kind], *place)
    )
    scale = VIEW / side
    seconds = every * max(1, len(frames) - 1)
    shapes = []
    for index, kind in enumerate(types):
        until = int(present[:, index].sum())  # a block that broke does not come back
        if not until:
            continue
        moving = frames[:until, index]
        places = np.column_stack([(moving[:, 0] - corner.x) * scale, (corner.y - moving[:, 1]) * scale])
        turns = -np.degrees(moving[:, 2])
        width, height = SPRITES[kind].width * scale, SPRITES[kind].height * scale
        where = f'x="{-width / 2:.1f}" y="{-height / 2:.1f}" width="{width:.1f}" height="{height:.1f}"'
        still = f'transform="translate({places[0, 0]:.1f} {places[0, 1]:.1f}) rotate({turns[0]:.1f})"'
        motion = ""
        if until < len(frames) or np.ptp(places, axis=0).max() > 0.05 or np.ptp(turns) > 0.05:
            padded = [*range(until), *[until - 1] * (len(frames) - until)]
            motion = _animate("translate", [f"{x:.1f} {y:.1f}" for x, y in places[padded]], seconds)
            motion += _animate("rotate", [f"{turn:.1f}" for turn in turns[padded]], seconds, ' additive="sum"')
            still = ""
        if until < len(frames):
            shown = ";".join("1" if frame < until else "0" for frame in range(len(frames)))
            motion += f'<animate attributeName="opacity" values="{shown}" dur="{seconds:g}s" repeatCount="indefinite"/>'
        shapes.append(f'<g {still}><rect {where} fill="{_COLOURS["stayed"]}"/>{motion}</g>')
    return _document("".join(shapes))


def _animate(kind: str, values: Sequence[str], seconds: float, more: str = "") -> str:
    return (
        f'<animateTransform attributeName="transform" type="{kind}" values="{";".join(values)}"'
        f' dur="{seconds:g}s" repeatCount="indefinite"{more}/>'
    )


def _document(content: str) -> str:
    whole = VIEW + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_MARGIN} {-_MARGIN} {whole} {whole}" width="{2 * whole}"'
        f' height="{2 * whole}"><rect x="{-_MARGIN}" y="{-_MARGIN}" width="{whole}" height="{whole}" fill="#fff"/>'
        f"{content}</svg>\n"
    )


def _square(points: Iterator[Point]) -> tuple[Point, float]:
    """Return the upper left corner and the side, in metres, of the square around points, on the middle of their box."""
    found = list(points)
    left, right = min(point.x for point in found), max(point.x for point in found)
    bottom, top = min(point.y for point in found), max(point.y for point in found)
    side = max(right - left, top - bottom)
    return Point((left + right - side) / 2, (bottom + top + side) / 2), side


def _outline(size: Size, place: Sequence[float], corner: Point, units: float) -> str:
    """Return one block as a closed path; a page holds thousands, so each side is relative to the one before."""
    ring = [(round((each.x - corner.x) * units), round((corner.y - each.y) * units)) for each in corners(size, *place)]
    path = f"M{ring[0][0]} {ring[0][1]}"
    for (x, y), (next_x, next_y) in pairwise(ring):
        right, down = next_x - x, next_y - y
        path += f"h{right}" if not down else f"v{down}" if not right else f"l{right} {down}"
    return f"{path}z"
