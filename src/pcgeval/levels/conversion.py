"""From a model's response to the calls in its last fenced block, and from calls to a level, as officially.

The patterns are those of `extractCode` in the competition's JavaScript library. They are made possessive, which
changes no match (what follows each repetition cannot be part of it) and keeps hostile text in linear time. Blocks drop
into a grid of 20 columns and 16 rows from the bottom up.

`why_no_code` names what was written in place of a call. Its patterns look at a bounded text behind each name of a call.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from itertools import islice
from typing import Any, NamedTuple

from pcgeval.core.errors import PcgevalError
from pcgeval.core.text import count, plain, printable_name, truncate
from pcgeval.formats.blocks import ANY_BLOCK, BLOCKS, LOOSE_BLOCK, NAMES
from pcgeval.formats.failures import Failure, failure

_FENCED = re.compile(r"```([^`]++)```")
CALL = re.compile(rf"""drop_block\(['|"]{LOOSE_BLOCK}['|"], *+[0-9]*+\)""")
_LONGEST_QUOTE = 80  # characters
_CACHED_LINE = 64  # characters; calls repeat endlessly, and longer lines must not pile up in memory
# JavaScript's white space, which is neither Python's (no U+001C, no U+0085) nor ASCII's (U+FEFF is in it).
_SPACE = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
# The type stands between the first and the last UTF-16 unit before the comma, whatever these are; a character
# beyond U+FFFF is two units, one of which would remain.
_ANY_QUOTE = r"[^,\U00010000-\U0010ffff]"
_CALL_PARTS = re.compile(
    rf"drop_block\({_ANY_QUOTE}(?P<kind>{ANY_BLOCK}){_ANY_QUOTE},"
    rf"{_SPACE}*+(?:(?P<minus>-?)\+?(?=[0-9])0*+(?P<column>[0-9]{{0,3}}))?"
)

COLUMNS, ROWS = 20, 16
CELL = Decimal("0.2401")  # metres; this and the next two are the official converter's
LEFT, GROUND = Decimal(2), Decimal("-3.5")
LEAST_VIEW = Decimal(17)  # metres
_HEAD = """\
<?xml version="1.0" encoding="utf-16"?>
<Level width="3">
  <Camera x="2" y="0" minWidth="{least}" maxWidth="{most}" />
  <Birds>
    <Bird type="BirdRed" />
  </Birds>
  <Slingshot x="-9" y="-2.5" />
  <GameObjects>
"""
_BLOCK = '    <Block type="{type}" material="wood" x="{x}" y="{y}" rotation="{rotation}" />\n'
_TAIL = "  </GameObjects>\n</Level>"

_FENCE = "```"
_LONGEST_CALL = 200  # characters of what is nearly a call
_MOST_NAMES = 1000  # names in a block that are looked at
_CALL_NAME = re.compile(r"(?<!def )drop[ _-]?block", re.IGNORECASE)
_WHOLE_CALL = re.compile(r"[^()\n]*\((?:[^()\n]|\([^()\n]*\))*\)")
_NOT_RUN = "a program is not run, and only calls that are written out are read"
_BEGINNING = r"drop_block\("
_TYPE = rf"{_BEGINNING}['\"|]{LOOSE_BLOCK}['\"|]"
_COLUMN = rf"{_TYPE}, *"
# The first pattern that matches tells what is wrong; `x` is quoted. A mere mention has no words.
_FAULTS = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r"(?!drop_block\s*\()(?i:drop[ _-]?block)\w*\s*\(", "has another name than drop_block"),
        (rf"[^(\n]*\b(?:{ANY_BLOCK})\b[^(\n]*(?:\n|$)", "has no brackets; write drop_block('b13', 7)"),
        (r"(?!drop_block\s*\()", ""),
        (r"drop_block\s+\(", "has a blank before the bracket, which is not read"),
        (rf"{_BEGINNING}\s*\)", ""),
        (rf"{_BEGINNING}[\s'\"b,\d]*\n[\s'\"b,\d]*\)", "goes over several lines; each call stands in one line"),
        (rf"{_BEGINNING}[^)\n]*(?:\n|$)", "has no closing bracket"),
        (rf"{_BEGINNING}\s", "has blanks inside the brackets, which are not read"),
        (rf"{_BEGINNING}(?:[^,)]*,)?\s*[A-Za-z_]\w*\s*[=:]", "names its arguments; write drop_block('b13', 7)"),
        (rf"{_BEGINNING}[^,)]*[`\u2018\u2019\u201c\u201d\u00ab\u00bb\u00b4]", "has other quotes than ' or \""),
        (rf"{_BEGINNING}(?P<x>{ANY_BLOCK})\s*[,)]", "has no quotes around the type; write '{x}'"),
        (rf"{_BEGINNING}['\"|](?:\s+(?:{ANY_BLOCK})\s*|(?:{ANY_BLOCK})\s+)['\"|]", "has blanks inside the quotes"),
        (
            rf"{_BEGINNING}['\"|]B(?P<x>{ANY_BLOCK.replace('b', '')})['\"|]",
            "has a capital letter in the type; write 'b{x}'",
        ),
        (
            rf"{_BEGINNING}['\"|](?!(?:{ANY_BLOCK})['\"|])(?P<x>[^'\"|,)]*)['\"|]",
            f"has the type '{{x}}', which does not exist; the types are {NAMES}",
        ),
        (rf"{_BEGINNING}(?P<x>(?!['\"|])[^,)]*)", "has `{x}` in place of a type in quotes; " + _NOT_RUN),
        (rf"{_TYPE}\)", "has no column"),
        (rf"{_TYPE}\s+,", "has a blank before the comma, which is not read"),
        (rf"{_COLUMN}\t", "has a tab after the comma; only blanks are read there"),
        (rf"{_COLUMN}[^),]*\s\)", "has blanks inside the brackets, which are not read"),
        (rf"{_COLUMN}[^),]*,", "has more in its brackets than a type and a column"),
        (rf"{_COLUMN}['\"]", "has quotes around the column; write it without them"),
        (rf"{_COLUMN}-[0-9]+\)", "has a negative column; columns begin at 0"),
        (rf"{_COLUMN}(?P<x>[0-9]*\.[0-9]*)\)", "has the column {x}; write a whole number"),
        (rf"{_COLUMN}(?P<x>[^()]*(?:\([^()]*\)[^()]*)*)", "has `{x}` in place of a column; " + _NOT_RUN),
        ("", "is not written as drop_block('b13', 7)"),
    )
)


def extract_code(response: str) -> str | None:
    r"""Return the calls of the last fenced block, each on a line ended by `\n`, or None without a call.

    A block holds no backtick, so a stray one changes which fences pair up. Quotes become `'`. Malformed
    calls that the official pattern accepts (`b|3`, no column) are returned too: the conversion refuses them.
    """
    block = last_block(response)
    return find_calls(block[1]) if block else None


def find_calls(text: str) -> str | None:
    """Return the calls of a text without fences, as `extract_code` does."""
    calls = CALL.findall(text)
    return "\n".join([*calls, ""]).replace('"', "'") if calls else None


def last_block(response: str) -> re.Match[str] | None:
    """Return the last fenced block, whose group 1 is its content, or None without one."""
    last = None
    for last in _FENCED.finditer(response):  # noqa: B007 - blocks pair up from the left, so the last is found last
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


def level_xml(code: str) -> str:
    """Convert extracted calls to a level, byte for byte as `convertTextToXML` of the competition's library does.

    The structure is shifted to the left edge; the blocks keep the order of the calls. No call gives an empty level.
    The text declares UTF-16, as the official one does; write it as UTF-8.

    Raises:
        LevelError: A call is invalid; the message is the official one, the failure names the call.
    """
    structure = drop(read_calls(code))
    first = structure.first_column
    lines = [_block_line(kind, column - first, row) for kind, column, row in structure.blocks]
    return "".join([_head(structure.rows), *lines, _TAIL])


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
        call = _read_short_line(line) if len(line) <= _CACHED_LINE else _read_line(line)
        if call:
            yield call


def _read_line(line: str) -> Call | None:
    if not line.startswith("drop_block("):
        return None
    match = _CALL_PARTS.match(line)
    if not match:
        return Call(line[:_CACHED_LINE], None, None)
    return Call(line[:_CACHED_LINE], match["kind"], _column(match))


_read_short_line = lru_cache(maxsize=4096)(_read_line)


def _column(match: re.Match[str]) -> int | None:
    """Return the result of `parseInt` for the text after the comma; None for NaN and for negative numbers."""
    if match["column"] is None:
        return None
    column = int(match["column"] or "0")
    return None if match["minus"] and column else column


class Placed(NamedTuple):
    """A block that came to rest: its centre column and its bottom row."""

    kind: str
    column: int
    row: int


@dataclass(frozen=True)
class Structure:
    """All blocks in the order of dropping, the leftmost used column, and how many rows are used."""

    blocks: tuple[Placed, ...]
    first_column: int
    rows: int


def drop(calls: Iterable[Call]) -> Structure:
    """Drop the blocks one after the other.

    Raises:
        LevelError: A block is unknown or does not fit; the message is the official one, the failure names the call.
    """
    tops = [0] * COLUMNS  # the row above the highest used cell of each column
    blocks = [_drop_one(number, call, tops) for number, call in enumerate(calls, start=1)]
    first = next((column for column, top in enumerate(tops) if top), 0)
    return Structure(tuple(blocks), first, max(tops))


def _drop_one(number: int, call: Call, tops: list[int]) -> Placed:
    """Place one block on top of what lies under its cells; the order of the checks is the official one."""

    def refused(why: str, **values: Any) -> LevelError:
        because = failure(why, number=number, call=quoted(call.text), **values)
        return LevelError(because.sentence.partition(" (")[0], because)

    kind, column = call.kind, call.column
    if kind is None:
        raise refused("unknown-block")
    if column is None or column >= COLUMNS:
        raise refused("no-column", last=COLUMNS - 1)
    width, height, *_ = BLOCKS[kind]
    left, right = column - width // 2, column + width // 2 + 1
    if tops[column] == ROWS:
        raise refused("too-high", free=0, rows=ROWS, height=height)
    if left < 0 or right > COLUMNS:
        raise refused("too-wide", block=kind, first=width // 2, last=COLUMNS - 1 - width // 2)
    # The official tool starts its search in the top row without looking beside the centre: a wide block next to a
    # full column stays there, overlapping it.
    row = min(max(tops[left:right]), ROWS - 1)
    if row + height > ROWS:
        raise refused("too-high", free=ROWS - row, rows=ROWS, height=height)
    tops[left:right] = [row + height] * width
    return Placed(kind, column, row)


def quoted(text: str) -> str:
    """Return a stranger's code for a sentence with backticks around it: printable, of at most 80 characters."""
    return truncate(printable_name(text, _LONGEST_QUOTE).replace("`", "'"), _LONGEST_QUOTE)


@cache
def _head(rows: int) -> str:
    """Return the part before the blocks; the camera sees 3.2 times the height of the used rows, or 17 metres.

    The official formula also looks at the used cells of a row, but a full row needs only 13.6 metres.
    """
    least = max(2 * Decimal("1.6") * (-GROUND + CELL * rows), LEAST_VIEW)
    return _HEAD.format(least=plain(least), most=plain(least + 5))


@cache
def _block_line(kind: str, column: int, row: int) -> str:
    """Return the element of a block with this centre column and bottom row."""
    width, height, block_type, rotation = BLOCKS[kind]
    x = LEFT + CELL * (column - width // 2) + CELL * width / 2
    y = GROUND + CELL * row + CELL * height / 2
    return _BLOCK.format(type=block_type, x=plain(x), y=plain(y), rotation=rotation)


def why_no_code(response: str) -> Failure:
    """Return why `extract_code` finds no call in a response."""
    last = last_block(response)
    if last is not None:
        return _without_call(response, last)
    if not response.strip():
        return failure("empty-response")
    if _FENCE in response:
        return _unpaired(response, response.find(_FENCE))
    calls = _count_calls(response)
    return failure("no-fence", calls=count(calls, "drop_block call") if calls else "no drop_block call")


def why_no_calls(text: str) -> Failure:
    """Return why `find_calls` finds no call in a text without fences."""
    unread = list(unread_calls(text))
    return _unread_call(text, 0, unread) if unread else why_no_code(text)


def unread_calls(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the place of each text that is nearly a call, the text, and what is wrong with it; the first ones only."""
    for name in islice(_CALL_NAME.finditer(text), _MOST_NAMES):
        if not CALL.match(text, name.start()):
            nearly = text[name.start() : name.start() + _LONGEST_CALL]
            match, words = next((match, words) for fault, words in _FAULTS if (match := fault.match(nearly)))
            if words:
                values = {key: quoted(value) for key, value in match.groupdict().items()}
                whole = _WHOLE_CALL.match(nearly)
                yield name.start(), whole[0] if whole else nearly.partition("\n")[0], words.format(**values)


def _without_call(response: str, last: re.Match[str]) -> Failure:
    """Return why a response with fenced blocks, of which this is the last one, holds no call."""
    unread = list(unread_calls(last[1]))
    for earlier in _FENCED.finditer(response, 0, last.start()):
        if (calls := _count_calls(earlier[1])) and calls >= len(unread):
            return failure("earlier-fence", calls=count(calls, "call"), line=_line_at(response, earlier.start()))
    if unread:
        return _unread_call(response, last.start(1), unread)
    before, after = response.find(_FENCE), response.find(_FENCE, last.end())
    for fence, end in ((after, len(response)), (before, last.start())):
        if 0 <= fence < end and _count_calls(response[fence:end]):
            return _unpaired(response, fence)
    return failure("no-call", line=_line_at(response, last.start()), last=_line_at(response, last.end()))


def _unread_call(text: str, start: int, unread: Iterable[tuple[int, str, str]]) -> Failure:
    """Return the failure of calls that are not read, with their places behind `start`: the one easiest to mend."""
    place, call, fault = min(unread, key=lambda nearly: nearly[2].endswith(_NOT_RUN))
    return failure("unread-call", line=_line_at(text, start + place), call=quoted(call), fault=fault)


def _unpaired(response: str, fence: int) -> Failure:
    """Return the failure of a response with a fence that the extraction pairs with no other one."""
    inside = fence + len(_FENCE)
    backtick, other = response.find("`", inside), response.find(_FENCE, inside)
    if 0 <= backtick < other:
        return failure("backtick", line=_line_at(response, fence), place=_line_at(response, backtick))
    return failure("open-fence", line=_line_at(response, fence))


def _count_calls(text: str) -> int:
    return sum(1 for _ in CALL.finditer(text))


def _line_at(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
