"""The drawings: levels and bars as inline SVG, and colours by size as classes of the style sheet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcgeval.evaluator.shapes import COLLIDERS, SPRITES, Point, Size, corners
from pcgeval.levels.blocks import BlockType
from pcgeval.report.html import Html, element
from pcgeval.report.results import DrawnBlock
from pcgeval.report.words import Figure, count

VIEW = 240  # units along each side of a level's picture; a cell of the largest level is 15 of them
SHADES = 9  # classes h1 to h9 of the style sheet; h0 is for exactly nothing


@dataclass(frozen=True)
class Part:
    """A part of a stacked bar: how much, and the class that colours it."""

    size: int
    class_: str


def shade(value: Figure, most: Figure) -> str:
    """Return the class of a coloured cell: `h0` for 0, else `h1` to `h9` in equal steps up to `most`."""
    if value <= 0 or most <= 0:
        return "h0"
    return f"h{min(SHADES, 1 + int(SHADES * float(value) / float(most)))}"


def level_picture(blocks: Sequence[DrawnBlock]) -> Html:
    """Draw the living blocks as the evaluator's camera sees them: those that stayed, then those that moved.

    As in the evaluator's picture, the square around all living colliders fills the view, and sprites, which are a
    little larger, are cut off at it.
    """
    living = [block for block in blocks if not block.dead]
    attributes = {"viewBox": f"0 0 {VIEW} {VIEW}", "role": "img", "aria_label": _description(blocks)}
    if not living:
        return element("svg", **attributes)
    outline = [point for block in living for point in _corners(block, COLLIDERS)]
    left, right = min(point.x for point in outline), max(point.x for point in outline)
    bottom, top = min(point.y for point in outline), max(point.y for point in outline)
    side = max(right - left, top - bottom)
    corner = Point((left + right - side) / 2, (bottom + top + side) / 2)
    paths = []
    for moved in (False, True):
        rings = [_ring(block, corner, VIEW / side) for block in living if block.moved is moved]
        if rings:
            paths.append(element("path", class_="moved" if moved else "stayed", d="".join(rings)))
    return element("svg", *paths, **attributes)


def interval_bar(value: Figure, interval: tuple[float, float] | None, most: Figure) -> Html:
    """Draw a horizontal bar from 0 to `value` of `most`, and its interval as a line with two ends."""
    width = _percent(value, most)
    parts = [element("rect", class_="bar", y=3, width=width, height=8)]
    if interval is not None:
        low, high = (_percent(each, most) for each in interval)
        parts.append(element("path", class_="whisker", d=f"M{low},3v8M{low},7H{high}M{high},3v8"))
    return element("svg", *parts, class_="bars", viewBox="0 0 100 14", preserveAspectRatio="none", aria_hidden="true")


def column(value: Figure, most: Figure) -> Html:
    """Draw an upright bar from 0 to `value` of `most`."""
    height = _percent(value, most)
    bar = element("rect", class_="bar", x=8, y=f"{100 - float(height):.1f}", width=84, height=height)
    return element("svg", bar, class_="column", viewBox="0 0 100 100", preserveAspectRatio="none", aria_hidden="true")


def stacked_bar(parts: Sequence[Part]) -> Html:
    """Draw parts of a whole beside each other, as wide as they are large."""
    whole = sum(part.size for part in parts)
    drawn, start = [], 0
    for part in parts:
        if part.size:
            x, width = _percent(start, whole), _percent(part.size, whole)
            drawn.append(element("rect", class_=part.class_, x=x, width=width, height=14))
        start += part.size
    return element("svg", *drawn, class_="bars", viewBox="0 0 100 14", preserveAspectRatio="none", aria_hidden="true")


def _percent(value: Figure, most: Figure) -> str:
    return f"{min(100.0, 100 * float(value) / float(most)) if most > 0 else 0.0:.1f}"


def _corners(block: DrawnBlock, sizes: Mapping[BlockType, Size]) -> list[Point]:
    return corners(sizes[block.type], block.x, block.y, block.angle)


def _ring(block: DrawnBlock, corner: Point, scale: float) -> str:
    """Return a block's outline as a path, in whole units, y downwards."""
    points = [
        (round((point.x - corner.x) * scale), round((corner.y - point.y) * scale)) for point in _corners(block, SPRITES)
    ]
    return "M" + "L".join(f"{x},{y}" for x, y in points) + "z"


def _description(blocks: Sequence[DrawnBlock]) -> str:
    moved = sum(block.moved and not block.dead for block in blocks)
    broke = sum(block.dead for block in blocks)
    return f"{count(len(blocks), 'block')}, {moved} moved, {broke} broke"
