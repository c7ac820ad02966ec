"""The record of a trial: the JSON file that the generate stage lays beside each response, and what later stages read.

A record is written after its response and carries the response's hash, so a run that is killed between the two leaves
a trial that is simply done again. A submission cannot write it, but what a flag quotes in it is a stranger's text.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes, to_json, unsynced, write_json, write_text
from pcgeval.core.layout import Trial, trial_file
from pcgeval.core.stage_files import read_stage_file, refusal

FlagKind = Literal["altered-answer", "invented-reply", "other-host", "unseeded-random"]
FLAG_KINDS: tuple[FlagKind, ...] = get_args(FlagKind)
FaultCause = Literal["server", "machine"]  # a model's server, or this machine with its sandbox and disk
MAX_RECORD_BYTES = 512 * 2**20  # eight times what a program may send in a trial; indentation can triple small messages
MAX_DETAILS = 3  # of one kind in one trial: enough to see what the others are like
MAX_DETAIL = 300  # characters
_STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
_Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Message:
    """One turn of a conversation."""

    __pydantic_config__ = _STRICT

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatReply:
    """One reply with its costs; `seconds` is the wall time that the model took when it was really asked.

    Of a judge's replies alone, `cached_tokens` says how many of the prompt's tokens the endpoint had in its cache, and
    `estimated` that it reports no tokens, so that these are estimates.
    """

    __pydantic_config__ = _STRICT

    text: str
    prompt_tokens: _Count
    output_tokens: _Count
    done_reason: str
    seconds: Annotated[float, Field(ge=0)]
    cached_tokens: _Count | None = None
    estimated: bool | None = None


@dataclass(frozen=True)
class Exchange:
    """One answered call of a trial.

    Attributes:
        key: SHA-256 of the request.
        reply: The model's reply.
        messages: What a program sent beyond what it repeats; None for a prompt, whose submission and letter make it.
        repeats: How many messages of the exchange before, its reply included, come first; None for a prompt.
    """

    __pydantic_config__ = _STRICT

    key: str
    reply: ChatReply
    messages: tuple[Message, ...] | None = None
    repeats: _Count | None = None


@dataclass(frozen=True)
class FailedCall:
    """A call that the backend gave up: its place among the trial's calls, from 1, its key, and why."""

    __pydantic_config__ = _STRICT

    turn: int
    key: str
    reason: str


@dataclass(frozen=True)
class Flag:
    """Something that an inspector should look at; what follows from it is the organiser's decision."""

    kind: FlagKind
    detail: str


@dataclass(frozen=True)
class SuppliedBlocks:
    """The blocks of a response, and how many of them its submission supplied: see `generation.summaries`."""

    blocks: int = 0
    supplied: int = 0

    @property
    def share(self) -> float | None:
        """The supplied share, from 0 to 1; None where there is no block."""
        return self.supplied / self.blocks if self.blocks else None

    def __str__(self) -> str:
        """Say it in a clause."""
        return f"{self.supplied} of {self.blocks} blocks stood in the submission's messages before the model named them"


@dataclass(frozen=True)
class TrialUsage:
    """The cost of a trial, and what was noticed in it.

    Attributes:
        calls: How often the model was asked and replied.
        tokens: Prompt and output tokens of all these calls.
        flags: The first few of each kind, in the order in which they were noticed.
        contained: False if a program ran without a sandbox, so that it could have done what nobody noticed.
        supplied: How many of the blocks the submission told the model.
    """

    calls: int
    tokens: int
    flags: tuple[Flag, ...] = ()
    contained: bool = True
    supplied: SuppliedBlocks = SuppliedBlocks()

    def flag(self, kind: FlagKind) -> Flag | None:
        """Return the first flag of a kind, or None."""
        return next((flag for flag in self.flags if flag.kind == kind), None)


@dataclass(frozen=True)
class TrialRecord:
    """One trial; `reason` is None unless it failed, and then the response is empty.

    Attributes:
        cause: Whose fault a failure was, if not the submission's. Such a trial is done again in the next run.
        contained: False if the program ran without a sandbox, because the organiser said so.
    """

    __pydantic_config__ = _STRICT

    fingerprint: str
    seed: int
    model: str
    digest: str
    exchanges: tuple[Exchange, ...]
    response_sha256: str
    reason: str | None
    failures: tuple[FailedCall, ...] = ()
    flags: tuple[Flag, ...] = ()
    contained: bool = True
    cause: FaultCause | None = None

    @property
    def is_final(self) -> bool:
        """Whether the trial is not to be done again."""
        return self.cause is None

    @property
    def tokens(self) -> int:
        """Prompt and output tokens of all calls."""
        return sum(exchange.reply.prompt_tokens + exchange.reply.output_tokens for exchange in self.exchanges)

    @property
    def calls(self) -> tuple[Exchange | FailedCall, ...]:
        """All calls in the order in which they were made, the failed ones among them."""
        calls: list[Exchange | FailedCall] = list(self.exchanges)
        for failure in self.failures:
            calls.insert(failure.turn - 1, failure)
        return tuple(calls)

    @property
    def call_outcomes(self) -> tuple[tuple[str, ChatReply | str], ...]:
        """The key of each call with its reply, or the reason why there is none, in the order of `calls`."""
        return tuple((call.key, call.reason if isinstance(call, FailedCall) else call.reply) for call in self.calls)

    def usage(self, supplied: SuppliedBlocks) -> TrialUsage:
        """Return cost and flags of the trial for later stages; long details and many flags of a kind are cut."""
        seen: Counter[FlagKind] = Counter()
        flags = []
        for flag in self.flags:
            seen[flag.kind] += 1
            if seen[flag.kind] <= MAX_DETAILS:
                flags.append(Flag(flag.kind, flag.detail[:MAX_DETAIL]))
        return TrialUsage(len(self.exchanges), self.tokens, tuple(flags), self.contained, supplied)


@dataclass(frozen=True)
class TrialSummary:
    """A trial as later stages see it: one entry of `data/trials/<model>/<team>.json`.

    Attributes:
        letter: The trial's letter.
        trial: Its number.
        sha256: Of the record; the record has the hash of the response.
        failure: Why it failed; None if it did not.
        usage: What it cost, and its flags.
    """

    __pydantic_config__ = _STRICT

    letter: str
    trial: int
    sha256: str
    failure: str | None
    usage: TrialUsage


_RECORD = TypeAdapter(TrialRecord)
_SUMMARIES = TypeAdapter(tuple[TrialSummary, ...])


def record_path(folder: Path, team: str, trial: Trial) -> Path:
    """Return where the record of a trial lies: beside the official response file."""
    return trial_file(folder, "raw", team, trial).with_suffix(".json")


def record_text(record: TrialRecord) -> str:
    """Return the content of a record's file."""
    return to_json(_RECORD.dump_python(record, exclude_defaults=True)) + "\n"


def write_trial(folder: Path, team: str, trial: Trial, response: str, record: TrialRecord) -> None:
    """Write the response, then the record that vouches for it, each whole or not at all.

    Neither is synced: what a power loss tears fails the check against its hash and is made again from the call log.

    Args:
        folder: The raw folder of the model and team.
        team: Its name is part of the files' names.
        trial: As the team.
        response: The record has its SHA-256.
        record: All else about it.

    Raises:
        FileError: The disk is full or fails; neither file is half-written.
    """
    path = trial_file(folder, "raw", team, trial)
    try:
        with unsynced():
            write_text(path, response)
            write_text(record_path(folder, team, trial), record_text(record))
    except OSError as error:
        raise FileError(
            f"{path}: cannot be written ({error.strerror or error}). Make room on its disk, then run again to go on."
        ) from error


def finished_trial(folder: Path, team: str, trial: Trial, fingerprint: str) -> TrialRecord | None:
    """Return the record of a trial if it is finished and was made from exactly these inputs, else None."""
    try:
        record = read_record(record_path(folder, team, trial))
        response = trial_file(folder, "raw", team, trial).read_bytes()
    except (FileError, OSError):
        return None
    matches = record.fingerprint == fingerprint and record.response_sha256 == sha256_bytes(response)
    return record if matches else None


def read_record(path: Path) -> TrialRecord:
    """Read one record.

    Raises:
        FileError: The file is missing or is not a record.
    """
    try:
        return _RECORD.validate_json(read_stage_file(path, MAX_RECORD_BYTES))
    except ValidationError as error:
        raise refusal(path, error) from error


def write_summaries(path: Path, summaries: Iterable[TrialSummary]) -> None:
    """Write the summaries of a model's and a team's trials."""
    write_json(path, _SUMMARIES.dump_python(tuple(summaries)))


def read_summaries(path: Path) -> dict[Trial, TrialSummary]:
    """Read the summaries of a model's and a team's trials; none where the responses were made elsewhere.

    Raises:
        FileError: The file is unreadable or of another shape.
    """
    if not path.exists():
        return {}
    try:
        summaries = _SUMMARIES.validate_json(read_stage_file(path, MAX_RECORD_BYTES))
    except ValidationError as error:
        raise refusal(path, error) from error
    return {Trial(summary.letter, summary.trial): summary for summary in summaries}
