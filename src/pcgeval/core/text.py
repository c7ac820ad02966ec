"""Show the texts of strangers, numbers and times in messages."""

import re
from collections.abc import Collection, Iterable, Sequence
from decimal import Decimal

MAX_LINE = 300  # characters of a name or a message that is shown
_LINE_END = re.compile("\r\n?")
_SURROGATE = re.compile("[\ud800-\udfff]")
# control characters other than tab and line end, invisible characters, and those that change the direction of text
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def well_formed(text: str) -> str:
    """Return the text with U+FFFD for each lone surrogate, which UTF-8 cannot hold."""
    return _SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """Return the text on one line, with a space for each character that cannot be printed."""
    return "".join(character if character.isprintable() else " " for character in text)


def truncate(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters, which ends in an ellipsis if some are left out."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def printable_line(text: str, limit: int = MAX_LINE) -> str:
    """Return prose on one line of at most `limit` characters, without unprintable characters."""
    line = " ".join(one_line(text[: 4 * limit]).split())
    return truncate(line if len(text) <= 4 * limit else f"{line}...", limit)


def printable_name(text: str, limit: int = MAX_LINE) -> str:
    """Return a name or a quotation on one line of `limit` characters, with escapes for unprintable characters."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text[:limit]
    )
    return f"{shown}..." if len(text) > limit else shown


def listed(names: Sequence[str], most: int = 5) -> str:
    """Return the first names and the number of others: `a, b and 3 more`."""
    shown = ", ".join(map(printable_name, names[:most]))
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def printable_text(text: str) -> str:
    """Return text of several lines with U+FFFD for control characters and those that change its direction.

    A carriage return, alone or before a line feed, ends a line.
    """
    return _INVISIBLE.sub("\ufffd", _LINE_END.sub("\n", text))


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `1 trial` or `2 trials`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """Return a time in words: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def number(value: float) -> str:
    """Return a number as sentences write it: `1 000`, `2.5`."""
    return f"{value:,}".replace(",", " ") if isinstance(value, int) else f"{value:g}"


def plain(value: Decimal) -> str:
    """Return an exact decimal in plain notation: no exponent, no trailing zeros, no negative zero."""
    text = format(value, "f") if value else "0"  # a zero may have any exponent
    return text.rstrip("0").rstrip(".") if "." in text else text


def shortened(text: str, most: int) -> str:
    """Return a text of at most `most` characters, and how long it was if some are left out."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters in all)"


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], texts: Collection[str]) -> list[str]:
    """Return the lines of a table in Markdown, aligned in a terminal too; columns other than `texts` hold numbers."""
    cells = [[printable_line(cell).replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    sides = ["<" if column in texts else ">" for column in columns]
    head, *body = [
        " | ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True))
        for row in cells
    ]
    marks = " | ".join(f"{'' if side == '<' else ':':->{width}}" for side, width in zip(sides, widths, strict=True))
    return [f"| {line} |" for line in (head, marks, *body)]


def rounded(value: Decimal | str, digits: int = 6) -> str:
    """Return a score for people, rounded half to even; one that the digits do not show is written as `3.1e-8`."""
    number = Decimal(value)
    return f"{number:.1e}" if 0 < number < Decimal(10) ** -digits else f"{number:.{digits}f}"
