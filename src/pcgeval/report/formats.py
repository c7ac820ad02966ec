"""The filters of the page's templates: numbers, texts and pictures of levels."""

from collections.abc import Mapping
from decimal import Decimal

from pcgeval.core.stage_files import SimulatedTrial
from pcgeval.evaluator.shapes import COLLIDERS, SPRITES, Point, corners

SHADES = 9  # classes h1 to h9 of the style sheet; h0 is for exactly nothing
VIEW = 240  # units along each side of a level's picture; a cell of the largest level is 15 of them
_TINY = 0.001  # below it four decimals leave a single digit

Figure = float | Decimal


def figure(value: Figure, digits: int = 3) -> str:
    """Return a number with so many decimals; nothing above 0 is shown as 0, and only 0 is."""
    if value <= 0:
        return "0"
    least = 10.0**-digits
    return f"{value:.{digits}f}" if value >= least else f"<{least:.{digits}f}"


def score(value: Figure) -> str:
    """Return a score with four decimals, or as `3.1e-5` where those would say little."""
    if value <= 0 or value >= _TINY:
        return figure(value, 4)
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def grade(value: float | None) -> str:
    """Return a rubric score with two decimals."""
    return "not graded" if value is None else figure(value, 2)


def thousands(value: float) -> str:
    """Return a whole number with a comma between thousands."""
    return f"{value:,.0f}"


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `1 trial` or `2 trials`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def percent(value: Figure, most: Figure) -> str:
    """Return a share of a width or height, from 0.0 to 100.0."""
    return f"{min(100.0, 100 * float(value) / float(most)) if most > 0 else 0.0:.1f}"


def shade(value: Figure, most: Figure) -> str:
    """Return the class of a coloured cell: `h0` for 0, else `h1` to `h9` in equal steps up to `most`."""
    if value <= 0 or most <= 0:
        return "h0"
    return f"h{min(SHADES, 1 + int(SHADES * float(value) / float(most)))}"


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, and how long it was if some are left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters in all)"


def shown(value: object) -> str:
    """Return a value of params.yaml as text; of a mapping the entries that say something."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(each)}" for name, each in value.items() if each not in (None, [], {}))
    return "none" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)


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
