"""Format numbers and texts for the page."""

from collections.abc import Mapping
from decimal import Decimal

SHADES = 9  # classes h1 to h9 of the style sheet; h0 is for exactly nothing
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
