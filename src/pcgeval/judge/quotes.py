"""Verified evidence: a judge that passes a criterion quotes lines of a file, and they are looked up there.

A quotation is compared without its white space. What is recorded is the place in the file and the file's own text.
The messages of `UnreadableAnswer` go back to the model and hold no word of its answer, which may be a submission's.
"""

import re
from collections.abc import Mapping

from pcgeval.judge.answers import UnreadableAnswer
from pcgeval.rubric.record import QuoteRecord

MAX_QUOTE = 2_000  # characters that are recorded
_HEADING = re.compile(r"^[ \t>]*(?:#{1,6}[ \t*]*|\*\*)evidence\b.*$", re.IGNORECASE | re.MULTILINE)
_SCORE = re.compile(r"^[ \t>]*(?:#{1,6}[ \t*]*|\*\*)(?:final |overall )?score\b", re.IGNORECASE | re.MULTILINE)
_FILE = re.compile(r"^[ \t>*`-]*file[ \t*`]*:(?P<name>.*)$", re.IGNORECASE | re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)(?P<language>.*)$", re.MULTILINE)


def _section(answer: str) -> tuple[int, int]:
    """Return where the text below the heading Evidence begins and ends; the last heading Score ends it."""
    heading = _HEADING.search(answer)
    if heading is None:
        return len(answer), len(answer)
    *_, end = (len(answer), *(score.start() for score in _SCORE.finditer(answer, heading.end())))
    return heading.end(), end


def without_evidence(answer: str) -> str:
    """Return an answer without what it quotes as evidence, in which no score is to be looked for."""
    start, end = _section(answer)
    return f"{answer[:start]}\n{answer[end:]}"


def verify_quote(answer: str, shown: Mapping[str, str]) -> QuoteRecord:
    """Return the place of the lines that an answer quotes as evidence.

    Args:
        answer: A grader's words.
        shown: The text of each file that the grader was shown, by the name that it was shown.

    Raises:
        UnreadableAnswer: It quotes nothing, a file that was not shown, or lines that are not in the file.
    """
    start, end = _section(answer)
    section = answer[start:end]
    file = _FILE.search(section)
    quoted = "".join(_quoted_lines(section[file.end() :]).split()) if file else ""
    if file is None or not any(character.isalnum() for character in quoted):
        raise UnreadableAnswer("a score above 0.5 needs a file and its lines below the heading Evidence.")
    name = _shown_name(file["name"], shown)
    if name is None:
        raise UnreadableAnswer("the file that it quotes below the heading Evidence was not shown.")
    text = shown[name]
    places = [place for place, character in enumerate(text) if not character.isspace()]
    at = "".join(text.split()).find(quoted)
    if at < 0:
        raise UnreadableAnswer("the lines that it quotes below the heading Evidence are not in that file.")
    first, last = places[at], places[at + len(quoted) - 1]
    return QuoteRecord(
        file=name,
        first_line=text.count("\n", 0, first) + 1,
        last_line=text.count("\n", 0, last) + 1,
        text=text[first : last + 1][:MAX_QUOTE],
    )


def _quoted_lines(text: str) -> str:
    """Return what stands between the first two fences, or without any, all of a text."""
    fences = list(_FENCE.finditer(text))
    if not fences:
        return text
    end = next((fence.start() for fence in fences[1:] if not fence["language"].strip()), len(text))
    return text[fences[0].end() : end]


def _shown_name(written: str, shown: Mapping[str, str]) -> str | None:
    """Return the name of a file as it was shown; its last part alone will do if no other file has the same."""
    bare = written.strip().strip("`*\"'").removeprefix("./")
    by_path = [name for name in shown if name.strip('"') == bare]
    by_base = [name for name in shown if name.rpartition("/")[2] == bare]
    names = by_path or by_base
    return names[0] if len(names) == 1 else None
