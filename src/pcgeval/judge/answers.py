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
_DECORATION = " \t*_`'\"#:=>–—([{$•→✅❌✓✔⭐"
# 1 of 3, 1 for part A and "one seed" are no scores
_REASON = r"(?:this|the (?:criterion|submission|missing)|meeting|satisfying|failing|lacking|not)\b"
_NUMBER = (
    r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,3})?|(?i:zero|one)(?=[*_`\"')\s]*(?:$|[.,;:!])))"
    rf"(?![^\W_]|_\w|%|\.\d| ?%| of\b| for (?!{_REASON}))(?:\s?(?:/|out of)\s?(\d+)\b)?[*_`\"')\]}}>$]*"  # 0/1
)
# behind the number: it would be given, it cannot be, it needs more, 1 out of 3
_CONDITION = (
    r"(?![\s*_`\"')\]–—-]*(?:\?|[+×*] ?\d|(?:points? )?\(?(?:max|of|out of)\b"
    r"|(?:assuming|can|can't|cannot|could|if|is(?:n't| (?:for|not|only|out|reserved|too|un\w+))|may|means|might|must"
    r"|needs?|only (?:be|if|when)|or|provided|requires?|seems|should|unless|vs|was|when|would)\b))"
)
# before it: Not satisfied (0), Pass (1), Yes, 1
_WORD = (
    r"(?:(?:not |fully |full |no )?"
    r"(?:credit|fail(?:s|ed)?|false|fulfilled|met|no|one|pass(?:es|ed)?|satisfied|true|yes|zero)[*_ ]*[,:→–—(-][*_ ]*)"
)
# a number that begins a line and is its statement: alone, before punctuation, or before a sentence or its reason
_LEAD = re.compile(
    rf"(?i:{_WORD})?(?:\\(?:boxed|textbf)\{{)?{_NUMBER}{_CONDITION}\s*"
    r"(?=$|[.,;:!(\[–—|→✅❌✓✔\\]|-(?!\w)|=>|= [a-z]|[A-Z](?![A-Z])"
    r"|(?:because|due|since|as|points?|for|the|this|it|while)\b)"
)
_CHOICE = re.compile(  # 0 or 1; 1,0; 0-1; 1 -> 0; but not "0, 2 of 3 files are there" and "0: 1 of 2"
    r"(?:\s?[,;|&]\s?(?!\d+ (?!for\b|points?\b)[a-z])|\s(?:or|and|to|vs)\s|[-–]"
    r"|\s?(?:→|->|=>)\s?(?=[01]\b(?! of\b))|\s?(?:\.{2,3}|:)\s?(?=[01]\b(?! [a-z]))|\s[–—-]\s(?=[01]\W*$))[-+]?[.\d]"
)
# 1 for the code, 0 for the results; (1) it trains (2) it tests; 1 = met, 0 = not met
_PARTS = re.compile(
    r"\b[01] for\b.*\b[01] for\b|\b1[.)]+ .*\b2[.)]+ |\b[01] = .*\b\d =|\b[01] ?\([^)]*\).{1,6}\b[01] ?\("
)
_BARE = re.compile(rf"[#*_`(\s]*{_NUMBER}[\s.]*")
_ENTRY = re.compile(r"[*_( -]{0,4}\d(?:[.):]+[*_]*|\s*[–-])\s+")  # of a list
_SCORE_ENTRY = re.compile(rf"\d[.)]\s+(?=(?:the )?(?:final |overall )?score\b|{_BARE.pattern}$)", re.IGNORECASE)
# a statement in a sentence: the score for this is 1; I assign it a 1; it receives 1; hence, 1; this is a 1
_SEPARATOR = r"[\s*_`\"':=>–—({}]"
_FILLER = (  # what may stand between such words and the number: no "Section 1", no "a batch size of 1"
    rf"(?:{_SEPARATOR}{{1,6}}(?:an?|as|assigned|at|attempt|awarded|be|clear|criterion|final|for|full|given|grade|hence|here|is|it"
    r"|item|leaf|mark|must|now|of|on|only|overall|score|should|simply|submission|task|that|the|then|therefore|this|thus|to"
    r"|value|would)){0,12}"
)
_NOUN = (
    r"(?:^(?!\w+ ?=)|[,;:.(\[{–—→*_\"'`]\s?|\b(?:an?|and|hence|my|of|so|the|therefore|this|thus)\s+)[*_]{0,3}"
    r"(?:(?:appropriate|assigned|binary|correct|final|full|numeric|only|overall|possible|proper|resulting|right) ){0,3}"
    r"(?:answer|conclusion|decision|evaluation|final|grade|marks?|overall|rating|result|score|verdict)"
)
_SUBJECT = r"(?:and|attempt|code|criterion|hence|it|so|submission|that|therefore|this|thus|which)"
_VERB = (
    r"\b(?:I|we)(?:'d|'m|'ll)?(?: \w+){0,2}? (?:assign|award|giv(?:e|ing)|grade|mark|rate|score|set)(?:ing)?"
    rf"|\b{_SUBJECT}(?: (?:also|only|thus|therefore))? (?:deserves|earns|gets|merits|receives|scores"
    r"|(?:is|was)(?: (?:therefore|thus))? (?:assigned|awarded|given|graded|marked|rated|scored))|^marked"
)
_STATEMENT = re.compile(
    rf"(?:{_NOUN}|{_VERB}|\b(?:hence|so|therefore|thus)|\bthis is|\bit(?:'s| is) a)\b,?"
    rf"{_FILLER}{_SEPARATOR}{{0,6}}{_NUMBER}{_CONDITION}\s*(?:points?\b)?"
    r"(?=[.,;:!(→–—\]]|-(?!\w)|$|(?-i:[A-Z](?![A-Z]))|is (?:appropriate|assigned|awarded|given|justified|warranted)\b"
    r"|(?:and|as|because|but|due|for|given|instead|on|out|overall|rather|since|though|to|with)\b)",
    re.IGNORECASE,
)
_GIVEN = re.compile(  # a 1 is warranted; 1 is the final score
    rf"(?:^|\ba ){_NUMBER}(?: –)? is (?:therefore |thus )?"
    r"(?:appropriate|assigned because|awarded|justified|warranted|the [\w ]{0,20}score|what I give)\b",
    re.IGNORECASE,
)
# before the number, in its sentence: I cannot give this a 1; if it ran, the score is 1; the README claims a score of 1
_TURN = r"(?!\b(?:and|but|hence|so|therefore|thus)\b)"
_DENIED = re.compile(
    rf"(?:\b(?:not|never|cannot)|n't)[^\w,;:.]+(?:{_TURN}[\w']+ ){{0,6}}[*_`\"'({{]*$"
    r"|\b(?:almost|barely|could|doubt|grader|hardly|hesitate|justify|lenient|might|nearly|neither|no|nor|otherwise|perhaps"
    rf"|refuse|tempted|unable|without)\b(?:{_TURN}[^,;:.])*$|\bif\b[^:;]*$|\bhad\b[^:;]*\bwould\b[^:;]*$"
    r"|\b(?:basis for|far from|for the(?: final)? score|short of|to (?:achieve|deserve|earn|get|obtain|receive))\b"
    r"[^,;.]*$"
    r"|\b(?:ask|claim|demand|instruct|print|put|read|report|request|return|say|state|tell)(?:s|ed|ing)?\b"
    r"(?:(?!\b(?:hence|I|so|therefore|thus|we)\b)[^;.])*$",
    re.IGNORECASE,
)
# the criterion is judged: 1; this meets the criterion – 1; all is there. **1**; the criterion is met (1)
_RESULT = re.compile(
    r"(?:(?i:\b(?:criterion|judged|met|overall|requirement|satisfied|verdict)\b)[^\d\n:]{0,30}:[\s*_`\"'(]{0,6}"
    rf"|[^\W\d][.)]?\s[→–—]\s+|[.!]\s+\*\*|(?i:{_WORD})){_NUMBER}[\s.]*$"
)
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
    """Return the score that a grader's words state; raises UnreadableAnswer. A cut answer needs a heading Score.

    It is the number with which the first line below the heading begins, or a later label or number alone. Sentences
    count, too; where two statements differ, none does.
    """
    finished = text[: max(text.rfind(" "), text.rfind("\n")) + 1] if cut else text  # 0.7 may be the beginning of 0.75
    lines = _lines_of_score(_plain(without_thinking(finished)), continuous=continuous, cut=cut)
    first, *others = lines or [""]
    entry, entries = _ENTRY.match(first), [line for line in others if _ENTRY.match(line)]
    begun = set() if entry and entries else _lead_of(first, continuous=continuous)
    scores: set[float] = (
        set() if entry and others else set(begun)
    )  # a list of one counts if nothing else states a score
    for line in others:
        label = _LABEL.match(line)
        if scores and label and _is_score(label) and not label["rest"].strip(_DECORATION):
            raise UnreadableAnswer("it gives several scores instead of one.")  # the first may be a quotation
        if _is_score(label) or _BARE.fullmatch(line):
            with suppress(UnreadableAnswer):
                scores |= _lead_of(line, continuous=continuous)
    numbers = [number for line in lines for number in (*_STATEMENT.finditer(line), *_GIVEN.finditer(line))]
    try:
        scores |= _allowed([number for number in numbers if not _is_denied(number)], continuous=continuous)
    except UnreadableAnswer:
        if not scores:
            raise
    if not scores and others and not entries[: -1 if entries[-1:] == others[-1:] else None]:
        scores = begun or _lead_of(others[-1], continuous=continuous)
    for line in () if scores or cut else dict.fromkeys([first, *others[-1:]]):
        if (result := _RESULT.search(line)) and not _is_denied(result):
            scores |= _allowed([result], continuous=continuous)
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
        leads = [_lead_below(text, label, continuous=continuous) for label in headings]
        if len(set().union(*leads)) > 1:  # one of them may be quoted
            raise UnreadableAnswer(f"it gives {len(headings)} scores instead of one.")
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
        return _lines_below(text, scores[0] if stated and scores[0] not in stated else scores[-1])
    if cut or labels[1:]:
        return []
    one_line = _ONE_LINE.search(text)
    return [text] if _BARE.fullmatch(text) else [one_line["score"]] if one_line else []


def _lines_below(text: str, label: re.Match[str]) -> list[str]:
    section = text[label.start("rest") :]
    heading = _HEADING.search(section, label.end() - label.start("rest"))
    section = section[: heading.start()] if heading else section
    return [line.strip() for line in section.split("\n") if line.strip(f"{_DECORATION}-.")]


def _lead_below(text: str, label: re.Match[str], *, continuous: bool) -> set[float]:
    with suppress(UnreadableAnswer):
        return _lead_of(next(iter(_lines_below(text, label)), ""), continuous=continuous)
    return set()


def _may_be_score(rest: str, *, continuous: bool) -> bool:
    """Return whether a label has no number right behind it, or one that is allowed."""
    try:
        return _lead_of(rest, continuous=continuous) is not None
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


def _lead_of(line: str, *, continuous: bool) -> set[float]:
    """Return the score with which a line begins, perhaps behind the label."""
    label = _LABEL.match(line)
    statement = label["rest"] if label is not None and _is_score(label) else line
    statement = _SCORE_ENTRY.sub("", statement.lstrip(_DECORATION).removeprefix("- ").lstrip(_DECORATION))
    number = _LEAD.match(statement)
    return _allowed([number], continuous=continuous) if number else set()


def _is_denied(number: re.Match[str]) -> bool:
    """Return whether a number is quoted, or words before it in its sentence take it back or make it a condition."""
    before = number.string[: number.start(1)]
    quotes = before.rstrip("*_`\"'({ ")
    sentence = before.rfind(". ") + 1
    return bool(
        quotes.count('"') % 2 or quotes.count("`") % 2 or _DENIED.search(before, max(sentence, len(before) - 90))
    )


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
