"""What a judge noted beside a leaf's grade, read with care: a grade may come from another version or another tool."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pcgeval.rubric.grades import TokenUsage, usage_of

LONGEST = 20_000  # characters of one text
MOST = 200  # items of one list


@dataclass(frozen=True)
class NotedVote:
    """One of a model's gradings of a leaf: its whole answer, and why there is no score if there is none."""

    score: float | None
    answer: str
    explanation: str
    reason: str


@dataclass(frozen=True)
class Correction:
    """What a person said of a leaf before they changed their mind."""

    score: float | None
    author: str
    date: str
    reason: str


@dataclass(frozen=True)
class JudgeRecord:
    """A leaf's `judge_metadata` as far as it is understood; what is not there is empty.

    Attributes:
        check: The check that decided, with its arguments.
        author: The person who graded.
        date: When they did.
        history: Their earlier grades of the leaf, the oldest first.
        picked: The files that the model was shown, in part or whole.
        offered: How many it could choose from.
        file_notes: What is to be said about these files, such as that one was cut.
        votes: The model's gradings, with its whole answers: Expectations, Reality, Score.
        agreement: How far the votes agree, from 0 to 1.
        usage: What its calls cost.
        other: Metadata of another form, as JSON.
    """

    check: str = ""
    author: str = ""
    date: str = ""
    history: tuple[Correction, ...] = ()
    picked: tuple[str, ...] = ()
    offered: int = 0
    file_notes: tuple[str, ...] = ()
    votes: tuple[NotedVote, ...] = ()
    agreement: float | None = None
    usage: TokenUsage = field(default_factory=TokenUsage)
    other: str = ""


def judge_record(metadata: Any) -> JudgeRecord:
    """Read a leaf's `judge_metadata`; whatever it is, this gives a record."""
    if metadata is None:
        return JudgeRecord()
    values = _mapping(metadata)
    files = _mapping(values.get("files"))
    if not files and not values.keys() & {"check", "author"}:
        return JudgeRecord(other=_text(metadata))
    return JudgeRecord(
        check=_check(values),
        author=_text(values.get("author")),
        date=_text(values.get("date")),
        history=tuple(_correction(each) for each in _items(values.get("history"))),
        picked=tuple(_text(each) for each in _items(files.get("picked"))),
        offered=int(_number(files.get("num_offered")) or 0),
        file_notes=_file_notes(files),
        votes=tuple(_vote(each) for each in _items(values.get("votes"))),
        agreement=_number(values.get("agreement")),
        usage=usage_of(metadata),
    )


def _check(values: Mapping[str, Any]) -> str:
    if "check" not in values:
        return ""
    arguments = (f"{name}={_text(value)}" for name, value in _mapping(values.get("arguments")).items())
    return f"{_text(values['check'])}({', '.join(arguments)})"


def _correction(value: Any) -> Correction:
    entry = _mapping(value)
    return Correction(
        _number(entry.get("score")), _text(entry.get("author")), _text(entry.get("date")), _text(entry.get("reason"))
    )


def _vote(value: Any) -> NotedVote:
    vote = _mapping(value)
    return NotedVote(
        _number(vote.get("score")),
        _text(vote.get("answer")),
        _text(vote.get("explanation")),
        _text(vote.get("reason")),
    )


def _file_notes(files: Mapping[str, Any]) -> tuple[str, ...]:
    found = [f"{name}: {_text(note)}" for name, note in _mapping(files.get("notes")).items()]
    found += [
        f"not looked at: {', '.join(_text(each) for each in _mapping(refused).values())}"
        for refused in _items(files.get("refused"))
    ]
    how = _text(files.get("how"))
    return (*([how] if how else []), *found[:MOST])


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _items(value: Any) -> list[Any]:
    return value[:MOST] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1e9 else None


def _text(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[:LONGEST]
