"""What is known about one trial: what it is asked to do, what it came to, and the record that lies beside its response.

A record is written after its response and carries the response's hash, so a run that is killed between the two leaves
a trial that is simply done again.
"""

import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from pcgeval.core.conduct import Flag
from pcgeval.core.files import FileError, read_json, sha256_bytes, sync_folder, to_json, write_text
from pcgeval.core.layout import Trial, trial_file
from pcgeval.core.params import Model
from pcgeval.llm.protocol import Backend, ChatReply, ChatRequest, Message

TEMPERATURE = 1  # the competition's rule; params may set another value for experiments

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Exchange:
    """One answered call: the key of the request, the reply, and for a program the conversation that it sent."""

    key: str
    reply: ChatReply
    messages: tuple[Message, ...] | None = None  # None for a prompt: the submission and the letter make it

    @property
    def conversation(self) -> tuple[Message, ...]:
        """What was said up to and with the reply."""
        return (*(self.messages or ()), Message("assistant", self.reply.text))


@dataclass(frozen=True)
class FailedCall:
    """A call that the backend gave up: its place among the trial's calls, from 1, its key, and why."""

    turn: int
    key: str
    reason: str


@dataclass(frozen=True)
class TrialCall:
    """What a program is run for: one trial with one model, and where its calls go."""

    team: str
    trial: Trial
    model: Model
    digest: str
    seed: int
    backend: Backend

    def request(self, messages: tuple[Message, ...]) -> ChatRequest:
        """Return the request of a conversation, with the options that the competition and not the team decides."""
        return chat_request(self.model, self.digest, self.seed, messages)


def chat_request(model: Model, digest: str, seed: int, messages: tuple[Message, ...]) -> ChatRequest:
    """Return the request of a conversation, as every trial of this model and seed makes it."""
    return ChatRequest(model.name, digest, messages, {"temperature": TEMPERATURE, **model.options, "seed": seed})


@dataclass(frozen=True)
class TrialRun:
    """What one trial came to; `reason` is None unless it failed, and then the response is empty."""

    response: str
    exchanges: tuple[Exchange, ...]
    flags: tuple[Flag, ...]
    reason: str | None


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial; `reason` is None unless it failed, and then the response is empty."""

    fingerprint: str
    seed: int
    model: str
    digest: str
    exchanges: tuple[Exchange, ...]
    response_sha256: str
    reason: str | None
    failures: tuple[FailedCall, ...] = ()
    flags: tuple[Flag, ...] = ()
    contained: bool = True  # False: the program ran without a sandbox, because the organiser said so

    @property
    def tokens(self) -> int:
        """Prompt and output tokens of all calls."""
        return sum(each.reply.prompt_tokens + each.reply.output_tokens for each in self.exchanges)


def whole_text(text: str) -> str:
    """Return the text with U+FFFD for lone surrogates, which no file can hold: so all that is kept is what was used."""
    return _LONE_SURROGATE.sub("\ufffd", text)


def record_path(folder: Path, team: str, trial: Trial) -> Path:
    """Return where the record of a trial lies: beside the official response file."""
    return trial_file(folder, "raw", team, trial).with_suffix(".json")


def write_trial(
    folder: Path, team: str, trial: Trial, response: str, record: TrialRecord, *, durable: bool = True
) -> None:
    """Write the response, then the record that vouches for it, each whole or not at all.

    Args:
        folder: The raw folder of the model and team.
        team: The team.
        trial: The trial.
        response: The response; the record has its SHA-256.
        record: The record.
        durable: Wait until both are on the disk, because the journal that holds the paid calls is removed next.
            A replay need not: what a power loss tears fails the check against its hash and is replayed again.

    Raises:
        FileError: The disk is full or fails; neither file is half-written.
    """
    path = trial_file(folder, "raw", team, trial)
    write = write_text if durable else _write_soon
    try:
        write(path, response)
        write(record_path(folder, team, trial), to_json(record_values(record)) + "\n")
        if durable:
            sync_folder(path.parent)
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
        FileError: The file is missing or no record.
    """
    return parse_record(read_json(path), str(path))


def parse_record(values: Any, place: str) -> TrialRecord:
    """Return the record that JSON values hold; `place` is where they come from.

    Raises:
        FileError: They are no record.
    """
    try:
        parts = {
            "exchanges": _exchanges(values["exchanges"]),
            "failures": tuple(FailedCall(**each) for each in values.get("failures", ())),
            "flags": tuple(Flag(**each) for each in values.get("flags", ())),
        }
        return TrialRecord(**{**values, **parts})
    except (TypeError, KeyError, AttributeError) as error:
        raise FileError(f"{place}: not the record of a trial ({error}). Delete it and run `dvc repro`.") from error


def _write_soon(path: Path, text: str) -> None:
    """Write a file whole or not at all, but let the system choose when it reaches the disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(whole_text(text).encode("utf-8"))
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def record_values(record: TrialRecord) -> dict[str, Any]:
    """Return a record's JSON; what most trials do not have is left out."""
    values = dict(vars(record))  # not asdict, which copies ten times as long
    values["exchanges"] = []
    before: tuple[Message, ...] = ()
    for exchange in record.exchanges:
        entry: dict[str, Any] = {"key": exchange.key, "reply": vars(exchange.reply)}
        if exchange.messages is not None:
            # a program mostly sends what was said so far and a little more: only that little is written
            same = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, exchange.messages, strict=False))))
            entry |= {"repeats": same, "messages": [vars(message) for message in exchange.messages[same:]]}
        values["exchanges"].append(entry)
        before = exchange.conversation
    values["failures"] = [vars(each) for each in record.failures]
    values["flags"] = [vars(each) for each in record.flags]
    usual = {"failures": [], "flags": [], "contained": True}
    return {name: value for name, value in values.items() if name not in usual or value != usual[name]}


def _exchanges(entries: list[dict[str, Any]]) -> tuple[Exchange, ...]:
    exchanges: list[Exchange] = []
    before: tuple[Message, ...] = ()
    for entry in entries:
        messages = None
        if "messages" in entry:
            messages = (*before[: entry["repeats"]], *(Message(**each) for each in entry["messages"]))
        exchanges.append(Exchange(entry["key"], ChatReply(**entry["reply"]), messages))
        before = exchanges[-1].conversation
    return tuple(exchanges)
