"""Reading a model's answers: a score from words as people read them, a verdict from JSON, names of files.

The score stands below the last heading Score, or behind the label `Score:`. What cannot be read without doubt raises
UnreadableAnswer.
"""

import ast
import json
import re
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any

from pcgeval.core.untrusted import well_formed
from pcgeval.judge.files import SubmissionFile, clean
from pcgeval.judge.statements import (
    BARE,
    DECORATION,
    ENTRY,
    NUMBER,
    SeveralScores,
    UnreadableAnswer,
    checked,
    leading_scores,
    mentioned_scores,
    resulting_scores,
    stated_scores,
)
from pcgeval.rubric.grades import Verdict

MAX_PICKED = 10  # files, as in PaperBench
MAX_EXPLANATION = 1000  # characters
_MAX_ANSWER = 20_000  # characters that are read of an answer
_MAX_OBJECTS = 50  # places at which JSON is looked for
_NO = ("", "0", "0.0", "false", "no", "none")  # a valid_score that is not true
# only at the beginning does the tag open thoughts; further below, or in back quotes, the answer quotes it
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"(?<![`\"'])</think(?:ing)?>(?![`\"'])|<\|channel\|>final<\|message\|>")
_INVISIBLE = re.compile(
    "[\u200b-\u200d\u2060\ufeff\ufe0e\ufe0f\u20e3]|&nbsp;|</?(?:b|strong|i|em|u|p|span|answer)>|</score>"
)
_ESCAPE = re.compile(r"\\(?=[^\w\s])")  # of Markdown and TeX: \# and \(
_PLAIN_MARKS = str.maketrans("“”„‘’⇒➔➜⟶←‣▪‐✗✘─━═", '"""\'\'→→→→–••-❌❌———')  # what NFKC leaves
# (0 or 1), (1 if met, else 0), (out of 1), [0-1], {0,1} or (binary) behind the word: the scale, and no score
_IN_SCALE = r"[^()\[\]{}\n]"
_SCALE = re.compile(
    rf"(?<=score)[ *_]{{0,4}}[(\[{{]{_IN_SCALE}{{0,40}}"
    rf"(?:binary|out of 1|\b0\b{_IN_SCALE}{{1,40}}1|\b1\b{_IN_SCALE}{{1,40}}0){_IN_SCALE}{{0,40}}[)\]}}]"
    rf"|\({_IN_SCALE}{{0,40}}\b[01] ?[=:] {_IN_SCALE}{{1,40}}\b[01] ?[=:] {_IN_SCALE}{{1,40}}\)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"^(?P<mark>[ \t>#*_•●■✅❌✓✔→–[(-]*(?:[0-9A-C][.)][ \t*_]*)?)"
    r"(?P<name>expectations?|reality|(?:(?:final|overall|assigned|binary) )?score)(?![^\W_])(?P<rest>.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE = re.compile(r"^[ \t>]*(?:```|~~~)[^`\n]*$", re.MULTILINE)
_FENCED = re.compile(rf"{_FENCE.pattern}.*?{_FENCE.pattern}", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^[ \t>]*#(?!#*[ \t*]*[01](?:\.0+)?[ \t*]*$)", re.MULTILINE)  # `### 1` is a score
_ONE_LINE = re.compile(rf"\A.*[.;] (?P<score>score:[*_ ]*{NUMBER}[\s.]*)\Z", re.IGNORECASE)
# behind the word Score in a heading of the reasons for it
_REASONS = re.compile(r"[\s*_:]*(?:(?:and|with) )?(?:explanation|justification|rationale|reason)", re.IGNORECASE)
_WHOLE_NAME = r"(?<![\w./-])(?:\.?/)?{}(?![\w/-]|\.\w)"  # of a file, perhaps behind ./


def without_thinking(text: str) -> str:
    """Return the last 20 000 characters of an answer without the thoughts that some models write before it.

    Some chat templates begin the thoughts, so that the answer holds only the end of them.
    """
    *_, answer = _END_OF_THINKING.split(_THINKING.sub("", clean(text)))
    return answer[-_MAX_ANSWER:].strip()


def read_score(text: str, *, continuous: bool, cut: bool = False) -> float:
    """Return the score that a grader's words state; raises UnreadableAnswer. A cut answer needs a heading Score.

    It is the number with which the first line below the heading begins, that of a later label, or one alone in a line.
    Sentences that state a score count, too. Only where there is none of these, phrases, the last line and results do.
    Where two statements differ, or one is not allowed, none counts.
    """
    finished = text[: max(text.rfind(" "), text.rfind("\n")) + 1] if cut else text  # 0.7 may be the beginning of 0.75
    lines = _lines_of_score(_plain(without_thinking(finished)), continuous=continuous, cut=cut)
    first, *others = lines or [""]
    entry, entries = ENTRY.match(first), list(filter(None, map(ENTRY.match, others)))
    is_list = bool(entry and entries and entry["mark"] == entries[0]["mark"])
    begun: set[float] = set()
    with suppress(SeveralScores) if others else nullcontext():
        begun = set() if is_list else _lead_of(first, continuous=continuous)
    scores = set() if entry and others and not entries else set(begun)  # a list of one counts if nothing else does
    for line in others:
        label = _LABEL.match(line)
        if scores and label and _is_score(label) and not label["rest"].strip(DECORATION):
            raise UnreadableAnswer("it gives several scores instead of one.")  # the first may be a quotation
        if _is_score(label) or BARE.fullmatch(line):
            with suppress(SeveralScores):
                scores |= _lead_of(line, continuous=continuous)
    with suppress(UnreadableAnswer) if scores else nullcontext():
        scores |= stated_scores(lines, continuous=continuous)
    scores = scores or mentioned_scores(lines, continuous=continuous)
    if not scores and others and all(entry.string == others[-1] for entry in entries):
        scores = begun or _lead_of(others[-1], continuous=continuous)
    if not scores and not cut:
        scores = resulting_scores([first, *others[-1:]], continuous=continuous)
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
    labels = [label for label in every if not _is_fenced(label, fences, cut=cut)]
    if not labels and not cut:  # the whole answer stands between fences
        labels = every
    scores = [label for label in labels if _is_score(label)]
    if plain := [label for label in scores if not re.match(r"[ \t]*>|    |\t", label["mark"])]:  # else all are quoted
        scores = plain
    if headings := [label for label in scores if "#" in label["mark"]]:
        leads = [_lead_below(text, label, continuous=continuous) for label in headings]
        if len(set().union(*leads)) > 1:  # one of them may be quoted
            raise UnreadableAnswer(f"it gives {len(headings)} scores instead of one.")
        scores = [label for label in headings if not _REASONS.match(label["rest"])][-1:] or headings[-1:]
    else:  # a label that looks less like a heading than the one before may be a quotation, unless it ends the answer
        others = [label for label in labels if not _is_score(label)]
        least, start = (_rank(others[-1]), others[-1].start()) if others else (0, -1)
        scores = [label for label in scores if label.start() > start]
        scores = [label for label in scores if _rank(label) >= least or _ends(text, label)]
        best = max(map(_rank, scores), default=0)
        scores = [label for label in scores if _rank(label) == best and (best == 2 or not cut)]
    if len(scores) > 1 and _may_be_score(scores[-1], continuous=continuous):  # `Score: 0.87` before it is of a log
        scores = [label for label in scores if _may_be_score(label, continuous=continuous)]
    stated = [label for label in scores if label["rest"].strip(DECORATION)]
    if len({label["rest"].strip(DECORATION)[:4] for label in stated}) > 1 or (stated and scores[-1] not in stated):
        raise UnreadableAnswer(f"it gives {len(scores)} scores instead of one.")
    if scores:  # an empty label may be the heading of the others
        return _lines_below(text, scores[0] if stated and scores[0] not in stated else scores[-1])
    if cut or labels[1:]:
        return []
    one_line = _ONE_LINE.search(text)
    return [text] if BARE.fullmatch(text) else [one_line["score"]] if one_line else []


def _lines_below(text: str, label: re.Match[str]) -> list[str]:
    section = text[label.start("rest") :]
    heading = _HEADING.search(section, label.end() - label.start("rest"))
    section = section[: heading.start()] if heading else section
    if not _FENCE.match(section.lstrip(": \n")):  # else the score itself stands between fences
        section = _FENCED.sub("", section)
    return [line.strip() for line in section.split("\n") if line.strip(f"{DECORATION}-.")]


def _lead_below(text: str, label: re.Match[str], *, continuous: bool) -> set[float]:
    """Return the score with which the first or the second line below a heading begins."""
    lead: set[float] = set()
    for line in _lines_below(text, label)[:2]:
        with suppress(UnreadableAnswer):
            lead = lead or _lead_of(line, continuous=continuous)
    return lead


def _may_be_score(label: re.Match[str], *, continuous: bool) -> bool:
    """Return whether a label has no number right behind it, or one that is allowed."""
    try:
        return leading_scores(label["rest"], continuous=continuous) is not None
    except UnreadableAnswer:
        return False


def _is_fenced(label: re.Match[str], fences: Sequence[int], *, cut: bool) -> bool:
    """Return whether a label stands between two fences of code, or in a cut answer behind one without a second."""
    before = bisect(fences, label.start())
    return before % 2 == 1 and (cut or before < len(fences))


def _is_label(line: re.Match[str]) -> bool:
    """Return whether a line is a heading or a label before a colon, and no sentence or code such as `score = 1`."""
    rest = line["rest"].strip("*_ \t")
    return not rest or rest[0] in ":–→" or rest.startswith("- ") or not {"#", "*", "_"}.isdisjoint(line["mark"])


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
    return text[: label.start()].endswith("\n\n") and (not below.strip() or BARE.fullmatch(below) is not None)


def _lead_of(line: str, *, continuous: bool) -> set[float]:
    """Return the score with which a line begins, perhaps behind the label."""
    label = _LABEL.match(line)
    return leading_scores(label["rest"] if label is not None and _is_score(label) else line, continuous=continuous)


def read_verdict(text: str, *, continuous: bool) -> Verdict:
    """Return the verdict of JSON `{"valid_score", "score", "explanation"}`, or of words; raises UnreadableAnswer."""
    text = without_thinking(text)
    verdicts = [verdict for verdict in _objects(text) if "score" in verdict]
    if not verdicts:
        return Verdict(read_score(text, continuous=continuous), text[:MAX_EXPLANATION])
    if any(str(verdict.get("valid_score", True)).casefold() in _NO for verdict in verdicts):
        raise UnreadableAnswer("it has no heading Score with a number.")
    scores = {
        read_score(f"Score: {score}", continuous=continuous)
        if isinstance(score, str)
        else checked(score, continuous=continuous)
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
