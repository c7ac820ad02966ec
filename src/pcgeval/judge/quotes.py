"""Verified evidence: a judge that passes a criterion quotes lines of a file, and they are looked up there.

A quotation is compared without its white space. What is recorded is the place in the file's text as the judge reads it
(a log is condensed, of a notebook only the sources are left), and that text.
The messages of `UnreadableAnswer` go back to the model and hold no word of its answer, which may be a submission's.
"""

import re
from collections.abc import Mapping

from pcgeval.judge.statements import UnreadableAnswer
from pcgeval.rubric.record import QuoteRecord

MAX_QUOTE = 2_000  # characters that are recorded
_SHORT = 12  # characters without white space; a shorter quotation must be whole lines
_FENCES = 2  # around a quotation
_HEADING = re.compile(r"^[ \t>]*(?:#{1,6}[ \t*]*|\*\*)evidence\b.*$", re.IGNORECASE | re.MULTILINE)
_SCORE = re.compile(r"^[ \t>]*(?:#{1,6}[ \t*]*|\*\*)(?:final |overall )?score\b", re.IGNORECASE | re.MULTILINE)
_FILE = re.compile(r"^[ \t>*`#-]*file[ \t*`]*:(?P<name>.*)$", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?P<mark>`{3,}|~{3,})(?P<language>.*)$", re.MULTILINE)
_LETTER = re.compile(r"[^\W_]")  # or a digit
_AROUND = " \t`*\"'"  # what may stand around the name of a file


def _section(answer: str) -> tuple[int, int]:
    """Return where the text below the heading Evidence begins and ends; the last heading Score ends it."""
    heading = _HEADING.search(answer)
    if heading is None:
        return len(answer), len(answer)
    *_, end = (len(answer), *(score.start() for score in _SCORE.finditer(answer, heading.end())))
    return heading.end(), end


def without_evidence(answer: str, *, cut: bool) -> str:
    """Return an answer without what it quotes as evidence, in which no score is to be looked for.

    Where the answer was cut off, a heading Score counts only behind lines between two fences: else they may quote it.
    """
    start, end = _section(answer)
    if cut and len(_FENCE.findall(answer, start, end)) != _FENCES:
        return answer[:start]
    return f"{answer[:start]}\n{answer[end:]}"


def verify_quote(answer: str, texts: Mapping[str, str], prompt: str) -> QuoteRecord:
    """Return the place of the lines that an answer quotes as evidence.

    Args:
        answer: A grader's words.
        texts: The text of each file that the grader may have been shown, by its name there.
        prompt: What the grader was shown, which may lack parts of these texts.

    Raises:
        UnreadableAnswer: It quotes nothing, a file or lines that were not shown, or lines that are not in the file.
    """
    start, end = _section(answer)
    section = answer[start:end]
    file = _FILE.search(section)
    quoted = "".join(_quoted_lines(section[file.end() :]).split()) if file else ""
    if file is None or not _LETTER.search(quoted):
        raise UnreadableAnswer("a score above 0.5 needs a file and its lines below the heading Evidence.")
    name = _shown_name(file["name"], texts)
    if name is None:
        raise UnreadableAnswer("the file that it quotes below the heading Evidence was not shown.")
    text = texts[name]
    at = "".join(text.split()).find(quoted)
    if at < 0 or quoted not in "".join(prompt.split()):
        raise UnreadableAnswer(
            "the lines that it quotes below the heading Evidence are not in that file, as it was shown."
        )
    if len(quoted) < _SHORT:
        lines = "\n".join("".join(line.split()) for line in text.split("\n"))
        whole = re.search("\n" + "\n*".join(map(re.escape, quoted)) + "\n", f"\n{lines}\n")
        if whole is None:
            raise UnreadableAnswer("what it quotes below the heading Evidence is only a part of a line: copy the line.")
        at = whole.start() - lines.count("\n", 0, whole.start())
    places = [place for place, character in enumerate(text) if not character.isspace()]
    first, last = places[at], places[at + len(quoted) - 1]
    return QuoteRecord(
        file=name,
        first_line=text.count("\n", 0, first) + 1,
        last_line=text.count("\n", 0, last) + 1,
        text=text[first : last + 1][:MAX_QUOTE],
    )


def _quoted_lines(text: str) -> str:
    """Return what stands between the first fence and the next that can close it, or without a fence, all of a text."""
    fence = _FENCE.search(text)
    if fence is None:
        return text
    letter = _LETTER.search(text, fence.end())  # before it a fence is itself quoted
    start = letter.start() if letter else fence.end()
    closing = re.compile(rf"^[ \t]*{fence['mark']}{fence['mark'][0]}*[ \t\r]*$", re.MULTILINE).search(text, start)
    return text[fence.end() : closing.start() if closing else len(text)]


def _shown_name(written: str, texts: Mapping[str, str]) -> str | None:
    """Return the name of a file as it was shown; a note or lines may follow, and the last part alone may be unique."""
    written = written.strip(_AROUND).removeprefix("./")
    by_path = {name: name.strip(_AROUND) for name in texts}
    by_base = {name: path.rpartition("/")[2] for name, path in by_path.items()}
    for known in (by_path, by_base):
        named = [name for name, path in known.items() if re.match(rf"{re.escape(path)}(?!\.?[\w/-])", written)]
        if named:
            longest = max(len(known[name]) for name in named)
            names = [name for name in named if len(known[name]) == longest]
            return names[0] if len(names) == 1 else None
    return None
