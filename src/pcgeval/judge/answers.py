"""Reading a model's answers: a score from words as people read them, a verdict from JSON, names of files.

The score stands in the first line below the last heading Score, or behind the label `Score:`. What cannot be read
without doubt raises UnreadableAnswer. Its message goes back to the model when it grades again, and holds numbers of the
answer but none of its words, which may be a submission's.
"""

import ast
import json
import re
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from pcgeval.core.untrusted import well_formed
from pcgeval.judge.files import SubmissionFile, clean
from pcgeval.rubric.grades import Verdict

MAX_PICKED = 10  # files, as in PaperBench
MAX_EXPLANATION = 1000  # characters
_MAX_ANSWER = 20_000  # characters that are read of an answer
_MAX_OBJECTS = 50  # places at which JSON is looked for
# only at the beginning does the tag open thoughts; further below, or in back quotes, the answer quotes it
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"(?<!`)</think(?:ing)?>(?!`)|<\|channel\|>final<\|message\|>")
_INVISIBLE = re.compile(
    "[\u200b-\u200d\u2060\ufeff\ufe0e\ufe0f\u20e3]|&nbsp;|</?(?:b|strong|i|em|u|p|span|answer)>|</score>"
)
_ESCAPE = re.compile(r"\\(?=[^\w\s])")  # of Markdown and TeX: \# and \(
_PLAIN_MARKS = str.maketrans("“”„‘’⇒➔➜⟶←‣▪‐✗✘─━═", '"""\'\'→→→→–••-❌❌———')  # what NFKC leaves
# (0 or 1), (1 if met, else 0), (out of 1), [0-1], {0,1} or (binary) behind the word: the scale, and no score
_IN_SCALE = r"[^()\[\]{}\n]"
_SCALE = re.compile(
    rf"(?<=score)[ *_]{{0,4}}[(\[{{]{_IN_SCALE}{{0,40}}"
    rf"(?:binary|out of 1|\b0\b{_IN_SCALE}{{1,40}}1|\b1\b{_IN_SCALE}{{1,40}}0){_IN_SCALE}{{0,40}}[)\]}}]",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^(?P<mark>[ \t>#*_•→–[(-]*(?:[0-9A-C][.)][ \t*_]*)?)"
    r"(?P<name>expectations?|reality|(?:(?:final|overall|assigned|binary) )?score)(?![^\W_])(?P<rest>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE = re.compile(r"^[ \t>]*(?:```|~~~)[^`\n]*$", re.MULTILINE)
_HEADING = re.compile(r"^[ \t>]*#(?!#*[ \t*]*[01](?:\.0+)?[ \t*]*$)", re.MULTILINE)  # `### 1` is a score
_DECORATION = " \t*_`'\"#:=<>–—([{$•→✅❌✓✔⭐"
# 1 of 3, 1 for part A and "one seed" are no scores
_REASON = r"(?:this|the (?:criterion|submission|missing)|meeting|satisfying|failing|lacking|not)\b"
_NUMBER = (
    r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,3})?|(?i:zero|one)(?=[*_`\"')\s]*(?:$|[.,;:!])))"
    rf"(?![\w%]|\.\d| ?%| of\b| for (?!{_REASON}))(?:\s?(?:/|out of)\s?(\d+)\b)?[*_`\"')\]}}>$]*"  # 0/1, 1 out of 1
)
# behind the number: it would be given, it cannot be, it needs more
_CONDITION = (
    r"(?![\s*_`\"')\]–—-]*(?:would|could|can|cannot|if|is (?:for|not|only)|may|might|must|needs?|only (?:be|if|when)"
    r"|requires?|should|unless)\b)"
)
# before it: Not satisfied (0), Pass (1), Yes, 1
_WORD = (
    r"(?:(?:not |fully |full |no )?"
    r"(?:credit|fail(?:s|ed)?|false|fulfilled|met|no|one|pass(?:es|ed)?|satisfied|true|yes|zero)[*_ ]*[,:–—(-][*_ ]*)"
)
_BEHIND_LABEL = re.compile(rf"(?:\\(?:boxed|textbf)\{{)?{_NUMBER}{_CONDITION}")
# a number that begins a line and is its statement: alone, before punctuation, or before a sentence or its reason
_AT_START = re.compile(
    rf"(?i:{_WORD})?{_BEHIND_LABEL.pattern}\s*"
    r"(?=$|[.,;:!(\[–—|→✅❌✓✔]|-(?!\w)|=>|= [a-z]|[A-Z](?![A-Z])|(?:because|due|since|as|points?|for|the|this|it)\b)"
)
_CHOICE = re.compile(  # 0 or 1; 1,0; 0-1; 1 -> 0; but not "0, 2 of 3 files are there" and "0: 1 of 2"
    r"(?:\s?[,;|&]\s?(?!\d+ (?!for\b|points?\b)[a-z])|\s(?:or|and|to|vs)\s|[-–]"
    r"|\s?(?:→|->|=>)\s?(?=[01]\b(?! of\b))|\s?(?:\.{2,3}|:)\s?(?=[01]\b(?! [a-z]))|\s[–—-]\s(?=[01]\W*$))[-+]?[.\d]"
)
# 1 for the code, 0 for the results; (1) it trains (2) it tests
_PARTS = re.compile(r"\b[01] for\b.*\b[01] for\b|\b1\).*\(2\)")
_BARE = re.compile(rf"[#*_`(\s]*{_NUMBER}[\s.]*")
_ENTRY = re.compile(r"\d(?:[.)]|\s*[–-])\s+")  # of a list; one that is a score itself makes no list
_SCORE_ENTRY = re.compile(rf"\d[.)]\s+(?=(?:the )?(?:final |overall )?score\b|{_BARE.pattern}$)", re.IGNORECASE)
_CONJUNCTION = r"(?:and|as|because|but|due|for|given|instead|is|on|or|out|overall|rather|since|though|to|with)\b"
_LINK = r"(?:\b(?:an?|as|at|be|is|it|of|therefore|this|thus|to)\b|[:=>–—])"  # before the number: no "Section 1"
_VERB = (
    r"(?:scores?|grade|rating|(?:I|we) (?:mark|rate)|marked as|(?:is|was) (?:\w+ )?(?:given|graded|marked|rated|scored)"
    r"|(?:assign|give|award)(?:s|ed)?|gets|earns|receives|deserves)\b"
)
_IN_WORDS = re.compile(  # below a heading: the score is 1; I assign a 1; it is graded as 1; hence, 1; this is a 1
    rf"\b(?:{_VERB}(?:[^\d\n.]{{0,40}}?{_LINK})?|this is(?: an?)?"
    r"|(?:hence|therefore|thus|so|result|answer|decision)\b[*_,:]*(?: an?)?)"
    rf"[\s*_`\"'({{]*{_NUMBER}\s*(?:points?\b)?(?=[.,;:!(→–—-]|$|(?-i:[A-Z](?![A-Z]))|{_CONJUNCTION}){_CONDITION}",
    re.IGNORECASE,
)
_GIVEN = re.compile(  # a 1 is warranted; 1 is the final score
    rf"(?:^|\ba ){_NUMBER}(?: –)? is (?:therefore |thus )?"
    r"(?:appropriate|assigned|awarded|given|justified|warranted|the [\w ]{0,20}score|what I give)\b",
    re.IGNORECASE,
)
_DENIED = re.compile(  # before the number: I cannot give this a 1; if it ran, the score would be 1
    r"(?:\b(?:not|never|cannot)|n't)[^\w,;:.]+(?:(?!(?:and|but|hence|so|therefore|thus)\b)[\w']+ ){0,6}[*_`\"'({]*$"
    r"|\bif\b|\b(?:could|hesitate|might|tempted)\b[^,;:.]*$|\bto (?:achieve|deserve|earn|get|obtain|receive) [^,;.]*$",
    re.IGNORECASE,
)
# part A: 1, part B: 0; all is there – 1; all is there. **1**; the criterion is met (1)
_RESULT = re.compile(rf"(?:[:→]\s*[*_`\"'(]*|\s[–—]\s+|[.!]\s+\*\*|(?i:{_WORD})){_NUMBER}(?=[,;]|[\s.]*$)")
_ONE_LINE = re.compile(rf"\A.*[.;] (?P<score>score:[*_ ]*{_NUMBER}[\s.]*)\Z", re.IGNORECASE)
_WHOLE_NAME = r"(?<![\w./-])(?:\.?/)?{}(?![\w/-]|\.\w)"  # of a file, perhaps behind ./


class UnreadableAnswer(Exception):  # noqa: N818 - an answer, not an error: it is asked for again
    """An answer that does not state exactly one score; the message tells the model why."""


def without_thinking(text: str) -> str:
    """Return the last 20 000 characters of an answer without the thoughts that some models write before it.

    Some chat templates begin the thoughts, so that the answer holds only the end of them.
    """
    *_, answer = _END_OF_THINKING.split(_THINKING.sub("", clean(text)))
    return answer[-_MAX_ANSWER:].strip()


def read_score(text: str, *, continuous: bool, cut: bool = False) -> float:
    """Return the score that a grader's words state; raises UnreadableAnswer. A cut answer needs a heading Score."""
    finished = text[: max(text.rfind(" "), text.rfind("\n")) + 1] if cut else text  # 0.7 may be the beginning of 0.75
    first, *others = _lines_of_score(_plain(without_thinking(finished)), continuous=continuous, cut=cut) or [""]
    is_list = sum(_ENTRY.match(line) is not None for line in (first, *others)) > 1
    scores = _scores_in(first, continuous=continuous, may_begin=not is_list)
    for line in others:
        label = _LABEL.match(line)
        if scores and label and _is_score(label) and not label["rest"].strip(_DECORATION):
            raise UnreadableAnswer("it gives several scores instead of one.")  # the first may be a quotation
        if not scores or _is_score(label) or _BARE.fullmatch(line):  # else a later line states a score only by itself
            ends = line is others[-1] and not scores
            scores |= _scores_in(line, continuous=continuous, may_begin=ends and not is_list)
    if not scores and (scores := _results_in(first, continuous=continuous)):
        scores |= {score for line in others for score in _results_in(line, continuous=continuous)}
    return _only(scores)


def _only(scores: set[float]) -> float:
    if not scores:
        raise UnreadableAnswer("it has no heading Score with a number.")
    if len(scores) > 1:
        raise UnreadableAnswer(f"it gives {len(scores)} scores instead of one.")
    return scores.pop()


def _plain(text: str) -> str:
    """Return an answer without marks that only decorate it, and without the scale behind the word Score."""
    text = unicodedata.normalize("NFKC", text).translate(_PLAIN_MARKS).replace("<score>", "Score: ")
    return _SCALE.sub("", _ESCAPE.sub("", _INVISIBLE.sub("", text)))


def reality_of(text: str) -> str:
    """Return the text below the heading Reality up to the next label, or else the whole answer."""
    labels = list(_LABEL.finditer(text))
    ends = [*(label.start() for label in labels[1:]), len(text)]
    for label, end in zip(labels, ends, strict=False):
        if label["name"].casefold() == "reality" and _is_label(label):
            return text[label.end() : end].strip(" \t\n:*_")[:MAX_EXPLANATION]
    return text[:MAX_EXPLANATION]


def _lines_of_score(text: str, *, continuous: bool, cut: bool) -> list[str]:
    """Return the lines below the last heading Score, or else below the label; what stands beside it first."""
    every = [label for label in _LABEL.finditer(text) if _is_label(label)]
    fences = [fence.start() for fence in _FENCE.finditer(text)]
    labels = [label for label in every if not _is_quoted(label, fences, cut=cut)]
    if not labels and not cut:  # the whole answer stands between fences
        labels = every
    scores = [label for label in labels if _is_score(label)]
    if headings := [label for label in scores if "#" in label["mark"]]:
        scores = [label for label in headings if not label["rest"].lstrip("*_ \t")[:1].isalpha()][-1:] or headings[-1:]
    else:  # a label that looks less like a heading than the one before may be a quotation, unless it ends the answer
        others = [label for label in labels if label not in scores]
        least, start = (_rank(others[-1]), others[-1].start()) if others else (0, -1)
        scores = [label for label in scores if label.start() > start]
        scores = [label for label in scores if _rank(label) >= least or _ends(text, label)]
        best = max(map(_rank, scores), default=0)
        scores = [label for label in scores if _rank(label) == best and (best == 2 or not cut)]
    if len(scores) > 1:  # one with another number, such as `Score: 0.87` in a log, is quoted
        scores = [label for label in scores if _may_be_score(label["rest"], continuous=continuous)]
    stated = [label for label in scores if label["rest"].strip(_DECORATION)]
    if len({label["rest"].strip(_DECORATION)[:4] for label in stated}) > 1 or (stated and scores[-1] not in stated):
        raise UnreadableAnswer(f"it gives {len(scores)} scores instead of one.")
    if scores:  # an empty label may be the heading of the others
        label = scores[0] if stated and scores[0] not in stated else scores[-1]
        section = text[label.start("rest") :]
        heading = _HEADING.search(section, label.end() - label.start("rest"))
        section = section[: heading.start()] if heading else section
        return [line.strip() for line in section.split("\n") if line.strip(f"{_DECORATION}-.")]
    if cut or labels[1:]:
        return []
    one_line = _ONE_LINE.search(text)
    return [text] if _BARE.fullmatch(text) else [one_line["score"]] if one_line else []


def _may_be_score(rest: str, *, continuous: bool) -> bool:
    """Return whether a label has no number right behind it, or one that is allowed."""
    number = _BEHIND_LABEL.match(rest.lstrip(_DECORATION))
    try:
        return number is None or _checked(*number.groups(), continuous=continuous) >= 0
    except UnreadableAnswer:
        return False


def _is_quoted(label: re.Match[str], fences: Sequence[int], *, cut: bool) -> bool:
    """Return whether a label stands between two fences of code, or in a cut answer behind one without a second."""
    before = bisect(fences, label.start())
    return before % 2 == 1 and (cut or before < len(fences))


def _is_label(line: re.Match[str]) -> bool:
    """Return whether a line is a heading or a label before a colon, and no sentence or code such as `score = 1`."""
    rest = line["rest"].strip("*_ \t")
    return not rest or rest[0] in ":–→" or not {"#", "*", "_"}.isdisjoint(line["mark"])


def _is_score(line: re.Match[str] | None) -> bool:
    return line is not None and "score" in line["name"].casefold() and _is_label(line)


def _rank(label: re.Match[str]) -> int:
    """Return how much a label looks like a heading: 2 for `# Score` and `**Score**`, 1 for `3. Score`, else 0."""
    if any(mark in label["mark"] for mark in ("#", "**", "__")):
        return 2
    return int(any(map(str.isdigit, label["mark"])))


def _ends(text: str, label: re.Match[str]) -> bool:
    """Return whether a label after an empty line ends the answer, perhaps with a number alone below it."""
    below = text[label.end() :]
    return text[: label.start()].endswith("\n\n") and (not below.strip() or _BARE.fullmatch(below) is not None)


def _scores_in(line: str, *, continuous: bool, may_begin: bool = False) -> set[float]:
    """Return the scores that a line states behind a label, in words such as "the score is 1", or at its start."""
    label = _LABEL.match(line)
    is_labelled = _is_score(label)
    statement = label["rest"] if label is not None and is_labelled else line
    statement = _SCORE_ENTRY.sub("", statement.lstrip(_DECORATION).removeprefix("- ").lstrip(_DECORATION))
    if is_labelled or may_begin or _BARE.fullmatch(line):
        number = _BEHIND_LABEL.match(statement) if is_labelled and may_begin else None
        if number := number or _AT_START.match(statement):
            return _allowed([number], continuous=continuous)
    said = (*_IN_WORDS.finditer(line), *_GIVEN.finditer(line))
    return _allowed([number for number in said if not _is_denied(number)], continuous=continuous)


def _results_in(line: str, *, continuous: bool) -> set[float]:
    """Return the scores of a line that ends in a colon and a number."""
    results = list(_RESULT.finditer(line))
    ends = bool(results) and not line[results[-1].end() :].strip(" .")
    return _allowed([result for result in results if not _is_denied(result)], continuous=continuous) if ends else set()


def _is_denied(number: re.Match[str]) -> bool:
    """Return whether words before a number, in its sentence, take it back or make it a condition."""
    sentence = number.string.rfind(". ", 0, number.start()) + 1
    return _DENIED.search(number.string, max(sentence, number.start() - 60), number.start(1)) is not None


def _allowed(numbers: Sequence[re.Match[str]], *, continuous: bool) -> set[float]:
    """Return the scores among numbers of a line; one that is not allowed only counts where no other is."""
    scores, fault = set(), None
    for number in numbers:
        if _CHOICE.match(number.string, number.end(1)) or _PARTS.search(number.string):
            raise UnreadableAnswer("it gives several scores instead of one.")
        try:
            scores.add(_checked(*number.groups(), continuous=continuous))
        except UnreadableAnswer as error:
            fault = error
    if fault and not scores:
        raise fault
    return scores


def _checked(number: Any, whole: str | None = None, *, continuous: bool) -> float:
    """Return a score as a number, if it is allowed."""
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
    """Return the verdict of JSON `{"valid_score", "score", "explanation"}`, or of words; raises UnreadableAnswer."""
    text = without_thinking(text)
    verdicts = [verdict for verdict in _objects(text) if "score" in verdict]
    if not verdicts:
        return Verdict(read_score(text, continuous=continuous), text[:MAX_EXPLANATION])
    if any(str(verdict.get("valid_score", True)).casefold() in {"false", "no", "none", "0"} for verdict in verdicts):
        raise UnreadableAnswer("it has no heading Score with a number.")
    scores = {
        read_score(f"Score: {score}", continuous=continuous)
        if isinstance(score, str)
        else _checked(score, continuous=continuous)
        for score in (verdict["score"] for verdict in verdicts)
    }
    reason = verdicts[0].get("explanation")
    # JSON's escapes may stand for control characters and half characters
    explanation = clean(well_formed(reason)).strip() if isinstance(reason, str) else ""
    return Verdict(_only(scores), explanation[:MAX_EXPLANATION])


def _objects(text: str) -> list[Mapping[str, Any]]:
    """Return the JSON objects of a text, or else the one Python literal in it, with keys in small letters."""
    objects: list[Any] = []
    end = 0
    for _ in range(_MAX_OBJECTS):
        if (start := text.find("{", end)) < 0:
            break
        end = start + 1
        with suppress(ValueError, RecursionError):
            value, end = json.JSONDecoder().raw_decode(text, start)
            objects.append(value)
    if not objects:
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            objects.append(ast.literal_eval(text[text.find("{") : text.rfind("}") + 1]))
    return [{str(key).casefold(): value for key, value in item.items()} for item in objects if isinstance(item, dict)]


def read_ranking(text: str, offered: Sequence[SubmissionFile]) -> tuple[SubmissionFile, ...]:
    """Return the files that an answer names, at most ten, best first; names that were not offered are ignored.

    A file's bare name is enough if no other that was offered has it.
    """
    answer, places = without_thinking(text), {}
    bases = Counter(file.name.rpartition("/")[2] for file in offered)
    for file in offered:
        base = file.name.rpartition("/")[2]
        path = json.loads(file.name) if file.name.startswith('"') else file.name
        names = {name for text in (file.name, path) for name in (text, json.dumps(text)[1:-1])}
        names |= {base} if bases[base] == 1 else set()
        matches = [re.search(_WHOLE_NAME.format(re.escape(name)), answer) for name in names if name in answer]
        if starts := [match.end() for match in matches if match]:
            places[file] = min(starts)
    return tuple(sorted(places, key=places.__getitem__))[:MAX_PICKED]
