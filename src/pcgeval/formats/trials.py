"""The records of trials, which the stage generate writes beside the responses, and their summaries for later stages.

A record is written after its response and has the response's hash, so the next run repeats a trial that was killed
between the two.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Protocol, get_args

from pydantic import ConfigDict, Field, TypeAdapter, with_config

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes, sha256_text, to_json, write_json, write_text
from pcgeval.formats.failures import Failure
from pcgeval.formats.layout import Trial, trial_file
from pcgeval.formats.stages import read_stage_file

FlagKind = Literal["altered-answer", "invented-reply", "other-host", "unrepeatable"]
FLAG_KINDS: tuple[FlagKind, ...] = get_args(FlagKind)
Blame = Literal["reply", "request", "settings", "server", "undecided"]  # see `llm.blame`
MAX_RECORD_BYTES = 512 * 2**20  # eight times what a program may send in a trial; indentation can triple small messages
MAX_DETAILS, MAX_DETAIL = 3, 300  # flags of one kind in a summary, and the characters of each
MAX_COUNT = 10**1000  # Python prints no sum of over 4 300 digits
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)
_Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
_Seconds = Annotated[float, Field(ge=0, le=10**9)]


@with_config(_STRICT)
@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@with_config(_STRICT)
@dataclass(frozen=True)
class ChatReply:
    """One reply with its costs.

    Attributes:
        done_reason: Why the reply ended, such as `stop` or `length`.
        seconds: The wall time of the call when it was really made.
        cached_tokens: The prompt's tokens that the endpoint had in its cache; of a judge's reply only.
        estimated: True where the endpoint reports no tokens; of a judge's reply only.
        model: The name by which the answering model calls itself, if the server says it.
        fingerprint: The server's `system_fingerprint`, if it says one.
        thoughts: True where the reply holds thoughts that `text` leaves out.
    """

    text: str
    prompt_tokens: _Count
    output_tokens: _Count
    done_reason: str
    seconds: Annotated[float, Field(ge=0)]
    cached_tokens: _Count | None = None
    estimated: bool | None = None
    model: str | None = None
    fingerprint: str | None = None
    thoughts: bool | None = None

    @property
    def answered_by(self) -> str:
        """The answering model as a text: its name, and its fingerprint in brackets; empty if the server says none."""
        return " ".join(filter(None, (self.model, self.fingerprint and f"({self.fingerprint})")))


@with_config(_STRICT)
@dataclass(frozen=True)
class Exchange:
    """One answered call of a trial."""

    key: str  # SHA-256 of the request
    reply: ChatReply
    messages: tuple[Message, ...] | None = None  # a program's new ones; a prompt's follow from submission and letter
    repeats: _Count | None = None  # how many messages of the exchange before, its reply included, come first
    at: _Seconds | None = None  # on the trial's clock, when a program was given the reply


@with_config(_STRICT)
@dataclass(frozen=True)
class Attempt:
    """One request that got no reply, and the neutral call after it.

    Attributes:
        blame: Whose fault it is by the table of blame alone.
        status: The HTTP status; None where no whole answer came.
        words: What the server said, on one line.
        seconds: The wall time of the request.
        neutral: The reply to the neutral call that followed; None if none was asked.
        field: The setting that the server refused, by its name in params.yaml.
    """

    blame: Blame
    status: int | None
    words: str
    seconds: Annotated[float, Field(ge=0)]
    neutral: ChatReply | None = None
    field: str | None = None


@with_config(_STRICT)
@dataclass(frozen=True)
class FailedCall:
    """A call of a trial without a reply, with every attempt to get one."""

    turn: Annotated[int, Field(ge=0, le=2**31)]  # among the trial's calls, from 1
    key: str
    failure: Failure
    attempts: tuple[Attempt, ...] = ()


class Course(Protocol):
    """What a repetition of a program's trial takes over from it: the order and the times of its calls."""

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """The answered calls."""

    @property
    def late(self) -> float | None:
        """When, on the trial's clock, the first call began that came too late; None if none did."""


@dataclass(frozen=True)
class Flag:
    """A fact for the organisers, who decide what follows from it; `detail` may quote a stranger."""

    kind: FlagKind
    detail: str


@dataclass(frozen=True)
class SuppliedBlocks:
    """The blocks of a response, and how many of them its submission supplied; see `generation.summaries`."""

    blocks: int = 0
    supplied: int = 0
    whole: bool = False  # the submission supplied all calls of the response in their order

    @property
    def share(self) -> float | None:
        """The supplied share, from 0 to 1; None without blocks."""
        return self.supplied / self.blocks if self.blocks else None

    def __str__(self) -> str:
        """Return a clause for people."""
        where = "in the submission's messages before the model named them"
        whole = "; the level stood there whole, call for call" if self.whole else ""
        return f"{self.supplied} of {self.blocks} blocks stood {where}{whole}"


def best_levels(levels: Iterable[tuple[str, float, bool]]) -> tuple[int, int]:
    """Return how many letters have a level that scores, and of how many the best one is supplied whole.

    Args:
        levels: The letter of each level, its stability times similarity, and whether it is supplied whole.
    """
    best: dict[str, tuple[float, bool]] = {}
    for letter, likeness, is_supplied in levels:
        if likeness > best.get(letter, (0.0, False))[0]:
            best[letter] = (likeness, is_supplied)
    return len(best), sum(is_supplied for _, is_supplied in best.values())


@dataclass(frozen=True)
class TrialUsage:
    """The cost, the answering models and the flags of a trial."""

    calls: int  # replies
    tokens: int  # prompt and output tokens of all calls
    flags: tuple[Flag, ...] = ()  # the first few of each kind
    contained: bool = True  # False if a program ran without a sandbox, where nobody sees what it does
    supplied: SuppliedBlocks = SuppliedBlocks()
    answered_by: tuple[str, ...] = ()  # how the answering models call themselves, with their fingerprints

    def flag(self, kind: FlagKind) -> Flag | None:
        """Return the first flag of a kind, or None."""
        return next((flag for flag in self.flags if flag.kind == kind), None)


@with_config(_STRICT)
@dataclass(frozen=True)
class TrialRecord:
    """One trial; a failed one has an empty response."""

    fingerprint: str
    seed: int
    model: str
    digest: str
    exchanges: tuple[Exchange, ...]
    response_sha256: str
    failure: Failure | None = None
    failed_calls: tuple[FailedCall, ...] = ()
    flags: tuple[Flag, ...] = ()
    contained: bool = True  # False if the program ran without a sandbox, as the organiser allowed
    late: _Seconds | None = None  # on the trial's clock, when a program's call was refused because its time was up

    @property
    def is_final(self) -> bool:
        """Whether no later run does the trial again."""
        return self.failure is None or self.failure.type.is_final

    @property
    def is_open(self) -> bool:
        """Whether the trial failed through no fault of the submission, so that it is no result of the team."""
        return self.failure is not None and self.failure.type.owner != "submission"

    @property
    def sha256(self) -> str:
        """The SHA-256 of the record's file without foreign words, which differ from machine to machine."""
        failure = self.failure and replace(self.failure, detail="")
        return sha256_text(record_text(replace(self, failure=failure)))

    @property
    def tokens(self) -> int:
        """Prompt and output tokens of all calls."""
        return sum(exchange.reply.prompt_tokens + exchange.reply.output_tokens for exchange in self.exchanges)

    @property
    def answered_by(self) -> tuple[str, ...]:
        """How the answering models call themselves, with their fingerprints."""
        return tuple(sorted({exchange.reply.answered_by for exchange in self.exchanges} - {""}))

    @property
    def calls(self) -> tuple[Exchange | FailedCall, ...]:
        """All calls in order, with the failed ones."""
        calls: list[Exchange | FailedCall] = list(self.exchanges)
        for call in self.failed_calls:
            calls.insert(call.turn - 1, call)
        return tuple(calls)

    @property
    def call_outcomes(self) -> tuple[tuple[str, ChatReply | Failure], ...]:
        """The key of each call with its reply or the failure in its place."""
        return tuple((call.key, call.failure if isinstance(call, FailedCall) else call.reply) for call in self.calls)

    def usage(self, supplied: SuppliedBlocks) -> TrialUsage:
        """Return cost and flags of the trial for later stages."""
        flags: list[Flag] = []
        for flag in self.flags:
            if sum(other.kind == flag.kind for other in flags) < MAX_DETAILS:
                flags.append(Flag(flag.kind, flag.detail[:MAX_DETAIL]))
        return TrialUsage(len(self.exchanges), self.tokens, tuple(flags), self.contained, supplied, self.answered_by)


@with_config(_STRICT)
@dataclass(frozen=True)
class TrialSummary:
    """A trial as later stages see it: one entry of `data/trials/<model>/<team>.json`.

    Attributes:
        sha256: `TrialRecord.sha256`, which covers the hash of the response.
        failure: Why the trial has no response.
        ending: Why its last reply may hold no level, such as that it was cut off; the stage extract reports it if it
            finds no call.
    """

    letter: str
    trial: int
    sha256: str
    failure: Failure | None
    usage: TrialUsage
    ending: Failure | None = None


_RECORD = TypeAdapter(TrialRecord)
_SUMMARIES = TypeAdapter(tuple[TrialSummary, ...], config=ConfigDict(defer_build=True))


def record_path(folder: Path, team: str, trial: Trial) -> Path:
    """Return where the record of a trial lies: beside the official response file."""
    return trial_file(folder, "raw", team, trial).with_suffix(".json")


def record_text(record: TrialRecord) -> str:
    """Return the content of a record's file."""
    return to_json(_RECORD.dump_python(record, exclude_defaults=True)) + "\n"


def write_trial(folder: Path, team: str, trial: Trial, response: str, record: TrialRecord) -> None:
    """Write the response, then its record, into the raw folder of a model and a team, each whole or not at all."""
    write_text(trial_file(folder, "raw", team, trial), response)
    write_text(record_path(folder, team, trial), record_text(record))


def finished_trial(folder: Path, team: str, trial: Trial, fingerprint: str) -> TrialRecord | None:
    """Return the record of a trial if it is finished and has this fingerprint of its inputs, else None."""
    try:
        record = read_record(record_path(folder, team, trial))
        response = trial_file(folder, "raw", team, trial).read_bytes()
    except (FileError, OSError):
        return None
    matches = record.fingerprint == fingerprint and record.response_sha256 == sha256_bytes(response)
    return record if matches else None


def read_record(path: Path) -> TrialRecord:
    """Read one record; raise FileError if the file is missing or no record."""
    return read_stage_file(path, _RECORD.validate_json, MAX_RECORD_BYTES)


def write_summaries(path: Path, summaries: Iterable[TrialSummary]) -> None:
    """Write the summaries of a model's and a team's trials."""
    write_json(path, _SUMMARIES.dump_python(tuple(summaries)))


def read_summaries(path: Path) -> dict[Trial, TrialSummary]:
    """Read the summaries of a model's and a team's trials; none where the responses were made elsewhere."""
    if not path.exists():
        return {}
    summaries = read_stage_file(path, _SUMMARIES.validate_json, MAX_RECORD_BYTES)
    return {Trial(summary.letter, summary.trial): summary for summary in summaries}
