"""Parsing a model's answers: English prose with headings, or JSON in prose, in a fence or in Python's form.

An answer that does not state exactly one valid score is unparsable. The messages of `UnparsableAnswer` are told to the
model when it is asked again: they hold numbers from its answer but none of its words, which may be a submission's.
"""

import ast
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from pcgeval.core.untrusted import well_formed
from pcgeval.judge.files import SubmissionFile, clean
from pcgeval.rubric.grades import Verdict

MAX_PICKED = 10  # files, as in PaperBench
MAX_ANSWER = 20_000  # characters that are read of an answer
MAX_EXPLANATION = 1000  # characters
_MOST_OBJECTS = 50  # places at which JSON is looked for
_MOST_LINES = 200  # that are looked at
_MOST_TIMES = 3  # that a score may be repeated; a model that repeats it oftener is running in circles
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"</think(?:ing)?>|<\|channel\|>final<\|message\|>")
_VALID_KEYS = ("valid_score", "valid", "is_valid")
_REASON_KEYS = ("explanation", "reason")
_SAYS_INVALID = re.compile(
    rf"(?<!\w)(?:{'|'.join(_VALID_KEYS)})[\"'*`]{{0,4}}\s{{0,4}}[:=][\"'\s]{{0,4}}false", re.IGNORECASE
)
_NO_SCORE = "valid_score is false, so the verdict has no score."
_BULLET = re.compile(r"^(?:[-*•+]\s+|\(?[0-9]{1,3}[.):]\s+)")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.){1,900}"' + r"|`[^`\n]{1,900}`|'[^'\n]{1,900}'")
_MARK = r"^(?P<mark>[ \t>#*_]*(?:[0-9][.)][ \t*_]*)?)"
# a line that begins with the name of the score: a heading, or `Score: 1`
_LINE = re.compile(
    rf"{_MARK}(?:final )?score(?!\w)"
    r"(?:[ \t*_]*[(\[] ?0[^)\]\n]{1,20}1 ?[)\]])?(?P<rest>[^\n]*)$",  # perhaps with (0 or 1) behind it
    re.IGNORECASE | re.MULTILINE,
)
_OTHER_LINE = re.compile(rf"{_MARK}(?:expectations?|reality)(?!\w)(?P<rest>[^\n]*)\n", re.IGNORECASE | re.MULTILINE)
_INLINE = re.compile(r"(?<!\w)score(?!\w)[\"'*`_]{0,4}[ \t]{0,4}(?:[:=]|is\b)(?P<rest>[^\n]*)", re.IGNORECASE)
_HEADING = re.compile(r"^[ \t>]*#", re.MULTILINE)
_HEADING_RANK = 2
_WORDS = {"zero": 0.0, "one": 1.0}
_NUMBER = re.compile(
    r"[-+]?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:e[-+]?[0-9]{1,3})?(?!\w)"
    r"|(?:zero|one)(?=[*_`\"']{0,4}\s{0,4}(?:$|[.,;:!()]))",  # but not "one of the files"
    re.IGNORECASE,
)
_DECORATION = " \t*_`'\"#:=>–—([{"
_OUT_OF = re.compile(r"[*_`\"']{0,4}\s{0,3}(?:/|out of|of)\s{0,3}([0-9]+)", re.IGNORECASE)
_PERCENT = re.compile(r"\s?%")
_ANOTHER = re.compile(r"[*_`\"']{0,4}(?:\s{0,3}(?:[,;|&]|or|and|to)\s{0,3}|[-–])[0-9]", re.IGNORECASE)


class UnparsableAnswer(Exception):  # noqa: N818 - an answer, not an error: it is asked for again
    """An answer that does not hold what was asked for; the message tells the model why."""


def without_thinking(text: str) -> str:
    """Return the end of an answer, as far as one is read, without the thoughts that some models write before it.

    The templates of some models begin the thoughts, so that the answer holds their end alone.
    """
    *_, answer = _END_OF_THINKING.split(_THINKING.sub("", clean(text)))
    return answer[-MAX_ANSWER:].strip()


def parse_grade(text: str, *, continuous: bool, cut: bool = False) -> float:
    """Return the score that a grader's answer gives; where the answer was cut off, it must stand under a heading.

    Raises:
        UnparsableAnswer: It gives none or several, or one that is invalid.
    """
    if not without_thinking(text):
        raise UnparsableAnswer("it is empty.")
    finished = text[: max(text.rfind(" "), text.rfind("\n")) + 1] if cut else text  # 0.7 may be the beginning of 0.75
    return _stated_score(without_thinking(finished), continuous=continuous, cut=cut)


def parse_verdict(text: str, *, continuous: bool, stated: float | None = None) -> Verdict:
    """Return the verdict from an answer that should be JSON.

    Small models write `valid_score: false` of a valid 0: with the score that the grader `stated`, it counts.

    Raises:
        UnparsableAnswer: It has no score, several, an invalid one, or another than the grader stated.
    """
    if not (text := without_thinking(text)):
        raise UnparsableAnswer("it is empty.")
    denied = False
    verdicts = [each for each in _objects(text) if _value(each, ("score", *_VALID_KEYS)) is not None]
    if verdicts:
        denied = any(str(_value(verdict, _VALID_KEYS)).strip().casefold() == "false" for verdict in verdicts)
        if denied and stated is None:
            raise UnparsableAnswer(_NO_SCORE)
        score = _one_score([_checked_score(_value(verdict, ("score",)), continuous=continuous) for verdict in verdicts])
        reasons = [each for verdict in verdicts if isinstance(each := _value(verdict, _REASON_KEYS), str)]
        # JSON's escapes may stand for control characters and half characters
        explanation = clean(well_formed(reasons[0])).strip() if reasons else ""
    elif _SAYS_INVALID.search(text):
        raise UnparsableAnswer(_NO_SCORE)
    else:
        score, explanation = _stated_score(text, continuous=continuous), text
    if stated is not None and score != stated:
        if denied:
            raise UnparsableAnswer(_NO_SCORE)
        raise UnparsableAnswer(f"it says {score:g}, but the score under the last heading is {stated:g}.")
    return Verdict(score, explanation[:MAX_EXPLANATION])


def parse_ranking(text: str, offered: Sequence[SubmissionFile]) -> tuple[SubmissionFile, ...]:
    """Return the files that an answer names, at most ten, best first; names that were not offered are ignored.

    A file's bare name is enough if no other that was offered has it.
    """
    by_base: dict[str, list[SubmissionFile]] = {}
    for file in offered:
        by_base.setdefault(file.name.rpartition("/")[2], []).append(file)
    known = {base: files[0] for base, files in by_base.items() if len(files) == 1}
    for file in offered:
        known[file.name] = file
        if file.name.startswith('"'):
            known[json.loads(file.name)] = file
    named = (known.get(name) for line in without_thinking(text).split("\n") for name in _names(line))
    return tuple(dict.fromkeys(file for file in named if file is not None))[:MAX_PICKED]


def _names(line: str) -> Iterator[str]:
    """Yield what may be a file's name in a line: the line itself, what is quoted in it, and its words."""
    line = _BULLET.sub("", line.strip()).strip()
    for candidate in (line, *_QUOTED.findall(line), *line.split()):
        yield candidate
        bare = candidate.strip(" \t,;:*`'\"()[]{}").removeprefix("./").strip("/")
        yield bare
        yield bare.rstrip(".!?")
        if candidate.startswith('"') and candidate.endswith('"'):
            try:
                yield str(json.loads(candidate))
            except ValueError:
                continue


def _objects(text: str) -> list[Mapping[Any, Any]]:
    """Return the JSON objects of a text, or else the one Python literal in it."""
    decoder = json.JSONDecoder()
    found: list[Mapping[Any, Any]] = []
    start = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            found.append(value)
        start = text.find("{", end)
    start, end = text.find("{"), text.rfind("}") + 1
    if not found and 0 <= start < end:
        try:
            found = [ast.literal_eval(text[start:end])]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return []
    return [each for each in found if isinstance(each, dict)]


def _value(found: Mapping[Any, Any], keys: Sequence[str]) -> Any:
    """Return the first of these keys' values that is not null; upper and lower case count as the same."""
    values = {key.strip().casefold(): value for key, value in found.items() if isinstance(key, str)}
    return next((values[key] for key in keys if values.get(key) is not None), None)


def _one_score(scores: Sequence[float]) -> float:
    """Return the one score of an answer, which it may repeat a few times."""
    if not scores:
        raise UnparsableAnswer("it has no heading Score with a number.")
    if len(set(scores)) > 1 or len(scores) > _MOST_TIMES:
        raise UnparsableAnswer(f"it gives {len(scores)} scores instead of one.")
    return scores[0]


def _checked_score(value: Any, *, continuous: bool) -> float:
    """Return a score given as a number, or in words such as "1", "one" or "1 - all is there"."""
    score = _first_number(value) if isinstance(value, str) else value
    allowed = "a number from 0 to 1" if continuous else "0 or 1"
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise UnparsableAnswer(f"its score is no number; it must be {allowed}.")
    if not 0 <= score <= 1 or not (continuous or score in (0, 1)):
        shown = f"{score:g}" if abs(score) < 1e9 else "out of all bounds"
        raise UnparsableAnswer(f"its score is {shown}; it must be {allowed}.")
    return float(score)


def _stated_score(text: str, *, continuous: bool, cut: bool = False) -> float:
    """Return the one score that a text states under a heading Score, or else in a line or words such as "Score: 1".

    Where the text has other headings, the text under these is not searched: it may be a quotation.
    """
    text = unicodedata.normalize("NFKC", text)  # wide digits and colons become common ones
    lines, others = _labels(_LINE, text), _labels(_OTHER_LINE, text)
    headings = [line for line in lines if "#" in line["mark"]]
    if not headings and others:  # the lines below the last other heading that look as much like a heading as that does
        headings = [line for line in lines if line.start() > others[-1].start() and _rank(line) >= _rank(others[-1])]
    elif not headings:
        headings = lines
    found: list[str] = []
    for line in headings:
        if not cut or _rank(line) == _HEADING_RANK:
            following = text[line.end() :]
            next_heading = _HEADING.search(following)
            found += _in_section(f"{line['rest']}{following[: next_heading.start()] if next_heading else following}")
    if not (lines or others or cut):
        found = [each["rest"] for each in islice(_INLINE.finditer(text), _MOST_LINES)]
    scores = [_checked_score(each, continuous=continuous) for each in found]
    if cut and not scores:
        raise UnparsableAnswer("it was cut off before its score.")
    return _one_score(scores)


def _labels(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """Return the lines that a pattern finds and that are headings, or labels before a colon."""
    found = []
    for line in islice(pattern.finditer(text), _MOST_LINES):
        rest = line["rest"].strip("*_ \t")
        if not rest or rest[0] in ":=" or "#" in line["mark"] or "*" in line["mark"]:
            found.append(line)
    return found


def _rank(line: re.Match[str]) -> int:
    """Return how much a line looks like a heading: `# Score` or `**Score**`, `3. Score`, or `Score: 1`."""
    if "#" in line["mark"] or "**" in line["mark"]:
        return _HEADING_RANK
    return int(any(character.isdigit() for character in line["mark"]))


def _in_section(body: str) -> Iterator[str]:
    """Yield the possible scores in the text under a heading: its first line and other bare numbers, or all numbers."""
    lines = [bare for line in body.split("\n") if (bare := _bare(line))]
    if lines and _NUMBER.match(lines[0]):
        yield lines[0]
        yield from (line for line in lines[1:] if _NUMBER.fullmatch(line))
    else:
        yield from (found.group() for line in lines for found in _NUMBER.finditer(line))


def _bare(text: str) -> str:
    return text.strip(_DECORATION).removeprefix("- ").lstrip(_DECORATION).rstrip(f"{_DECORATION}.;)]}}")


def _first_number(text: str) -> float | None:
    """Return the number with which a text begins; raises UnparsableAnswer for a range, a fraction or a percentage."""
    bare = _bare(unicodedata.normalize("NFKC", text))
    if (found := _NUMBER.match(bare)) is None:
        return None
    if _ANOTHER.match(bare, found.end()):
        raise UnparsableAnswer("it gives several scores instead of one.")
    if (whole := _OUT_OF.match(bare, found.end())) is not None and whole[1] != "1":
        raise UnparsableAnswer(f"its score is a part of {whole[1][:9]}; it must be from 0 to 1.")
    if _PERCENT.match(bare, found.end()):
        raise UnparsableAnswer("its score is a percentage; it must be from 0 to 1.")
    number = found.group().casefold()
    return _WORDS[number] if number in _WORDS else float(number)
