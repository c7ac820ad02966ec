"""The record of a trial beside its response: what made it, what was said, what it cost, and why it failed if it did.

A record is written after its response and carries the response's hash, so a run that is killed between the two leaves
a trial that is simply asked again.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcgeval.competition.layout import Trial, trial_file
from pcgeval.files import FileError, read_json, sha256_bytes, write_json, write_text
from pcgeval.llm.protocol import ChatReply


@dataclass(frozen=True)
class Exchange:
    """One call: the key of the request and the reply."""

    key: str
    reply: ChatReply


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

    @property
    def tokens(self) -> int:
        """Prompt and output tokens of all calls."""
        return sum(each.reply.prompt_tokens + each.reply.output_tokens for each in self.exchanges)


def record_path(folder: Path, team: str, trial: Trial) -> Path:
    """Return where the record of a trial lies: beside the official response file."""
    return trial_file(folder, "raw", team, trial).with_suffix(".json")


def write_trial(folder: Path, team: str, trial: Trial, response: str, record: TrialRecord) -> None:
    """Write the response, then the record that vouches for it."""
    write_text(trial_file(folder, "raw", team, trial), response)
    write_json(record_path(folder, team, trial), asdict(record))


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
    values: dict[str, Any] = read_json(path)
    try:
        exchanges = tuple(Exchange(each["key"], ChatReply(**each["reply"])) for each in values["exchanges"])
        return TrialRecord(**{**values, "exchanges": exchanges})
    except (TypeError, KeyError) as error:
        raise FileError(f"{path}: not the record of a trial ({error}). Delete it and run `dvc repro`.") from error
