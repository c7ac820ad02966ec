"""Draw levels as SVG and as text, and return the fate of each call's block."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from pcgeval.core.text import printable_line
from pcgeval.evaluator.world import GROUND_TOP, SPRITES, Point, Stability, corners, square_around
from pcgeval.formats.stages import BlockPath, KeyFrame, SimulatedLevel
from pcgeval.levels.blocks import Block, BlockType

VIEW = 240  # units along each side of a level's picture; a cell of the largest level is 15 of them
_MARGIN = 12
_HOLD = 1000  # milliseconds that a replay holds its end before it begins again
TEXT_COLUMNS = 28  # of a drawing in text; a character shows two pixels, one above the other
_HALVES = {(False, False): " ", (True, False): "▀", (False, True): "▄", (True, True): "█"}
_COLOURS = {"stayed": "#24405e", "moved": "#e0762f", "broke": "#e0762f"}
SimulatedBlocks = Stability | SimulatedLevel  # the end of a level
Place = Sequence[float]  # x and y in metres, rotation in radians
Fate = Literal["stayed", "moved", "broke", "not simulated"]


@dataclass(frozen=True)
class CalledBlock:
    """A call and the fate of its block; a block that broke or was not simulated has no distances."""

    number: int  # of call and block, from 1
    call: str  # the line of code, cut if it is long; of a level without calls the block's type
    fate: Fate
    distance: float | None = None  # metres between the block's places before and after the simulation
    fell: float | None = None  # metres downwards; negative upwards
    turned: float | None = None  # degrees, 0 to 180


def called_blocks(calls: Sequence[str], blocks: Sequence[Block], end: SimulatedBlocks) -> Iterator[CalledBlock]:
    """Yield each call with the fate of its block; calls and blocks are in the same order."""
    for number, (call, block, drawn) in enumerate(zip(calls, blocks, _drawn_blocks(end), strict=True), start=1):
        if drawn.fate == "broke":
            yield CalledBlock(number, call, "broke")
            continue
        x, y, angle = drawn.place
        turned = abs((math.degrees(angle) - block.rotation + 180) % 360 - 180)
        yield CalledBlock(
            number=number,
            call=call,
            fate=drawn.fate,
            distance=round(math.hypot(x - block.x, y - block.y), 6),
            fell=round(block.y - y, 6),
            turned=round(turned, 3),
        )


class _DrawnBlock(NamedTuple):
    kind: BlockType
    place: Place
    fate: Literal["stayed", "moved", "broke"]


def _drawn_blocks(level: SimulatedBlocks) -> Iterator[_DrawnBlock]:
    """Yield the blocks at the end of a level."""
    for kind, place, moved, dead in zip(level.types, level.positions, level.moved, level.dead, strict=True):
        yield _DrawnBlock(kind, [float(value) for value in place], "broke" if dead else "moved" if moved else "stayed")


def _living(level: SimulatedBlocks) -> list[_DrawnBlock]:
    return [block for block in _drawn_blocks(level) if block.fate != "broke"]


def _view(blocks: Sequence[_DrawnBlock]) -> tuple[Point, float]:
    """Return the upper left corner of the square around blocks, and the units of the view in a metre."""
    corner, side = square_around([(block.kind, block.place) for block in blocks])
    return corner, VIEW / side


def outlines(level: SimulatedBlocks) -> dict[str, str]:
    """Return the outlines of the living blocks that `stayed` and that `moved` as SVG paths in whole units, y downwards.

    The square around all living colliders fills the view.
    """
    living = _living(level)
    if not living:
        return {}
    corner, units = _view(living)
    paths = {"stayed": "", "moved": ""}
    for block in living:
        ring = [
            (round((at.x - corner.x) * units), round((corner.y - at.y) * units))
            for at in corners(SPRITES[block.kind], *block.place)
        ]
        paths[block.fate] += f"M{ring[0][0]} {ring[0][1]}"
        for (x, y), (next_x, next_y) in pairwise(ring):  # relative sides are shorter: a page holds thousands
            right, down = next_x - x, next_y - y
            paths[block.fate] += f"h{right}" if not down else f"v{down}" if not right else f"l{right} {down}"
        paths[block.fate] += "z"
    return {name: path for name, path in paths.items() if path}


def tile_view(level: SimulatedBlocks, metres: float) -> str:
    """Return the view of a level's `outlines` in a tile of so many metres, so that tiles have one scale and one ground.

    A level that is larger than the tile is drawn smaller.
    """
    living = _living(level)
    corner, units = _view(living) if living else (Point(0, GROUND_TOP), 1)
    side = max(VIEW, round(metres * units))
    return f"{(VIEW - side) // 2} {round((corner.y - GROUND_TOP) * units) - side} {side} {side}"


def motion(level: SimulatedBlocks, paths: Sequence[BlockPath]) -> str:
    """Return the paths of a level's blocks as text for a page, in the units of its `outlines`.

    `|` separates blocks, and commas the values of a block: `s`, `m` or `b` for stayed, moved or broke, with its number
    among those, from 0; width and height; then for each key frame tenths of a second, x and y of the centre and degrees
    clockwise, as differences to the key frame before.
    """
    blocks = list(_drawn_blocks(level))
    starts = [blocks[path.block]._replace(place=_place(path.keys[0])) for path in paths]
    corner, units = _view(_living(level) or starts)
    numbers = {"stayed": count(), "moved": count(), "broke": count()}
    names = [f"{block.fate[0]}{next(numbers[block.fate])}" for block in blocks]
    parts = []
    for path in paths:
        size = SPRITES[blocks[path.block].kind]
        values = [round(size.width * units), round(size.height * units)]
        before = (0, 0, 0, 0)
        for key in path.keys:
            x, y, turn = _on_view(_place(key), corner, units)
            now = (round(key[0] / 100), round(x), round(y), round(turn))
            values += [value - previous for value, previous in zip(now, before, strict=True)]
            before = now
        parts.append(",".join(map(str, [names[path.block], *values])))
    return "|".join(parts)


def _place(key: KeyFrame) -> Place:
    _, x, y, angle = key
    return x / 1000, y / 1000, math.radians(angle)


def _on_view(place: Place, corner: Point, units: float) -> tuple[float, float, float]:
    """Return the centre of a block on the view, and its rotation in degrees clockwise."""
    x, y, angle = place
    return (x - corner.x) * units, (corner.y - y) * units, -math.degrees(angle)


def level_svg(level: SimulatedBlocks) -> str:
    """Return a level as an SVG document: blocks that stayed dark, moved ones orange, broken ones left out."""
    return _document("".join(f'<path d="{path}" fill="{_COLOURS[name]}"/>' for name, path in outlines(level).items()))


def replay_svg(level: SimulatedBlocks, paths: Sequence[BlockPath]) -> str:
    """Return a simulation as an animated SVG document, which any browser plays again and again."""
    keys_of: dict[int, Sequence[KeyFrame]] = {path.block: path.keys for path in paths}
    end = _HOLD + max((keys[-1][0] for keys in keys_of.values()), default=0)
    shown = [(block, keys_of.get(number, ())) for number, block in enumerate(_drawn_blocks(level))]
    shown = [(block, keys) for block, keys in shown if keys or block.fate != "broke"]
    if not shown:
        return _document("")
    places = [[_place(key) for key in keys] or [block.place] for block, keys in shown]
    states = [block._replace(place=place) for (block, _), path in zip(shown, places, strict=True) for place in path]
    corner, units = _view(states)
    shapes = ""
    for (block, keys), path in zip(shown, places, strict=True):
        on_view = [_on_view(place, corner, units) for place in path]
        x, y, turn = on_view[0]
        width, height = SPRITES[block.kind].width * units, SPRITES[block.kind].height * units
        shapes += (
            f'<g transform="translate({x:.1f} {y:.1f}) rotate({turn:.1f})">'
            f'<rect x="{-width / 2:.1f}" y="{-height / 2:.1f}" width="{width:.1f}" height="{height:.1f}"'
            f' fill="{_COLOURS[block.fate]}"/>'
            f"{_animations(keys, on_view, end, breaks=block.fate == 'broke') if keys else ''}</g>"
        )
    return _document(shapes)


def _animations(
    keys: Sequence[KeyFrame], places: Sequence[tuple[float, float, float]], end: int, *, breaks: bool
) -> str:
    """Return the SVG animations of a block along places of the view, which repeat every `end` milliseconds."""
    always = f'dur="{end / 1000:g}s" repeatCount="indefinite"/>'
    times = ";".join(f"{time / end:.4f}" for time in (*(key[0] for key in keys), end))
    places = [*places, places[-1]]
    moves = ";".join(f"{x:.1f} {y:.1f}" for x, y, _ in places)
    turns = ";".join(f"{turn:.1f}" for *_, turn in places)
    transform = '<animateTransform attributeName="transform" type='
    animations = f'{transform}"translate" values="{moves}" keyTimes="{times}" {always}'
    animations += f'{transform}"rotate" additive="sum" values="{turns}" keyTimes="{times}" {always}'
    if breaks:
        vanishing = f'values="1;0" keyTimes="0;{keys[-1][0] / end:.4f}"'
        animations += f'<animate attributeName="opacity" calcMode="discrete" {vanishing} {always}'
    return animations


def _document(content: str) -> str:
    whole = VIEW + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_MARGIN} {-_MARGIN} {whole} {whole}" width="{2 * whole}"'
        f' height="{2 * whole}"><rect x="{-_MARGIN}" y="{-_MARGIN}" width="{whole}" height="{whole}" fill="#fff"/>'
        f"{content}</svg>\n"
    )


def block_text(block: CalledBlock) -> str:
    """Return a call and the fate of its block."""
    text = f"{block.number:2} {printable_line(block.call)}  {block.fate}"
    if block.fate != "moved" or block.distance is None:
        return text
    return f"{text} {block.distance:.2f} m, {block.fell or 0:.2f} m down, turned {block.turned or 0:.0f}°"


def text_drawing(picture: Image.Image) -> list[str]:
    """Return a level's picture as lines of half blocks, without empty lines above and below."""
    ink = np.asarray(picture.convert("L").resize((TEXT_COLUMNS, TEXT_COLUMNS), Image.Resampling.BOX)) < 128
    lines = [
        "".join(_HALVES[bool(above), bool(below)] for above, below in zip(*rows, strict=True)).rstrip()
        for rows in zip(ink[::2], ink[1::2], strict=True)
    ]
    full = [number for number, line in enumerate(lines) if line]
    return lines[full[0] : full[-1] + 1] if full else []
