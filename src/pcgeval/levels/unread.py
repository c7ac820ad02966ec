"""Why a response gives no calls: what was written where a call should stand, and what the extractor reads."""

import re
from collections.abc import Iterator

from pcgeval.core.console import count
from pcgeval.core.failures import Failure, failure
from pcgeval.core.untrusted import printable_line
from pcgeval.levels.extraction import CALL, FENCED

_SHOWN = 80  # characters of a line
_NEAR_CALL = re.compile(r"drop_?block[^\n]{0,200}", re.IGNORECASE)
_OPENING = re.compile(r"```")
# what is wrong with a text that begins as a call, the first that matches; the extractor reads `drop_block('b31', 7)`
_FAULTS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), fault)
    for pattern, fault in (
        (r"(?!drop_block)", "is not spelt `drop_block`"),
        (r"drop_block\s+\(", "has blanks before the bracket, which are not read"),
        (r"drop_block(?!\()", "has no brackets"),
        (r"drop_block\([ \t]", "has blanks inside the brackets, which are not read"),
        (r"drop_block\((?:block_type|type|kind|\w+)\s*=", "names its arguments, which are read by their places alone"),
        (r"drop_block\([\"']?[^,\"')]{0,40}[\"']?\)", "has no column"),
        (r"drop_block\([\u2018\u2019\u201c\u201d]", "has curly quotes around the type"),
        (r"drop_block\([^\"'|]", "has no quotes around the type"),
        (r"drop_block\([\"'](?!b11[\"']|b13[\"']|b31[\"'])", "has no type b11, b13 or b31"),
        (r"drop_block\([\"']b..[\"'](?!,)", "has no comma directly behind the type"),
        (r"drop_block\([\"']b..[\"'], *+[\t\n\r]", "has a tab or a line end before the column"),
        (r"drop_block\([\"']b..[\"'], *+-", "has a negative column"),
        (r"drop_block\([\"']b..[\"'], *+[0-9]+\.", "has a column that is no whole number"),
        (r"drop_block\([\"']b..[\"'], *+\w+ *=", "names its arguments, which are read by their places alone"),
        (r"drop_block\([\"']b..[\"'], *+[0-9]+[ \t]", "has blanks inside the brackets, which are not read"),
        (r"drop_block\([\"']b..[\"'], *+[0-9]+,", "has more than two arguments"),
        (r"drop_block\([\"']b..[\"'], *+[\"']", "has quotes around the column"),
        (r"drop_block\([\"']b..[\"'], *+[^0-9)]", "has a column that is no number; programs are not run"),
        (r"drop_block\([\"']b..[\"'], *+[0-9]*$", "is not closed"),
    )
)


def why_no_code(response: str) -> Failure:
    """Return why `extract_code` found no calls in a response; it takes time linear in the text.

    Lines are those of the response, from 1.
    """
    if not response.strip():
        return failure("empty-response")
    blocks = [*FENCED.finditer(response)]
    if not blocks:
        opening = _OPENING.search(response)
        return failure("open-fence", line=_line(response, opening.start())) if opening else failure("no-fence")
    last = blocks[-1]
    for near in _NEAR_CALL.finditer(last[1]):
        call = _bounded(near[0])
        if (fault := _fault(call)) is not None:
            place = _line(response, last.start(1) + near.start())
            return failure("unread-call", line=place, call=_shown(call), fault=fault)
    opening = _OPENING.search(response, last.end())
    if opening and CALL.search(response, opening.end()):
        return failure("open-fence", line=_line(response, opening.start()))
    earlier = [(block, len(CALL.findall(block[1]))) for block in blocks[:-1]]
    for block, calls in reversed(earlier):
        if calls:
            return failure("earlier-fence", calls=count(calls, "call"), line=_line(response, block.start()))
    return failure("no-call")


def _fault(call: str) -> str | None:
    return next((fault for pattern, fault in _FAULTS if pattern.match(call)), None)


def _bounded(text: str) -> str:
    """Return a text to the end of its first pair of brackets."""
    return next(_closed(text), text)


def _closed(text: str) -> Iterator[str]:
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth <= 0:
            yield text[: place + 1]


def _shown(call: str) -> str:
    return printable_line(call.replace("`", "'"), _SHOWN)


def _line(response: str, place: int) -> int:
    return response.count("\n", 0, place) + 1
