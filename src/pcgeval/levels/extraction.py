"""From a model's response to the calls in its last fenced block, as the official extractor reads it.

The patterns are those of `extractCode` in the competition's JavaScript library. They are made possessive, which
changes no match (what follows each repetition cannot be part of it) and keeps hostile text in linear time.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pcgeval.core.errors import PcgevalError
from pcgeval.core.text import printable_name, truncate
from pcgeval.formats.blocks import ANY_BLOCK, LOOSE_BLOCK
from pcgeval.formats.failures import Failure, failure

LONGEST_QUOTE = 80  # characters
_PREFIX = "drop_block("
_CACHED_LINE = 64  # characters; calls repeat endlessly, and longer lines must not pile up in memory
# JavaScript's white space, which is neither Python's (no U+001C, no U+0085) nor ASCII's (U+FEFF is in it).
_SPACE = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
# The type stands between the first and the last UTF-16 unit before the comma, whatever these are; a character
# beyond U+FFFF is two units, one of which would remain.
_ANY_QUOTE = r"[^,\U00010000-\U0010ffff]"
_CALL = re.compile(
    rf"drop_block\({_ANY_QUOTE}(?P<kind>{ANY_BLOCK}){_ANY_QUOTE},"
    rf"{_SPACE}*+(?:(?P<minus>-?)\+?(?=[0-9])0*+(?P<column>[0-9]{{0,3}}))?"
)

FENCED = re.compile(r"```([^`]++)```")
CALL = re.compile(rf"""drop_block\(['|"]{LOOSE_BLOCK}['|"], *+[0-9]*+\)""")


def extract_code(response: str) -> str | None:
    r"""Return the calls of the last fenced block, each on a line ended by `\n`, or None without a call.

    A block holds no backtick, so a stray one changes which fences pair up. Quotes become `'`. Malformed
    calls that the official pattern accepts (`b|3`, no column) are returned too: the conversion refuses them.
    """
    block = last_block(response)
    calls = CALL.findall(block[1]) if block else []
    return "\n".join([*calls, ""]).replace('"', "'") if calls else None


def last_block(response: str) -> re.Match[str] | None:
    """Return the last fenced block, whose group 1 is its content, or None without one."""
    last = None
    for last in FENCED.finditer(response):  # noqa: B007 - blocks pair up from the left, so the last is found last
        pass
    return last


class LevelError(PcgevalError):
    """A level that cannot be converted or read; `str(error)` is the official converter's message, if it has one.

    Attributes:
        failure: The failure of a trial with this level.
    """

    def __init__(self, message: str, because: Failure | None = None) -> None:
        """Take the message, and the failure unless it is that of a level that cannot be read."""
        super().__init__(message)
        self.failure = because or failure("level-unreadable", fault=message)


@dataclass(frozen=True, slots=True)
class Call:
    """One line that starts like a call: its beginning, and the parts that could be read.

    `kind` is None for an unknown type, `column` is None where there is no whole number from 0 on or it is too long.
    """

    text: str
    kind: str | None
    column: int | None


def read_calls(code: str) -> Iterator[Call]:
    r"""Yield the calls of a text in order: its lines, split at `\n` alone, that start with `drop_block(`."""
    for line in code.lower().split("\n"):
        call = _read_short(line) if len(line) <= _CACHED_LINE else _read(line)
        if call:
            yield call


def quoted(text: str) -> str:
    """Return a stranger's code for a sentence with backticks around it: printable, of at most 80 characters."""
    return truncate(printable_name(text, LONGEST_QUOTE).replace("`", "'"), LONGEST_QUOTE)


def _read(line: str) -> Call | None:
    if not line.startswith(_PREFIX):
        return None
    match = _CALL.match(line)
    if not match:
        return Call(line[:_CACHED_LINE], None, None)
    return Call(line[:_CACHED_LINE], match["kind"], _column(match))


_read_short = lru_cache(maxsize=4096)(_read)


def _column(match: re.Match[str]) -> int | None:
    """Return the result of `parseInt` for the text after the comma; None for NaN and for negative numbers."""
    if match["column"] is None:
        return None
    column = int(match["column"] or "0")
    return None if match["minus"] and column else column
