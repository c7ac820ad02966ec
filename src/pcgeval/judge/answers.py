"""Reading a model's answers: a score from words as people read them, a verdict from JSON, names of files.

The score stands below the last heading Score. What cannot be read without doubt raises UnreadableAnswer; its message
is told to the model when it grades again, and holds numbers of the answer but none of its words, which may be a
submission's.
"""

import ast
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pcgeval.core.untrusted import well_formed
from pcgeval.judge.files import SubmissionFile, clean
from pcgeval.rubric.grades import Verdict

MAX_PICKED = 10  # files, as in PaperBench
MAX_EXPLANATION = 1000  # characters
_MAX_ANSWER = 20_000  # characters that are read of an answer
_MAX_OBJECTS = 50  # places at which JSON is looked for
_MAX_LABELS = 200  # lines that are looked at as headings
# thoughts begin an answer; the same tag further below, or in back quotes, is one that the answer quotes
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"(?<!`)</think(?:ing)?>(?!`)|<\|channel\|>final<\|message\|>")
_INVISIBLE = re.compile(
    "[\u200b-\u200d\u2060\ufeff\ufe0e\ufe0f\u20e3]|&nbsp;|</?(?:b|strong|i|em|u|p|span|answer)>|</score>"
)
_ESCAPE = re.compile(r"\\(?=[^\w\s])")  # of Markdown and TeX: \# and \(
_STRAIGHT = str.maketrans("“”„‘’", '"""\'\'')
# (0 or 1), (out of 1), [0-1] or (binary) behind the word: the scale, and no score
_SCALE = re.compile(
    r"(?<=score)[ *_]{0,4}[(\[][^()\[\]\n]{0,40}(?:binary|out of 1|\b0\b[^()\[\]\n]{1,40}1)[^()\[\]\n]{0,40}[)\]]",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^(?P<mark>[ \t>#*_-]*(?:[0-9][.)][ \t*_]*)?)(?P<name>expectations?|reality|(?:final |overall )?score)(?!\w)"
    r"(?P<rest>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_HEADING = re.compile(r"^[ \t>]*#(?!#*[ \t*]*[01](?:\.0+)?[ \t*]*$)", re.MULTILINE)  # `### 1` is a score
_DECORATION = " \t*_`'\"#:=<>–—([{$•→✅❌✓✔✗✘⭐"
# 1 of 3, 1 for part A and "one seed" are no scores
_REASON = r"(?:this|the (?:criterion|submission|missing)|meeting|satisfying|failing|lacking|not)\b"
_NUMBER = (
    r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,3})?|(?i:zero|one)(?=[*_`\"')\s]*(?:$|[.,;:!])))"
    rf"(?![\w%]|\.\d| ?%| of\b| for (?!{_REASON}))"
)
_OF = r"(?:\s?(?:/|out of)\s?(\d+)\b)?"  # 0/1, 1 out of 1
# a number that begins a line and is its statement: alone, before punctuation, or before a sentence or its reason
_NUMBER_FIRST = rf"(?:\\boxed\{{)?{_NUMBER}{_OF}[*_`\"')\]}}>$]*"
_AT_START = re.compile(
    rf"{_NUMBER_FIRST}\s*(?=$|[.,;:!(\[–—|→✅❌✓✔-]|=>|[A-Z](?![A-Z])|(?:because|since|as|points?|for|the|this|it)\b)"
)
_AFTER_LABEL = re.compile(_NUMBER_FIRST)
_CHOICE = re.compile(  # 0 or 1; 1,0; 0-1; 1 -> 0; but not "0, 2 of 3 files are there" and "0: 1 of 2"
    r"(?:\s?[,;|&]\s?(?!\d+ (?!for\b|points?\b)[a-z])|\s(?:or|and|to|vs)\s|[-–]"
    r"|\s?(?:→|->|=>)\s?(?=[01]\b(?! of\b))|\s?(?:\.{2,3}|:)\s?(?=[01]\b(?! [a-z]))|\s[–—-]\s(?=[01]\W*$))[-+]?[.\d]"
)
_PARTS = re.compile(r"\b[01] for\b.*\b[01] for\b")  # 1 for the code, 0 for the results
_RESULTS = re.compile(r"[:=→]\s*[*_`\"'(]*(\d*\.?\d+)(?=[*_`\"')]*(?:[,;]|\.?\s*$))")  # part A: 1, part B: 0
_BARE = re.compile(rf"[*_`\s]*{_NUMBER}{_OF}[*_`\s.]*")
_LIST = re.compile(r"\d[.)]\s")
_CONJUNCTION = r"(?:and|as|because|but|due|for|given|is|on|or|out|overall|points?|since|though|to|with)"
_IN_WORDS = re.compile(  # the score is 1; I assign a 1; I give it 1 point; it earns a 1; score 1; therefore, 1
    r"(?:(?i:\b(?:score|grade|rating)\b|\b(?:assign|give|award)(?:s|ed)?\b)[^\d\n.]{0,40}?"
    r"(?:(?i:\b(?:is|of|as|be|a|at|it|this|therefore|thus)\b)|[:=>–])"
    r"|(?i:\b(?:I|we) (?:would )?(?:assign|give|award|score|rate)\b)[^\d\n.]{0,40}?"
    r"|(?i:\b(?:gets|earns|receives|deserves)\b(?: an?\b)?|\bscored?(?= \W*[01]\W*$))"
    r"|(?i:^\W*(?:result|answer|hence|therefore|thus|so)\b)[,:]?)"
    rf"[\s*_`\"'({{]*{_NUMBER}{_OF}(?=[*_`\"')\]}}>$]*\s*(?:$|[.,;:!(\[|→–—-]|{_CONJUNCTION}\b|[A-Z]))"
)
_DENIED = re.compile(r"(?:\bnot|n't|\bnever|\bcannot)\W+(?:\w+ ){0,3}$", re.IGNORECASE)  # before "give a 1"
_OPENING = re.compile(r"(?:(?:the|my|I|we|final|overall|assigned) )*", re.IGNORECASE)
_AT_END = re.compile(rf"[:=→]\s*[*_`\"'(]*{_NUMBER}{_OF}[*_`\"').]*$")


class UnreadableAnswer(Exception):  # noqa: N818 - an answer, not an error: it is asked for again
    """An answer that does not state exactly one score; the message tells the model why."""


def without_thinking(text: str) -> str:
    """Return the end of an answer, as far as one is read, without the thoughts that some models write before it.

    The templates of some models begin the thoughts, so that the answer holds their end alone.
    """
    *_, answer = _END_OF_THINKING.split(_THINKING.sub("", clean(text)))
    return answer[-_MAX_ANSWER:].strip()


def read_score(text: str, *, continuous: bool, cut: bool = False) -> float:
    """Return the score that a grader's words state; where the answer was cut off, below a heading Score.

    Raises:
        UnreadableAnswer: They state none, several, or one that is not allowed.
    """
    finished = text[: max(text.rfind(" "), text.rfind("\n")) + 1] if cut else text  # 0.7 may be the beginning of 0.75
    answer = _plain(without_thinking(finished))
    first, *others = _lines_of_score(answer, cut=cut) or [""]
    if (score := _stated(first, continuous=continuous, begins_a_list=any(map(_LIST.match, others)))) is None:
        scores = [_last_number(line, continuous=continuous) for line in (first, *others)]
    else:  # whatever follows explains it, unless it is a label or a number alone
        more = [line for line in others if _LABEL.match(line) or _BARE.fullmatch(line)]
        scores = [score, *(_last_number(line, continuous=continuous) for line in more)]
    distinct = {score for score in scores if score is not None}
    if not distinct:
        raise UnreadableAnswer("it has no heading Score with a number.")
    if len(distinct) > 1:
        raise UnreadableAnswer(f"it gives {len(distinct)} scores instead of one.")
    return distinct.pop()


def _plain(text: str) -> str:
    """Return an answer without marks that only decorate it, and without the scale behind the word Score."""
    text = unicodedata.normalize("NFKC", text).translate(_STRAIGHT).replace("<score>", "Score: ")
    return _SCALE.sub("", _ESCAPE.sub("", _INVISIBLE.sub("", text)))


def reality_of(text: str) -> str:
    """Return what a grader found: the text below its heading Reality up to the next label, or else all of its words."""
    labels = list(_LABEL.finditer(text))
    for number, label in enumerate(labels):
        if label["name"].casefold() == "reality" and _is_label(label):
            until = labels[number + 1].start() if number + 1 < len(labels) else len(text)
            return text[label.end() : until].strip(" \t\n:*_")[:MAX_EXPLANATION]
    return text[:MAX_EXPLANATION]


def _lines_of_score(text: str, *, cut: bool) -> list[str]:
    """Return the lines below the last heading Score, what stands beside it first; without any, what says a score."""
    labels = [label for label, _ in zip(_LABEL.finditer(text), range(_MAX_LABELS), strict=False) if _is_label(label)]
    scores = [label for label in labels if "score" in label["name"].casefold()]
    others = [label for label in labels if label not in scores and label.end() < len(text)]
    if not (cut or scores or others):
        return [line for line in text.split("\n") if _IN_WORDS.search(line) or _BARE.fullmatch(text)]
    if headings := [label for label in scores if "#" in label["mark"]]:
        scores = headings[-1:]
    elif others:  # a label that looks less like a heading than they do may be a quotation, unless it ends the answer
        least = min(_rank(others[-1]), 2)
        after = [label for label in scores if label.start() > others[-1].start()]
        scores = [label for label in after if _rank(label) >= least or _ends(text, label)]
    scores = [label for label in scores if not cut or _rank(label) > 1]
    if len({label["rest"].strip(_DECORATION)[:4] for label in scores}) > 1:
        raise UnreadableAnswer(f"it gives {len(scores)} scores instead of one.")
    if not scores:
        return []
    following = text[scores[-1].end() :]
    heading = _HEADING.search(following)
    section = f"{scores[-1]['rest']}\n{following[: heading.start()] if heading else following}"
    return [line.strip() for line in section.split("\n") if line.strip(f"{_DECORATION}-.")]


def _is_label(line: re.Match[str]) -> bool:
    """Return whether a line is a heading or a label before a colon, and no sentence."""
    rest = line["rest"].strip("*_ \t")
    return not rest or rest[0] in ":=" or not {"#", "*", "_"}.isdisjoint(line["mark"])


def _rank(label: re.Match[str]) -> int:
    """Return how much a label looks like a heading: `# Score`, `**Score**`, `3. Score` or `Score: 1`."""
    mark = label["mark"]
    return (
        3 if "#" in mark else 2 if "**" in mark or "__" in mark else int(any(character.isdigit() for character in mark))
    )


def _ends(text: str, label: re.Match[str]) -> bool:
    """Return whether a label after an empty line ends the answer, perhaps with a number alone below it."""
    below = text[label.end() :]
    return text[: label.start()].endswith("\n\n") and (not below.strip() or _BARE.fullmatch(below) is not None)


def _stated(line: str, *, continuous: bool, begins_a_list: bool) -> float | None:
    """Return the score that a line states behind a label, at its beginning, or in words such as "the score is 1"."""
    label = _LABEL.match(line)
    labelled = label is not None and label["name"].casefold().endswith("score") and _is_label(label)
    bare = _undecorated(label["rest"] if label is not None and labelled else line)
    item = _LIST.match(bare)
    if item and _states_itself(bare[item.end() :]):  # a list of one entry
        return _stated(bare[item.end() :], continuous=continuous, begins_a_list=False)
    number = _AFTER_LABEL.match(bare) if labelled else _AT_START.match(bare)
    if number is not None and not (begins_a_list and item):
        if _CHOICE.match(bare, number.end(1)) or _PARTS.search(bare):
            raise UnreadableAnswer("it gives several scores instead of one.")
        return _checked(*number.groups(), continuous=continuous)
    return _score_in_words(line, continuous=continuous)


def _undecorated(line: str) -> str:
    return line.lstrip(_DECORATION).removeprefix("- ").lstrip(_DECORATION)


def _states_itself(entry: str) -> bool:
    """Return whether an entry of a list is a number alone, a label with its score, or begins with "the score is 1"."""
    is_labelled = _LABEL.match(entry) is not None and _IN_WORDS.match(entry) is not None
    return is_labelled or bool(_BARE.fullmatch(entry) or _IN_WORDS.match(_OPENING.sub("", entry, count=1)))


def _score_in_words(line: str, *, continuous: bool) -> float | None:
    """Return the score that a line names in words; other numbers that it calls a score are no allowed ones."""
    scores, fault = [], None
    if _PARTS.search(line):
        raise UnreadableAnswer("it gives several scores instead of one.")
    for number in _IN_WORDS.finditer(line):
        if _CHOICE.match(line, number.end(1)):
            raise UnreadableAnswer("it gives several scores instead of one.")
        if _DENIED.search(line, max(0, number.start() - 60), number.start()):
            continue
        try:
            scores.append(_checked(*number.groups(), continuous=continuous))
        except UnreadableAnswer as error:
            fault = error
    if len(set(scores)) > 1 and not _IN_WORDS.match(_OPENING.sub("", _undecorated(line), count=1)):
        raise UnreadableAnswer(f"it gives {len(set(scores))} scores instead of one.")
    if not scores and fault is not None:
        raise fault
    return scores[0] if scores else None


def _last_number(line: str, *, continuous: bool) -> float | None:
    """Return the score of a line that is a bare number, names a score in words, or ends in a colon and a number."""
    bare = line.strip(f"{_DECORATION}.)]}}-")
    if number := re.fullmatch(_NUMBER + _OF, bare):
        return _checked(*number.groups(), continuous=continuous)
    if (score := _score_in_words(line, continuous=continuous)) is not None:
        return score
    if number := _AT_END.search(line):
        if len(set(_RESULTS.findall(line))) > 1 or _CHOICE.match(line, number.end(1)):
            raise UnreadableAnswer("it gives several scores instead of one.")
        return _checked(*number.groups(), continuous=continuous)
    return None


def _checked(number: Any, whole: str | None = None, *, continuous: bool) -> float:
    """Return a score as a number, if it is allowed; raises UnreadableAnswer."""
    allowed = "a number from 0 to 1" if continuous else "0 or 1"
    if isinstance(number, str):
        words = {"zero": 0.0, "one": 1.0}
        number = words[number.casefold()] if number.casefold() in words else float(number)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UnreadableAnswer(f"its score is no number; it must be {allowed}.")
    if whole and int(whole[:9]) != 1:
        raise UnreadableAnswer(f"its score is a part of {whole[:9]}; it must be {allowed}.")
    if not 0 <= number <= 1 or not (continuous or number in (0, 1)):
        shown = f"{number:g}" if abs(number) < 1e9 else "out of all bounds"
        raise UnreadableAnswer(f"its score is {shown}; it must be {allowed}.")
    return float(number)


def read_verdict(text: str, *, continuous: bool) -> Verdict:
    """Return the verdict from an answer that should be JSON `{"valid_score", "score", "explanation"}`.

    Raises:
        UnreadableAnswer: It has no score, several, or one that is not allowed.
    """
    text = without_thinking(text)
    verdicts = [verdict for verdict in _objects(text) if "score" in verdict]
    if not verdicts:
        return Verdict(read_score(text, continuous=continuous), text[:MAX_EXPLANATION])
    if any(str(verdict.get("valid_score", True)).casefold() == "false" for verdict in verdicts):
        raise UnreadableAnswer("it has no heading Score with a number.")
    numbers = [verdict["score"] for verdict in verdicts]
    scores = {
        read_score(f"Score: {number}", continuous=continuous)
        if isinstance(number, str)
        else _checked(number, continuous=continuous)
        for number in numbers
    }
    if len(scores) > 1:
        raise UnreadableAnswer(f"it gives {len(scores)} scores instead of one.")
    reason = verdicts[0].get("explanation")
    # JSON's escapes may stand for control characters and half characters
    explanation = clean(well_formed(reason)).strip() if isinstance(reason, str) else ""
    return Verdict(scores.pop(), explanation[:MAX_EXPLANATION])


def _objects(text: str) -> list[Mapping[str, Any]]:
    """Return the JSON objects of a text, or else the one Python literal in it, with keys in small letters."""
    decoder = json.JSONDecoder()
    objects: list[Any] = []
    start = text.find("{")
    for _ in range(_MAX_OBJECTS):
        if start < 0:
            break
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            objects.append(value)
        start = text.find("{", end)
    if not objects:
        try:
            objects = [ast.literal_eval(text[text.find("{") : text.rfind("}") + 1])]
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return []
    return [{str(key).casefold(): value for key, value in item.items()} for item in objects if isinstance(item, dict)]


def read_ranking(text: str, offered: Sequence[SubmissionFile]) -> tuple[SubmissionFile, ...]:
    """Return the files that an answer names, at most ten, best first; names that were not offered are ignored.

    A file's bare name is enough if no other that was offered has it.
    """
    bases = [file.name.rpartition("/")[2] for file in offered]
    known = {base: file for base, file in zip(bases, offered, strict=True) if bases.count(base) == 1}
    for file in offered:
        known |= {file.name: file, json.loads(file.name) if file.name.startswith('"') else file.name: file}
    named = (known.get(name) for line in without_thinking(text).split("\n") for name in _names(line))
    return tuple(dict.fromkeys(file for file in named if file is not None))[:MAX_PICKED]


_BULLET = re.compile(r"^(?:[-*•+]\s+|\(?[0-9]{1,3}[.):]\s+)")
_QUOTED = re.compile(r'"(?:[^"\\\n]|\\.){1,900}"' + r"|`[^`\n]{1,900}`|'[^'\n]{1,900}'")


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
