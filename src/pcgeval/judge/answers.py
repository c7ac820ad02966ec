"""Reading what a model answered, in whatever form it chose; an answer that does not say one thing is of no use.

The messages of `Unusable` are told to the model when it is asked again: they hold numbers from its answer but none of
its words, which may be a submission's.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcgeval.core.untrusted import well_formed
from pcgeval.judge.folder import FoundFile
from pcgeval.judge.prompts import MAX_PICKED
from pcgeval.judge.reading import clean
from pcgeval.judge.scores import MAX_ANSWER, Unusable, one_score, plain, score_in, stated_score

MAX_EXPLANATION = 1000  # characters
_MOST_OBJECTS = 50  # places at which JSON is looked for
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_SCORE_KEYS = ("score", "punktzahl", "bewertung", "wertung", "puntuación", "得分", "评分", "分数")
_VALID_KEYS = ("valid_score", "valid", "is_valid", "gültig")
_REASON_KEYS = ("explanation", "reason", "erklärung", "begründung", "explicación", "explication", "解释", "理由")
_SAYS_INVALID = re.compile(
    rf"(?<!\w)(?:{'|'.join(_VALID_KEYS)})[\"'*`]{{0,4}}\s{{0,4}}[:=][\"'\s]{{0,4}}false", re.IGNORECASE
)
_NO_SCORE = "valid_score is false, so the verdict has no score."
_BULLET = re.compile(r"^(?:[-*•+]\s+|\(?[0-9]{1,3}[.):]\s+)")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.){1,900}"' + r"|`[^`\n]{1,900}`|'[^'\n]{1,900}'")


@dataclass(frozen=True)
class Answer:
    """The verdict that an answer holds."""

    score: float
    explanation: str


def without_thinking(text: str) -> str:
    """Return the end of an answer, as far as one is read, without the thoughts that some models write before it."""
    return _THINKING.sub("", clean(text)[-MAX_ANSWER:]).strip()


def read_grade(text: str, *, continuous: bool, cut: bool = False) -> float:
    """Return the score that a grader's answer gives under its heading Score; `cut` is one that was not let finish.

    Raises:
        Unusable: There is none, there are several, or it is none of the scores that can be given.
    """
    if not without_thinking(text):
        raise Unusable("it is empty.")
    finished = text[: max(text.rfind(" "), text.rfind("\n")) + 1] if cut else text  # 0.7 may be the beginning of 0.75
    return stated_score(plain(without_thinking(finished)), continuous=continuous, cut=cut)


def read_verdict(text: str, *, continuous: bool, stated: float | None = None) -> Answer:
    """Return the verdict from an answer that should be JSON: in prose, in a fence, in Python's form, or as "Score: 1".

    Small models say `valid_score: false` of a valid 0: with the number that the grader `stated`, it counts.

    Raises:
        Unusable: It has no score, several, or none of those that can be given; or it says so itself.
    """
    if not (text := without_thinking(text)):
        raise Unusable("it is empty.")
    verdicts = [each for each in _objects(text) if _value(each, _SCORE_KEYS + _VALID_KEYS) is not None]
    if not verdicts:
        if _SAYS_INVALID.search(text):
            raise Unusable(_NO_SCORE)
        return Answer(stated_score(plain(text), continuous=continuous), text[:MAX_EXPLANATION])
    denied = any(_is_false(_value(each, _VALID_KEYS)) for each in verdicts)
    if denied and stated is None:
        raise Unusable(_NO_SCORE)
    score = one_score([score_in(_value(each, _SCORE_KEYS), continuous=continuous) for each in verdicts])
    if denied and score != stated:
        raise Unusable(_NO_SCORE)
    reasons = [_value(each, _REASON_KEYS) for each in verdicts]
    return Answer(score, next((_explanation(each) for each in reasons if isinstance(each, str)), ""))


def read_ranking(text: str, offered: Sequence[FoundFile]) -> tuple[FoundFile, ...]:
    """Return the files that an answer names, at most ten, best first; whatever was not offered is passed over.

    A file's bare name will do if no other that was offered has it.
    """
    known = _by_names(offered)
    named = (known.get(name) for line in without_thinking(text).split("\n") for name in _names(line))
    return tuple(dict.fromkeys(file for file in named if file is not None))[:MAX_PICKED]


def _objects(text: str) -> list[Mapping[str, Any]]:
    """Return the JSON objects of a text, or else the one Python literal in it."""
    decoder = json.JSONDecoder()
    found: list[Mapping[str, Any]] = []
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
    return found or _literal(text)


def _literal(text: str) -> list[Mapping[str, Any]]:
    start, end = text.find("{"), text.rfind("}") + 1
    if not 0 <= start < end:
        return []
    try:
        value = ast.literal_eval(text[start:end])
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return []
    return [value] if isinstance(value, dict) else []


def _value(found: Mapping[Any, Any], keys: Sequence[str]) -> Any:
    values = {key.strip().casefold(): value for key, value in found.items() if isinstance(key, str)}
    return next((values[key] for key in keys if values.get(key) is not None), None)


def _explanation(text: str) -> str:
    """Return a text out of JSON without the control characters and half characters that its escapes may stand for."""
    return clean(well_formed(text)).strip()[:MAX_EXPLANATION]


def _is_false(value: Any) -> bool:
    return value is False or (isinstance(value, str) and value.strip().casefold() == "false")


def _by_names(offered: Sequence[FoundFile]) -> dict[str, FoundFile]:
    """Return the files by all names that they may be called by."""
    by_base: dict[str, list[FoundFile]] = {}
    for file in offered:
        by_base.setdefault(file.name.rpartition("/")[2], []).append(file)
    known = {base: files[0] for base, files in by_base.items() if len(files) == 1}
    for file in offered:
        known[file.name] = file
        if file.name.startswith('"'):
            known[json.loads(file.name)] = file
    return known


def _names(line: str) -> Iterator[str]:
    """Yield what may be a file's name in a line: the line itself, what is quoted in it, and its words."""
    line = _BULLET.sub("", line.strip()).strip()
    candidates = [line, *_QUOTED.findall(line), *line.split()]
    for candidate in candidates:
        yield candidate
        bare = candidate.strip(" \t,;:*`'\"()[]{}").removeprefix("./")
        yield bare
        yield bare.rstrip(".!?")
        if candidate.startswith('"') and candidate.endswith('"'):
            try:
                yield str(json.loads(candidate))
            except ValueError:
                continue
