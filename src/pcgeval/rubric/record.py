"""The record that a judge keeps beside a leaf's grade: the model of `judge_metadata` in grade.json.

One model for all judges: a check fills `check` and `arguments`, a person `author` and `date`, a language model the
other fields. Only fields that were set are written.
"""

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, ValidationError, model_serializer

from pcgeval.formats.trials import ChatReply

MAX_FOREIGN_TEXT, MAX_FOREIGN_LEVELS = 20_000, 100  # characters and levels of another tool's metadata
_MOST = 10**15  # tokens or seconds of a leaf: all of a tree together are still a finite number
_TOKENS = ("prompt_tokens", "output_tokens", "cached_tokens")
_Count = Annotated[int, Field(ge=0, le=_MOST)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class CallUsage(_Record):
    """The cost of calls of one kind."""

    calls: _Count = 0
    prompt_tokens: _Count = 0  # that the model read
    output_tokens: _Count = 0  # that it wrote
    seconds: float = Field(0.0, ge=0, le=_MOST)  # of the model's time; a replayed call has those of its recording
    cached_tokens: _Count = 0  # of the tokens read, those in the endpoint's cache, if it reports them
    estimated: bool = False  # whether some tokens are estimates, because the endpoint reports none

    @classmethod
    def of(cls, reply: ChatReply) -> Self:
        """Return the cost of one call; an endpoint may report any number, which is bounded here."""
        tokens = {name: min(getattr(reply, name) or 0, _MOST) for name in _TOKENS}
        return cls(calls=1, **tokens, seconds=round(min(reply.seconds, _MOST), 3), estimated=bool(reply.estimated))

    def plus(self, other: Self) -> "CallUsage":
        """Return the sum; seconds are rounded to milliseconds, so that the order of adding does not show."""
        sums: dict[str, Any] = {name: value + getattr(other, name) for name, value in self}
        sums |= {"seconds": round(sums["seconds"], 3), "estimated": self.estimated or other.estimated}
        return CallUsage.model_construct(**sums)  # a sum may pass the bounds of what a file may name

    @model_serializer(mode="wrap")
    def _without_unknown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = handler(self)
        return {name: value for name, value in values.items() if value or name not in {"cached_tokens", "estimated"}}


class TokenUsage(_Record):
    """The cost of the three kinds of calls: ranking files, grading, and parsing the answer."""

    rank: CallUsage = CallUsage()
    grade: CallUsage = CallUsage()
    parse: CallUsage = CallUsage()

    @property
    def total(self) -> CallUsage:
        """All calls together."""
        return self.rank.plus(self.grade).plus(self.parse)

    @property
    def tokens(self) -> int:
        """The tokens that the model read and wrote."""
        return self.total.prompt_tokens + self.total.output_tokens

    def plus(self, other: Self) -> "TokenUsage":
        """Return the sum, kind by kind."""
        return TokenUsage(**{kind: usage.plus(getattr(other, kind)) for kind, usage in self})


class QuoteRecord(_Record):
    """Lines that an answer quotes as evidence, as they stand in the file where they were found; a long text is cut.

    The status is `found` in the named file, `elsewhere` in another that was shown, or `missing`; `counts` says whether
    that file can show what the criterion asks for: code for Code Development, the log for Code Execution, results of
    the run for Result Analysis.
    """

    status: Literal["found", "elsewhere", "missing"]
    counts: bool = False
    file: str = ""
    first_line: int | None = None
    last_line: int | None = None
    text: str = ""

    @property
    def is_evidence(self) -> bool:
        """Whether the lines exist where they can show something."""
        return self.status != "missing" and self.counts

    @property
    def words(self) -> str:
        """The place and what it is worth, in words."""
        if self.status == "missing":
            return f"the quoted lines are in no file that was shown{f' (named: {self.file})' if self.file else ''}"
        lines = f"{self.first_line}" if self.first_line == self.last_line else f"{self.first_line} to {self.last_line}"
        other = "" if self.status == "found" else ", which the answer did not name"
        worth = "" if self.counts else "; this file is no evidence for such a criterion"
        return f"{self.file}, line{'s' * (self.first_line != self.last_line)} {lines}{other}{worth}"


class VoteRecord(_Record):
    """One grading of a leaf by a model: its answer, what that quotes as evidence, and the reason if it has no score."""

    score: float | None
    explanation: str = ""
    reason: str | None = None
    answer: str = ""
    quote: QuoteRecord | None = None


class RefusedFile(_Record):
    """A file or folder of a submission that no judge is shown, and why."""

    name: str
    reason: str


class FilesRecord(_Record):
    """The files of a submission that a model could choose from, those it was shown, and notes about both."""

    offered: tuple[str, ...] = ()
    num_offered: int = 0
    picked: tuple[str, ...] = ()
    notes: dict[str, str] = {}
    refused: tuple[RefusedFile, ...] = ()
    how: str = ""

    @property
    def all_notes(self) -> tuple[str, ...]:
        """The notes as lines: how files were chosen, which were cut, and which were not looked at."""
        cuts = [f"{name}: {note}" for name, note in self.notes.items()]
        refused = [f"not looked at: {file.name}, {file.reason}" for file in self.refused]
        return tuple(filter(None, (self.how, *cuts, *refused)))


class ReproductionRecord(_Record):
    """The run of reproduce.sh before a grading; `exit_code` is None if it was stopped or not started, for `reason`."""

    exit_code: int | None
    reason: str | None
    seconds: float = Field(ge=0)

    @property
    def words(self) -> str:
        """The run in a line."""
        how = "was stopped or not started" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        return f"reproduce.sh {how} after {self.seconds:g} s{f' ({self.reason})' if self.reason else ''}"


class JudgeRecord(_Record):
    """The record of one leaf."""

    check: str | None = None  # the check that decided the leaf
    arguments: dict[str, bool | int | float | str] = {}  # of the check
    author: str | None = None  # the person who graded
    date: str | None = None
    files: FilesRecord = FilesRecord()
    votes: tuple[VoteRecord, ...] = ()
    agreement: float | None = None  # of the votes, from 0 to 1
    usage: TokenUsage = TokenUsage()
    reason: str | None = None  # why there is no score

    @property
    def quotes(self) -> tuple[QuoteRecord, ...]:
        """What the votes quote as evidence, each quotation once; empty where none was asked for."""
        return tuple(dict.fromkeys(vote.quote for vote in self.votes if vote.quote is not None))

    @property
    def check_call(self) -> str:
        """The check as it would be called, `name(argument=value)`; empty if no check decided."""
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in self.arguments.items()}
        call = ", ".join(f"{name}={text}" for name, text in texts.items())
        return "" if self.check is None else f"{self.check}({call})"


def _json_value(value: Any, levels: int = MAX_FOREIGN_LEVELS) -> Any:
    """Return a value as JSON has it: Python reads and writes NaN and Infinity too, which become texts."""
    if not levels:
        raise ValueError(f"is nested deeper than {MAX_FOREIGN_LEVELS} levels")
    if isinstance(value, Mapping):
        return {str(key): _json_value(item, levels - 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_value(item, levels - 1) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def metadata_of(value: Any) -> Any:
    """Return a leaf's `judge_metadata` from a file: a `JudgeRecord`, or another tool's as JSON has it."""
    if isinstance(value, Mapping) and value and value.keys() <= JudgeRecord.model_fields.keys():
        with suppress(ValidationError):
            return JudgeRecord.model_validate(value)
    return value if isinstance(value, JudgeRecord) else _json_value(value)


def record_of(metadata: Any) -> JudgeRecord:
    """Return a leaf's `judge_metadata` as a record; an empty one for the metadata of another tool, or none."""
    return metadata if isinstance(metadata, JudgeRecord) else JudgeRecord()


def foreign_text(metadata: Any) -> str:
    """Return the metadata of another tool as JSON, cut if long; empty for a record of ours, or none."""
    if metadata is None or isinstance(metadata, JudgeRecord):
        return ""
    text = metadata if isinstance(metadata, str) else json.dumps(metadata, ensure_ascii=False)
    return text[:MAX_FOREIGN_TEXT]
