"""Turning finished trials into recordings, so that others replay them without the models.

Of each call the model's reply is kept. Of a program also each whole trial: it is replayed without running the program,
for as long as all that made it is the same. A program that was changed is run again, on the recorded replies.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.files import FileError, read_json_lines, read_text, sha256_bytes, to_json, write_text
from pcgeval.core.layout import (
    SUBMISSIONS,
    Trial,
    recorded_trials_file,
    recording_file,
    stage_dir,
    trial_file,
    trials,
)
from pcgeval.core.params import Params
from pcgeval.generation.records import (
    Exchange,
    FailedCall,
    TrialRecord,
    parse_record,
    read_record,
    record_path,
    record_values,
)
from pcgeval.llm.recorded import RecordedExchange, write_recording
from pcgeval.submissions.load import Program, load_submissions


@dataclass(frozen=True)
class RecordedTrial:
    """One finished trial of a program."""

    trial: Trial
    response: str
    record: TrialRecord


def record_competition(params: Params, submissions: Path = SUBMISSIONS) -> list[Path]:
    """Write the recordings of each model and team from the records in data/raw; return the files.

    Raises:
        FileError: A trial has no record; run the generate stage first.
    """
    written = []
    work = {team: each.work for team, each in load_submissions(params.teams, submissions).items()}
    for model in params.models:
        for team in params.teams:
            path = recording_file(model, team)
            write_recording(path, _exchanges(params, model, team))
            written.append(path)
            if isinstance(work[team], Program):
                path = recorded_trials_file(model, team)
                write_text(path, "".join(_lines(params, model, team)))
                written.append(path)
    return written


def read_recorded_trials(path: Path) -> dict[Trial, RecordedTrial]:
    """Read a program's recorded trials; none if there is no such file.

    Raises:
        FileError: A line is no finished trial.
    """
    if not path.is_file():
        return {}
    recorded = (_parsed(line, f"{path}:{number}") for number, line in enumerate(read_json_lines(path), start=1))
    return {each.trial: each for each in recorded}


def _exchanges(params: Params, model: str, team: str) -> Iterator[RecordedExchange]:
    folder = stage_dir("raw", model, team)
    for trial in trials(params):
        record = read_record(record_path(folder, team, trial))
        calls: list[Exchange | FailedCall] = list(record.exchanges)
        for failure in record.failures:
            calls.insert(failure.turn - 1, failure)
        for turn, call in enumerate(calls, start=1):
            if isinstance(call, FailedCall):
                yield RecordedExchange(trial.letter, trial.number, turn, call.key, None, call.reason)
            else:
                yield RecordedExchange(trial.letter, trial.number, turn, call.key, call.reply)


def _lines(params: Params, model: str, team: str) -> Iterator[str]:
    folder = stage_dir("raw", model, team)
    for trial in trials(params):
        record = read_record(record_path(folder, team, trial))
        response = read_text(trial_file(folder, "raw", team, trial))
        values = {
            "letter": trial.letter,
            "trial": trial.number,
            "response": response,
            "record": record_values(record),
        }
        yield to_json(values, indent=None) + "\n"


def _parsed(values: object, place: str) -> RecordedTrial:
    match values:
        case {"letter": str(letter), "trial": int(number), "response": str(response), "record": dict(record)}:
            recorded = RecordedTrial(Trial(letter, number), response, parse_record(record, place))
            if recorded.record.response_sha256 == sha256_bytes(response.encode("utf-8", errors="replace")):
                return recorded
    raise FileError(f"{place}: no recorded trial, or its response is another one. Restore the file from git.")
