"""Outline the blocks of a level for its picture."""

from pcgeval.core.stage_files import SimulatedTrial
from pcgeval.evaluator.shapes import COLLIDERS, SPRITES, Point, corners

VIEW = 240  # units along each side of a level's picture; a cell of the largest level is 15 of them


def outlines(level: SimulatedTrial) -> list[tuple[str, str]]:
    """Outline the living blocks as SVG paths in whole units, y downwards: those that stayed, then those that moved.

    As in the evaluator's picture, the square around all living colliders fills the view, and sprites, which are a
    little larger, are cut off at it.
    """
    blocks = zip(level.types, level.positions, level.moved, level.dead, strict=True)
    living = [(kind, place, moved) for kind, place, moved, dead in blocks if not dead]
    points = [point for kind, place, _ in living for point in corners(COLLIDERS[kind], *place)]
    if not points:
        return []
    left, right = min(point.x for point in points), max(point.x for point in points)
    bottom, top = min(point.y for point in points), max(point.y for point in points)
    side = max(right - left, top - bottom)
    corner = Point((left + right - side) / 2, (bottom + top + side) / 2)
    paths = {"stayed": "", "moved": ""}
    for kind, place, moved in living:
        ring = "L".join(
            f"{round((point.x - corner.x) * VIEW / side)},{round((corner.y - point.y) * VIEW / side)}"
            for point in corners(SPRITES[kind], *place)
        )
        paths["moved" if moved else "stayed"] += f"M{ring}z"
    return [(name, path) for name, path in paths.items() if path]


def moved(level: SimulatedTrial) -> int:
    """Count the living blocks that moved."""
    return sum(moved and not dead for moved, dead in zip(level.moved, level.dead, strict=True))
