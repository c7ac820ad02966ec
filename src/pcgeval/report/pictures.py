"""Outline the blocks of a level for its picture."""

from collections.abc import Mapping, Sequence

from pcgeval.evaluator.shapes import COLLIDERS, SPRITES, Point, Size, corners
from pcgeval.levels.blocks import BlockType
from pcgeval.report.results import DrawnBlock

VIEW = 240  # units along each side of a level's picture; a cell of the largest level is 15 of them


def outlines(blocks: Sequence[DrawnBlock]) -> list[tuple[str, str]]:
    """Outline the living blocks as SVG paths in whole units, y downwards: those that stayed, then those that moved.

    As in the evaluator's picture, the square around all living colliders fills the view, and sprites, which are a
    little larger, are cut off at it.
    """
    living = [block for block in blocks if not block.dead]
    points = [point for block in living for point in _corners(block, COLLIDERS)]
    if not points:
        return []
    left, right = min(point.x for point in points), max(point.x for point in points)
    bottom, top = min(point.y for point in points), max(point.y for point in points)
    side = max(right - left, top - bottom)
    corner = Point((left + right - side) / 2, (bottom + top + side) / 2)
    paths = {"stayed": "", "moved": ""}
    for block in living:
        ring = "L".join(
            f"{round((point.x - corner.x) * VIEW / side)},{round((corner.y - point.y) * VIEW / side)}"
            for point in _corners(block, SPRITES)
        )
        paths["moved" if block.moved else "stayed"] += f"M{ring}z"
    return [(kind, path) for kind, path in paths.items() if path]


def moved(blocks: Sequence[DrawnBlock]) -> int:
    """Count the living blocks that moved."""
    return sum(block.moved and not block.dead for block in blocks)


def broken(blocks: Sequence[DrawnBlock]) -> int:
    """Count the blocks that broke."""
    return sum(block.dead for block in blocks)


def _corners(block: DrawnBlock, sizes: Mapping[BlockType, Size]) -> list[Point]:
    return corners(sizes[block.type], block.x, block.y, block.angle)
