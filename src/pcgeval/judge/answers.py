"""Read a model's answers: the score of a grading, the verdict of a parse call, and names of files.

The rule for a score is short on purpose: whatever it does not read without doubt, a parse call reads.
"""

import json
import re
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise

from pcgeval.core.text import well_formed
from pcgeval.judge.files import SubmissionFile, clean
from pcgeval.rubric.grades import QuoteRecord, Verdict

MAX_QUOTE = 2_000  # characters that are recorded
_LEAST = 12  # characters of the longest piece; shorter ones are everywhere and have to be whole lines
_TEXTS_KEPT = 64  # in memory, each of at most half a megabyte
_EVIDENCE = re.compile(r"^[ \t]*(?:#{1,6}[ \t*]*|\*\*)evidence\b.*$", re.IGNORECASE | re.MULTILINE)
_END = re.compile(r"^[ \t#*_]*(?:final )?score\b", re.IGNORECASE | re.MULTILINE)
_FILE = re.compile(r"^[ \t>*`#-]*file[ \t*`]*:(?P<name>.*)$", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?:`{3,}|~{3,})(?P<language>.*)$", re.MULTILINE)
_ELLIPSIS = re.compile(r"\[?(?:\.{3}|…)\]?")
# > quoted, - listed, 12: numbered, L12 | numbered, +added
_PREFIX = re.compile(r"\A(?:\s*(?:[>•*+-]\s|L?[0-9]{1,6}\s*[:|)]|[0-9]{1,6}\.?\s{1,8}|[+-](?=[^\W\d])|[>•|]))*\s*")
_QUOTES = str.maketrans("“”„‘’–—", '"""\'\'--')
_AROUND = "`*\"'"

MAX_PICKED = 10  # files, as in PaperBench
MAX_EXPLANATION = 1000  # characters
_MAX_ANSWER = 20_000  # characters that are read of an answer
# only at the beginning does the tag open thoughts; further below, or in back quotes, the answer quotes it
_THINKING = re.compile(r"\A\s*<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL)
_END_OF_THINKING = re.compile(r"(?<![`\"'])</think(?:ing)?>(?![`\"'])|<\|channel\|>final<\|message\|>")
_FENCED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_MARKS = " \t#*_`\\"  # of Markdown around a score
_HEADING = re.compile(
    r"^(?P<marks>[ \t#*_]*)(?P<name>expectations|reality|evidence|(?:final )?score)(?P<rest>[*_ \t]*(?:[:=].*)?)$",
    re.IGNORECASE | re.MULTILINE,
)
_DOUBT = re.compile(r"\bscore\b|(?<![\w.])[01](?![\w.])", re.IGNORECASE)  # below a score
_NUMBER = re.compile(r"(?P<number>[01]?(?:\.[0-9]{1,20})?)(?:/1)?\.?")
_WHOLE_NAME = r"(?<![\w./-])(?:\.?/)?{}(?![\w/-]|\.\w)"  # of a file, perhaps behind ./


def without_thinking(text: str) -> str:
    """Return the last 20 000 characters of an answer without the thoughts that some models write before it.

    Some chat templates begin the thoughts, so that the answer holds only the end of them.
    """
    *_, answer = _END_OF_THINKING.split(_THINKING.sub("", clean(text)))
    return answer[-_MAX_ANSWER:].strip()


def read_score(answer: str, *, continuous: bool) -> float | None:
    """Return the score of a grading; None where it is in doubt, so that a parse call has to read it.

    The score is the number in the last line `Score: 1`, or else the first line below the last heading `# Score` or
    `**Score**`. What stands between fences is quoted and does not count. Neither an earlier heading nor the text below
    the number may give another score.
    """
    text, scores, below = _FENCED.sub("", answer).rstrip(), [], ""
    for heading in _HEADING.finditer(text):
        is_last_line = heading.end() == len(text)
        if "score" in heading["name"].casefold() and (heading["marks"].strip() or is_last_line):
            line, below = heading["rest"].strip(f"{_MARKS}:="), text[heading.end() :]
            if not line:
                line, _, below = below.lstrip().partition("\n")
            scores.append(_allowed(line, continuous=continuous))
    is_certain = len({*scores} - {None}) == 1 and not _DOUBT.search(below)
    return scores[-1] if is_certain else None


def _allowed(value: object, *, continuous: bool) -> float | None:
    """Return a number that stands alone in a text or comes from JSON, if the criterion may have it as its score."""
    number = _NUMBER.fullmatch(str(value).strip(_MARKS))
    score = float(number["number"]) if number and number["number"] else -1.0
    return score if score in (0, 1) or (continuous and 0 <= score <= 1) else None


def reality_of(answer: str) -> str:
    """Return the text below the heading Reality up to the next heading, or else the whole answer."""
    headings = [*_HEADING.finditer(answer)]
    ends = [*(heading.start() for heading in headings[1:]), len(answer)]
    for heading, end in zip(headings, ends, strict=False):
        if heading["name"].casefold() == "reality":
            return answer[heading.start("rest") : end].strip(" \t\n:*_")[:MAX_EXPLANATION]
    return answer[:MAX_EXPLANATION]


def read_verdict(text: str, *, continuous: bool) -> Verdict | None:
    """Return the verdict of JSON `{"valid_score": true, "score": 1, "explanation": "..."}`; None for anything else."""
    answer = without_thinking(text)
    try:
        verdict, _ = json.JSONDecoder().raw_decode(answer, max(answer.find("{"), 0))
    except (ValueError, RecursionError):
        return None
    score = _allowed(verdict.get("score"), continuous=continuous) if isinstance(verdict, dict) else None
    if score is None or verdict.get("valid_score") not in (True, "true"):
        return None
    # JSON's escapes may stand for control characters and half characters
    reason = clean(well_formed(str(verdict.get("explanation", "")))).strip()
    return Verdict(score, reason[:MAX_EXPLANATION])


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


def find_quote(answer: str, texts: Mapping[str, str], counting: Collection[str]) -> QuoteRecord:
    """Return what a grader's answer quotes below its heading Evidence, and where that was found.

    `texts` has the text of each file that the grader was shown, by its name there; `counting` are the names of those
    that can show what the criterion asks for.
    """
    heading = _EVIDENCE.search(answer)
    section = answer[heading.end() :] if heading else ""
    file_line = _FILE.search(section)
    written = file_line["name"].strip(f"{_AROUND} ") if file_line else ""
    titles = {_plain(name) for name in texts}  # a grader may copy the line with the file's name
    pieces = [piece for piece in _quoted(section[file_line.end() if file_line else 0 :]) if piece not in titles]
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
    excerpt = [lines[numbers[0]]]
    for before, number in pairwise(numbers):
        between = lines[before + 1 : number]
        excerpt += [*(["..."] if any(map(str.strip, between)) else between), lines[number]]
    return "\n".join(excerpt)


@lru_cache(_TEXTS_KEPT)
def _plain_lines(text: str) -> tuple[Sequence[int], str, Sequence[int]]:
    """Return the numbers of the lines that are not empty, these lines, and the end of each when they are joined."""
    lines = {number: plain for number, line in enumerate(text.split("\n")) if (plain := _plain(line))}
    return list(lines), "\n".join(lines.values()), list(accumulate(map(len, lines.values())))
