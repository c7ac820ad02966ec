"""Finding the one score that an answer in words states."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

MAX_ANSWER = 20_000  # characters that are read of an answer
_MOST_LINES = 200  # that are looked at
_MOST_TIMES = 3  # that a score may be repeated; a model that says it oftener is running in circles
_NAMES = "score|punktzahl|bewertung|wertung|puntuación|得分|评分|分数"
_MARK = r"^(?P<mark>[ \t>#*_]*(?:[0-9][.)][ \t*_]*)?)"
# a line that begins with the name of the score: a heading, or `Score: 1`
_LINE = re.compile(
    rf"{_MARK}(?:final )?(?:{_NAMES})(?!\w)"
    r"(?:[ \t*_]*[(\[] ?0[^)\]\n]{1,20}1 ?[)\]])?(?P<rest>[^\n]*)$",  # perhaps with (0 or 1) behind it
    re.IGNORECASE | re.MULTILINE,
)
_INLINE = re.compile(
    rf"(?<!\w)(?:{_NAMES})(?!\w)[\"'*`_]{{0,4}}[ \t]{{0,4}}(?:[:=]|is\b|ist\b)(?P<rest>[^\n]*)", re.IGNORECASE
)
_OTHERS = (
    "expectations?|reality|erwartung(?:en)?|realität|wirklichkeit|expectativas?|realidad|attentes?|réalité|期望|现实"
)
_OTHER_LINE = re.compile(rf"{_MARK}(?:{_OTHERS})(?!\w)(?P<rest>[^\n]*)\n", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(r"^[ \t>]*#", re.MULTILINE)
_HEADING_RANK = 2
_WORDS = {"zero": 0.0, "one": 1.0, "eins": 1.0, "cero": 0.0, "uno": 1.0, "零": 0.0, "一": 1.0}
_NUMBER = re.compile(
    rf"[-+]?(?:[0-9]+(?:[.,][0-9]+)?|\.[0-9]+)(?:e[-+]?[0-9]{{1,3}})?(?!\w)"
    rf"|(?:{'|'.join(_WORDS)})(?=[*_`\"']{{0,4}}\s{{0,4}}(?:$|[.,;:!()]))",  # but not "one of the files"
    re.IGNORECASE,
)
_DECORATION = " \t*_`'\"#:=>–—([{"
_OUT_OF = re.compile(r"[*_`\"']{0,4}\s{0,3}(?:/|out of|von|of)\s{0,3}([0-9]+)", re.IGNORECASE)
_PERCENT = re.compile(r"\s?%")
_ANOTHER = re.compile(r"[*_`\"']{0,4}(?:\s{0,3}(?:[,;|&]|or|oder|and|und|to|bis)\s{0,3}|[-–])[0-9]", re.IGNORECASE)


class Unusable(Exception):  # noqa: N818 - an answer, not an error: it is asked for again
    """An answer that does not give what was asked for; the message says so to the model."""


def plain(text: str) -> str:
    """Return a text in which wide digits, colons and the like are the common ones."""
    return unicodedata.normalize("NFKC", text)


def stated_score(text: str, *, continuous: bool, cut: bool = False) -> float:
    """Return the one score that a text states under a heading Score, or else in a line or words such as "Score: 1".

    Where the text has other headings, what stands under these is not taken for its score: it may be a quotation. A
    text that was `cut` must have its score under a heading.

    Raises:
        Unusable: It states none or several, or one that cannot be given.
    """
    scores = [score_in(each, continuous=continuous) for each in _statements(text, cut=cut)]
    if cut and not scores:
        raise Unusable("it was cut off before its score.")
    return one_score(scores)


def one_score(scores: Sequence[float]) -> float:
    """Return what all scores of an answer agree on.

    Raises:
        Unusable: There is none, they differ, or there are suspiciously many.
    """
    if not scores:
        raise Unusable("it has no heading Score with a number.")
    if len(set(scores)) > 1 or len(scores) > _MOST_TIMES:
        raise Unusable(f"it gives {len(scores)} scores instead of one.")
    return scores[0]


def score_in(value: Any, *, continuous: bool) -> float:
    """Return a score that is given as a number, or in words such as "1", "one" or "1 - all is there".

    Raises:
        Unusable: It is no number, or not one that can be given.
    """
    score = _first_number(value) if isinstance(value, str) else value
    allowed = "a number from 0 to 1" if continuous else "0 or 1"
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise Unusable(f"its score is no number; it must be {allowed}.")
    if not 0 <= score <= 1 or not (continuous or score in (0, 1)):
        raise Unusable(f"its score is {_shown(score)}; it must be {allowed}.")
    return float(score)


def _statements(text: str, *, cut: bool) -> Iterator[str]:
    lines, others = _labels(_LINE, text), _labels(_OTHER_LINE, text)
    headings = [line for line in lines if "#" in line["mark"]] or _after(others, lines)
    if cut:
        headings = [line for line in headings if _rank(line) == _HEADING_RANK]
    for line in headings:
        following = text[line.end() :]
        next_heading = _HEADING.search(following)
        body = f"{line['rest']}{following[: next_heading.start()] if next_heading else following}"
        yield from _in_section(body)
    if not (lines or others or cut):
        yield from (found["rest"] for found in islice(_INLINE.finditer(text), _MOST_LINES))


def _labels(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    return [line for line in islice(pattern.finditer(text), _MOST_LINES) if _is_label(line)]


def _after(others: Sequence[re.Match[str]], lines: Sequence[re.Match[str]]) -> Sequence[re.Match[str]]:
    """Return the lines below the last other heading that look as much like a heading as that does."""
    if not others:
        return lines
    last = others[-1]
    return [line for line in lines if line.start() > last.start() and _rank(line) >= _rank(last)]


def _rank(line: re.Match[str]) -> int:
    """Return how much a line looks like a heading: `# Score` or `**Score**`, `3. Score`, or `Score: 1`."""
    if "#" in line["mark"] or "**" in line["mark"]:
        return _HEADING_RANK
    return int(any(character.isdigit() for character in line["mark"]))


def _is_label(line: re.Match[str]) -> bool:
    rest = line["rest"].strip("*_ \t")
    return not rest or rest[0] in ":=" or "#" in line["mark"] or "*" in line["mark"]


def _in_section(body: str) -> Iterator[str]:
    """Yield what may be scores in the text under a heading: its first line and other bare numbers, or all numbers."""
    lines = [bare for line in body.split("\n") if (bare := _bare(line))]
    if lines and _NUMBER.match(lines[0]):
        yield lines[0]
        yield from (line for line in lines[1:] if _NUMBER.fullmatch(line))
    else:
        yield from (found.group() for line in lines for found in _NUMBER.finditer(line))


def _bare(text: str) -> str:
    return text.strip(_DECORATION).removeprefix("- ").lstrip(_DECORATION).rstrip(f"{_DECORATION}.;)]}}")


def _first_number(text: str) -> float | None:
    bare = _bare(plain(text))
    if (found := _NUMBER.match(bare)) is None:
        return None
    if _ANOTHER.match(bare, found.end()):
        raise Unusable("it gives several scores instead of one.")
    if (whole := _OUT_OF.match(bare, found.end())) is not None and whole[1] != "1":
        raise Unusable(f"its score is a part of {whole[1][:9]}; it must be from 0 to 1.")
    if _PERCENT.match(bare, found.end()):
        raise Unusable("its score is a percentage; it must be from 0 to 1.")
    number = found.group().casefold()
    return _WORDS[number] if number in _WORDS else float(number.replace(",", "."))


def _shown(score: float) -> str:
    return f"{score:g}" if abs(score) < 1e9 else "out of all bounds"
