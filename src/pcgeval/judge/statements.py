"""How graders state a score in words: a number at the beginning of a line, or in a sentence such as "the score is 1".

What takes a number back ("I cannot give a 1"), makes it a condition ("1 would need a log"), or says whose it is ("the
README claims a score of 1") makes it no score. The messages of `UnreadableAnswer` go back to the model when it grades
again, and hold numbers of the answer but none of its words, which may be a submission's.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

DECORATION = " \t*_`'\"#:=>–—([{$•→✅❌✓✔⭐"  # at the beginning of a line
# 0/1 and 0 of 1, but 1 of 3, 1 for part A and "one seed" are no scores
_REASON = r"(?:this|the (?:criterion|submission|missing)|meeting|satisfying|failing|lacking|not)\b"
NUMBER = (
    r"([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d{1,3})?|(?i:zero|one)(?=[*_`\"')\s]*(?:$|[.,;:!])))"
    rf"(?![^\W_]|_\w|%|\.\d| ?%| of\b(?! 1\b)| for (?!{_REASON}))(?:\s?(?:/|(?:out )?of)\s?(\d+)\b)?[*_`\"')\]}}>$]*"
)
# behind the number: it would be given, it cannot be, it needs more, 1 out of 3
_CONDITION = (
    r"(?![\s*_`\"')\]–—-]*(?:\?|[+×*] ?\d"
    r"|(?:points? )?\(?(?:max|of|out of)\b(?! (?:a (?:possible|maximum(?: of)?) )?1\b)"
    r"|(?:assuming|can|can't|cannot|could|if|is(?:n't| (?:for|not|only|out|reserved|too|un\w+))|may|means|might|must"
    r"|needs?|only (?:be|if|when)|or|provided|requires?|seems|should|unless|vs|was|when|would)\b))"
)
# before it: Not satisfied (0), Pass (1), Yes, 1
_WORD = (
    r"(?:(?:not |full |no )?(?:fully )?"
    r"(?:credit|fail(?:s|ed)?|false|fulfilled|met|no|one|pass(?:es|ed)?|satisfied|true|yes|zero)[*_ ]*[,:→–—(-][*_ ]*)"
)
# a number that begins a line and is its statement: alone, before punctuation, or before a sentence or its reason
_LEAD = re.compile(
    rf"(?i:{_WORD})?(?:\\(?:boxed|textbf)\{{)?{NUMBER}{_CONDITION}\s*"
    r"(?=$|[.,;:!(\[–—|→✅❌✓✔\\]|-(?!\w)|=>|= [a-z]|[A-Z](?![A-Z])"
    r"|(?:although|because|but|due|even|given|since|as|points?|for|the|this|it|while)\b)"
)
_CHOICE = re.compile(  # 0 or 1; 1,0; 0-1; 1 -> 0; but not "0, 2 of 3 files are there" and "0: 1 of 2"
    r"(?:\s?[,;|&]\s?(?!\d+ (?!for\b|points?\b)[a-z])|\s(?:or|and|to|vs)\s|[-–]"
    r"|\s?(?:→|->|=>)\s?(?=[01]\b(?! of\b))|\s?(?:\.{2,3}|:)\s?(?=[01]\b(?! [a-z]))|\s[–—-]\s(?=[01]\W*$))[-+]?[.\d]"
)
# 1 for the code, 0 for the results; 1 = met, 0 = not met
_PARTS = re.compile(r"\b[01] for\b.*\b[01] for\b|\b[01] = .*\b\d =|\b[01] ?\([^)]*\).{1,6}\b[01] ?\(")
_ENUMERATION = re.compile(r"1[.)]+ .*\b2[.)]+ ")  # (1) it trains (2) it tests
BARE = re.compile(rf"[#*_`(\s]*{NUMBER}[\s.]*")
ENTRY = re.compile(r"[*_( -]{0,4}\d(?P<mark>[.):]+[*_]*|\s*[–-])\s+")  # of a list
_SCORE_ENTRY = re.compile(rf"\d[.)]\s+(?=(?:the )?(?:final |overall )?score\b|{BARE.pattern}$)", re.IGNORECASE)
_ASSIGNED = re.compile(r"^score ?= ?(?=[01][\s.*]*$)", re.IGNORECASE)
# a statement in a sentence: the score for this is 1; I assign it a 1; it receives 1; hence, 1; this is a 1
_SEPARATOR = r"[\s*_`\"':=>–—({}]"
_FILLER = (  # what may stand between such words and the number: no "criterion 1", no "a batch size of 1"
    rf"(?:{_SEPARATOR}{{1,6}}(?:accordingly|an?|as|assigned|attempt|awarded|be|clear|equals|final|full|given|grade|has|hence"
    r"|here|is|it|mark|must|now|of|only|overall|remains|requirement|score|set|should|simply|stays|submission|that|the|then"
    r"|therefore|this|thus|to|will|would"
    r"|(?:at|criterion|for|item|leaf|on|task)(?! \(?\d))){0,12}"
)
_KIND = (
    r"(?:appropriate|assigned|binary|correct|final|full|numeric|numerical|only|overall|possible|proper|resulting|right)"
)
_NOUN = (
    r"(?:^(?!\w+ ?=)|[,;:.(\[{–—→*_\"'`]\s?"
    r"|\b(?:and|criterion's|hence|my|our|so|submission's|the|therefore|this|thus)\s+)"
    rf"[*_]{{0,3}}(?:{_KIND} ){{0,3}}"
    r"(?:answer|conclusion|decision|evaluation|final|grade|marks?|overall|rating|result|score|verdict)"
)
_SUBJECT = r"(?:and|attempt|code|criterion|hence|it|so|submission|that|therefore|this|thus|which)"
_VERB = (
    r"\b(?:I|we)(?:'d|'m|'ll)?(?: \w+){0,2}? (?:assess|assign|award|evaluate|giv(?:e|ing)|grade"
    r"|judge|mark|rate|score|set)(?:ing)?"
    r"|\band (?:assign|award|give|mark)"
    rf"|\b{_SUBJECT}(?: (?:also|only|should|therefore|thus|would)){{0,2}}"
    r" (?:deserves?|earns?|gets?|merits?|receives?|scores"
    r"|(?:is|was|be)(?: (?:therefore|thus))? (?:assigned|awarded|given|graded|marked|rated|scored))|^(?:giving|marked)"
    r"|\b(?:conclude with|leads? to|leading to|results? in|resulting in)"
)
_STATEMENT = re.compile(
    rf"(?:{_NOUN}|{_VERB}|(?<!is )(?<!are )\b(?:hence|in conclusion|so|therefore|thus)(?!,? \()|\bthis is"
    r"|\bit(?:'s| is)(?: therefore| thus)? a)\b,?"
    rf"{_FILLER}{_SEPARATOR}{{0,6}}{NUMBER}{_CONDITION}\s*(?:points?\b)?"
    r"(?=[.,;:!(→–—\]]|-(?!\w)|$|(?-i:[A-Z](?![A-Z]))"
    r"|(?:and|as|because|but|due|for|from|given|instead|on|out|overall|rather|since|though|to|with)\b)",
    re.IGNORECASE,
)
_GIVEN = re.compile(  # a 1 is warranted; a score of 1 has been given; 1 is the final score
    rf"(?:^|\b(?:an?|of) ){NUMBER}(?: –)? (?:is|was|has been) (?:therefore |thus )?"
    r"(?:appropriate|assigned(?! to)|awarded|given(?! by)|justified|warranted|the [\w ]{0,20}score|what I give)\b",
    re.IGNORECASE,
)
_MENTION = re.compile(  # which counts where nothing else does: this corresponds to a score of 1
    rf"\ba (?:{_KIND} ){{0,2}}(?:score|grade|mark) of [\"'*_`]{{0,3}}{NUMBER}{_CONDITION}(?=[\s.,;:!)(→–—]|$)",
    re.IGNORECASE,
)
# before the number, in its sentence: I cannot give this a 1; if it ran, the score is 1
_TURN = r"(?!\b(?:and|but|hence|so|therefore|thus)\b)"
_DENIED = re.compile(
    rf"(?:\b(?:not|never|cannot)|n't)[^\w,;:.]+(?:{_TURN}[\w']+ ){{0,6}}[*_`\"'({{]*$"
    r"|\b(?:almost|barely|could|doubt|enough|grader|hardly|hesitate|justify|lenient|might|nearly|neither|no|nor|otherwise"
    rf"|perhaps|refuse|sufficient|tempted|unable|without)\b(?:{_TURN}[^,;:.])*$"
    r"|\bif\b[^:;]*$|\bhad\b[^:;]*\bwould\b[^:;]*$"
    r"|\b(?:basis for|far from|for the(?: final)? score|necessary|needed|precludes?|prevents?|required|short of"
    r"|to (?:achieve|deserve|earn|get|obtain|receive))\b[^,;.]*$",
    re.IGNORECASE,
)
_CLAIMED = re.compile(  # the README claims a score of 1
    r"\b(?:ask|claim|demand|instruct|print|put|read|report|request|return|say|state|tell)(?:s|ed|ing)?\b"
    r"(?:(?!\b(?:hence|I|so|therefore|thus|we)\b)[^;.])*$",
    re.IGNORECASE,
)
# the criterion is judged: 1; this meets the criterion – 1; all is there. **1**; the criterion is met (1)
_RESULT = re.compile(
    r"(?:(?i:\b(?:criterion|judged|met|overall|requirement|satisfied|verdict)\b)[^\d\n:]{0,30}:[\s*_`\"'(]{0,6}"
    r"|(?i:\b(?:fulfilled|met|satisfied)\b)[*_]*\s?(?:->|[.;=]|, (?i:i\.e\.|that is|which means),?)\s?"
    rf"|[^\W\d][.)]?\s[→–—]\s+|[.!]\s+\*\*|(?i:{_WORD})){NUMBER}[\s.]*$"
)


class UnreadableAnswer(Exception):  # noqa: N818 - an answer, not an error: it is asked for again
    """An answer that does not state exactly one score; the message tells the model why."""


class SeveralScores(UnreadableAnswer):
    """A line that gives several scores, such as the scale "1 = met, 0 = not met"."""


def leading_scores(line: str, *, continuous: bool) -> set[float]:
    """Return the score with which a line begins, if it does; raises UnreadableAnswer for one that is not allowed."""
    line = _SCORE_ENTRY.sub("", line.lstrip(DECORATION).removeprefix("- ").lstrip(DECORATION))
    number = _LEAD.match(_ASSIGNED.sub("", line))
    return _allowed([number], continuous=continuous) if number else set()


def stated_scores(lines: Iterable[str], *, continuous: bool) -> set[float]:
    """Return the scores that sentences state; raises UnreadableAnswer if none of them is allowed."""
    numbers = [number for line in lines for number in (*_STATEMENT.finditer(line), *_GIVEN.finditer(line))]
    return _allowed([number for number in numbers if not _is_denied(_before(number))], continuous=continuous)


def mentioned_scores(lines: Iterable[str], *, continuous: bool) -> set[float]:
    """Return the scores of phrases such as "a score of 1", which count where no sentence states one."""
    mentions = [mention for line in lines for mention in _MENTION.finditer(line)]
    return _allowed([number for number in mentions if not _is_denied(_before(number))], continuous=continuous)


def resulting_scores(lines: Iterable[str], *, continuous: bool) -> set[float]:
    """Return the scores in which lines end, behind a verdict in words."""
    results = filter(None, map(_RESULT.search, lines))
    return _allowed([number for number in results if not _is_quoted(_before(number))], continuous=continuous)


def _before(number: re.Match[str]) -> str:
    return number.string[: number.start(1)]


def _is_denied(before: str) -> bool:
    """Return whether the text before a number quotes it, takes it back or makes it a condition."""
    return _is_quoted(before) or _DENIED.search(before, _sentence_start(before)) is not None


def _is_quoted(before: str) -> bool:
    """Return whether the text before a number opens a quotation, or says that somebody else gives it."""
    words = before.rstrip("*_`\"'({ ")
    is_open = words.count('"') % 2 or words.count("`") % 2
    return bool(is_open) or _CLAIMED.search(before, _sentence_start(before)) is not None


def _sentence_start(before: str) -> int:
    """Return where the last sentence of a text begins, at most 90 characters before its end."""
    return max(before.rfind(". ") + 1, len(before) - 90)


def _allowed(numbers: Sequence[re.Match[str]], *, continuous: bool) -> set[float]:
    """Return the scores among numbers of a line; one that is not allowed only counts where no other is."""
    scores, fault = set(), None
    for number in numbers:
        is_first = _ENUMERATION.match(number.string, number.start(1))
        if is_first or _CHOICE.match(number.string, number.end(1)) or _PARTS.search(number.string):
            raise SeveralScores("it gives several scores instead of one.")
        try:
            scores.add(checked(*number.groups(), continuous=continuous))
        except UnreadableAnswer as error:
            fault = error
    if fault and not scores:
        raise fault
    return scores


def checked(number: Any, whole: str | None = None, *, continuous: bool) -> float:
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
