"""Why a response holds no call: its fences, or what was written in place of a call and what is read.

The patterns look at a bounded text behind each name of a call, so that hostile text takes linear time.
"""

import re
from collections.abc import Iterator
from itertools import islice

from pcgeval.core.text import count
from pcgeval.formats.blocks import ANY_BLOCK, LOOSE_BLOCK, NAMES
from pcgeval.formats.failures import Failure, failure
from pcgeval.levels.conversion import CALL, FENCED, last_block, quoted

_FENCE = "```"
_LONGEST = 200  # characters of what is nearly a call
_MOST = 1000  # names in a block that are looked at
_NAME = re.compile(r"(?<!def )drop[ _-]?block", re.IGNORECASE)
_WHOLE = re.compile(r"[^()\n]*\((?:[^()\n]|\([^()\n]*\))*\)")
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
        (rf"{_BEGINNING}[^,)]*[\u2018\u2019\u201c\u201d\u00ab\u00bb\u00b4]", "has other quotes than ' or \""),
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


def why_no_code(response: str) -> Failure:
    """Return why `extract_code` finds no call in a response."""
    last = last_block(response)
    if last is not None:
        return _without_call(response, last)
    if not response.strip():
        return failure("empty-response")
    if _FENCE in response:
        return _unpaired(response, response.find(_FENCE))
    calls = _calls(response)
    return failure("no-fence", calls=count(calls, "drop_block call") if calls else "no drop_block call")


def unread_calls(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the place of each text that is nearly a call, the text, and what is wrong with it; the first ones only."""
    for name in islice(_NAME.finditer(text), _MOST):
        if not CALL.match(text, name.start()):
            nearly = text[name.start() : name.start() + _LONGEST]
            match, words = next((match, words) for fault, words in _FAULTS if (match := fault.match(nearly)))
            if words:
                values = {key: quoted(value) for key, value in match.groupdict().items()}
                whole = _WHOLE.match(nearly)
                yield name.start(), whole[0] if whole else nearly.partition("\n")[0], words.format(**values)


def _without_call(response: str, last: re.Match[str]) -> Failure:
    """Return why a response with fenced blocks, of which this is the last one, holds no call."""
    unread = list(unread_calls(last[1]))
    for earlier in FENCED.finditer(response, 0, last.start()):
        if (calls := _calls(earlier[1])) and calls >= len(unread):
            return failure("earlier-fence", calls=count(calls, "call"), line=_line(response, earlier.start()))
    if unread:
        place, call, fault = min(unread, key=lambda nearly: nearly[2].endswith(_NOT_RUN))
        return failure("unread-call", line=_line(response, last.start(1) + place), call=quoted(call), fault=fault)
    before, after = response.find(_FENCE), response.find(_FENCE, last.end())
    for fence, end in ((after, len(response)), (before, last.start())):
        if 0 <= fence < end and _calls(response[fence:end]):
            return _unpaired(response, fence)
    return failure("no-call", line=_line(response, last.start()), last=_line(response, last.end()))


def _unpaired(response: str, fence: int) -> Failure:
    """Return the failure of a response with a fence that the extraction pairs with no other one."""
    inside = fence + len(_FENCE)
    backtick, other = response.find("`", inside), response.find(_FENCE, inside)
    if 0 <= backtick < other:
        return failure("backtick", line=_line(response, fence), place=_line(response, backtick))
    return failure("open-fence", line=_line(response, fence))


def _calls(text: str) -> int:
    return sum(1 for _ in CALL.finditer(text))


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1
