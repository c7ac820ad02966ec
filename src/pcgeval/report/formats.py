"""The filters of the page's templates: numbers, texts and pictures of levels."""

import math
from collections.abc import Mapping
from decimal import Decimal

from pcgeval.core.stage_files import SimulatedTrial

SHADES = 9  # classes h1 to h9 of the style sheet; h0 is for exactly nothing

Figure = float | Decimal


def figure(value: Figure | None, digits: int = 3) -> str:
    """Return a number with so many decimals, a dash for none; only 0 is shown as 0."""
    if value is None:
        return "–"
    if value <= 0:
        return "0"
    least = 10.0**-digits
    return f"{value:.{digits}f}" if value >= least else f"<{least:.{digits}f}"


def share(value: float | None) -> str:
    """Return a share in whole per cent, or a dash without one."""
    return "–" if value is None else f"{value:.0%}"


def thousands(value: float) -> str:
    """Return a whole number with a comma between thousands."""
    return f"{value:,.0f}"


def percent(value: Figure, most: Figure) -> str:
    """Return a share of a width or height, from 0.0 to 100.0."""
    return f"{min(100.0, 100 * float(value) / float(most)) if most > 0 else 0.0:.1f}"


def shade(value: Figure, most: Figure) -> str:
    """Return the class of a coloured cell: `h0` for 0, else `h1` to `h9` up to `most`.

    The steps are equal in the square root of the value, so that small values are told apart.
    """
    if value <= 0 or most <= 0:
        return "h0"
    return f"h{min(SHADES, 1 + int(SHADES * math.sqrt(float(value) / float(most))))}"


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, and how long it was if some are left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters in all)"


def shown(value: object) -> str:
    """Return a value of params.yaml as text; of a mapping, the entries with a value."""
    if isinstance(value, tuple):
        return " and ".join(shown(part) for part in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {shown(part)}" for name, part in value.items() if part not in (None, [], {}))
    return "none" if value is None else ("yes" if value else "no") if isinstance(value, bool) else str(value)


def moved(level: SimulatedTrial) -> int:
    """Count the living blocks that moved."""
    return sum(moved and not dead for moved, dead in zip(level.moved, level.dead, strict=True))


def calls(code: str) -> str:
    """Return extracted calls on one line in the short form `b31 9, b13 9`."""
    lines = (line.removeprefix("drop_block('").removesuffix(")") for line in code.splitlines())
    return ", ".join(line.replace("',", " ").replace("  ", " ") for line in lines)
