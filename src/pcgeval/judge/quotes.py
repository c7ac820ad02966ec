"""Measure the evidence of an answer: whether the lines that it quotes are in a file that it was shown.

Models quote in many ways: with line numbers, bullets, quotation marks or the marks of a diff, and with an ellipsis for
what they leave out. None of these counts, nor does white space. A quotation that is not found changes no score.
"""

import re
import unicodedata
from bisect import bisect
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from pcgeval.rubric.record import QuoteRecord

MAX_QUOTE = 2_000  # characters that are recorded
_LEAST = 12  # characters of the longest piece; shorter ones are everywhere and have to be whole lines
_TEXTS_KEPT = 64  # in memory, each of at most half a megabyte
_HEADING = re.compile(r"^[ \t]*(?:#{1,6}[ \t*]*|\*\*)evidence\b.*$", re.IGNORECASE | re.MULTILINE)
_END = re.compile(r"^[ \t#*_]*(?:final )?score\b", re.IGNORECASE | re.MULTILINE)
_FILE = re.compile(r"^[ \t>*`#-]*file[ \t*`]*:(?P<name>.*)$", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})(?P<language>.*)$", re.MULTILINE)
_ELLIPSIS = re.compile(r"\[?(?:\.{3}|…)\]?")
# > quoted, - listed, 12: numbered, L12 | numbered, +added
_PREFIX = re.compile(r"\A(?:\s*(?:[>•*+-]\s|L?[0-9]{1,6}\s*[:|)]|[0-9]{1,6}\.?\s{1,8}|[+-](?=[^\W\d])|[>•|]))*\s*")
_QUOTES = str.maketrans("“”„‘’–—", '"""\'\'--')
_AROUND = "`*\"'"


def find_quote(answer: str, texts: Mapping[str, str], counting: Collection[str]) -> QuoteRecord:
    """Return what an answer quotes below its heading Evidence, and where that was found.

    Args:
        answer: A grader's words.
        texts: The text of each file that the grader was shown, by its name there.
        counting: The names of the files that can show what the criterion asks for.
    """
    heading = _HEADING.search(answer)
    section = answer[heading.end() :] if heading else ""
    named = _FILE.search(section)
    written = named["name"].strip(f"{_AROUND} ") if named else ""
    titles = {_plain(name) for name in texts}  # a grader may copy the line with the file's name
    pieces = [piece for piece in _quoted(section[named.end() if named else 0 :]) if piece not in titles]
    names = sorted(texts, key=lambda name: _is_named(written, name), reverse=True)
    for name in names if pieces else ():
        if lines := _lines_of(pieces, texts[name]):
            return QuoteRecord(
                status="found" if _is_named(written, name) else "elsewhere",
                counts=name in counting,
                file=name,
                first_line=lines[0] + 1,
                last_line=lines[-1] + 1,
                text=_excerpt(texts[name].split("\n"), lines)[:MAX_QUOTE],
            )
    return QuoteRecord(status="missing", file=written[:MAX_QUOTE])


def _is_named(written: str, name: str) -> bool:
    """Return whether a grader means a file, by its path or its last part; lines or a note may follow."""
    written, name = written.removeprefix("./"), name.strip(_AROUND)
    return any(re.match(rf"{re.escape(known)}(?![\w/-]|\.\w)", written) for known in (name, name.rpartition("/")[2]))


def _quoted(section: str) -> list[str]:
    """Return the pieces that a section quotes, between its first two fences or else up to the score."""
    fence = _FENCE.search(section)
    start = fence.end() if fence else 0
    end = _FENCE.search(section, start) if fence else _END.search(section)
    lines = section[start : end.start() if end else len(section)].split("\n")
    if fence and fence["language"].strip() == "diff":
        lines = [line for line in lines if not line.startswith(("-", "@@"))]
    return [piece for line in lines for part in _ELLIPSIS.split(line) if (piece := _plain(part))]


def _plain(line: str) -> str:
    """Return a line without what quoting adds or changes."""
    line = unicodedata.normalize("NFKC", line).translate(_QUOTES)
    line = _PREFIX.sub("", line, count=1)
    return "".join(line.split()).strip(_AROUND)


def _lines_of(pieces: Sequence[str], text: str) -> Sequence[int]:
    """Return the numbers of the lines of a text in which pieces stand: as lines, in order, or else anywhere."""
    numbers, lines, ends = _plain_lines(text)
    before, found, _ = f"\n{lines}\n".partition("\n".join(["", *pieces, ""]))
    if found:
        first = before.count("\n")
        return numbers[first : first + len(pieces)]
    if max(map(len, pieces)) < _LEAST:
        return ()
    whole, places, start = lines.replace("\n", ""), set[int](), 0
    for piece in pieces:
        at = whole.find(piece, start)
        if at < 0 and (at := whole.find(piece)) < 0:
            return ()
        start = at + len(piece)
        places.update(range(bisect(ends, at), bisect(ends, start - 1) + 1))
    return [numbers[place] for place in sorted(places)]


def _excerpt(lines: Sequence[str], numbers: Sequence[int]) -> str:
    """Return these lines of a text, with an ellipsis where lines between them are left out."""
    shown = [lines[numbers[0]]]
    for before, number in pairwise(numbers):
        between = lines[before + 1 : number]
        shown += [*(["..."] if any(map(str.strip, between)) else between), lines[number]]
    return "\n".join(shown)


@lru_cache(_TEXTS_KEPT)
def _plain_lines(text: str) -> tuple[Sequence[int], str, Sequence[int]]:
    """Return the numbers of the lines that are not empty, these lines, and the end of each when they are joined."""
    lines = {number: plain for number, line in enumerate(text.split("\n")) if (plain := _plain(line))}
    return list(lines), "\n".join(lines.values()), list(accumulate(map(len, lines.values())))
