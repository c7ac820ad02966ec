"""Turning finished trials into recordings, so that others replay them without the models."""

from pathlib import Path

from pcgeval.competition.layout import recording_file, step_folder, trials
from pcgeval.competition.params import Params
from pcgeval.llm.recorded import RecordedExchange, write_recording
from pcgeval.programs.records import read_record, record_path


def record_competition(params: Params) -> list[Path]:
    """Write one recording for each model and team from the records in data/raw; return the files.

    Raises:
        FileError: A trial has no record; run the generate stage first.
    """
    written = []
    for model in params.models:
        for team in params.teams:
            path = recording_file(model, team)
            write_recording(path, _exchanges(params, model, team))
            written.append(path)
    return written


def _exchanges(params: Params, model: str, team: str) -> list[RecordedExchange]:
    folder = step_folder("raw", model, team)
    return [
        RecordedExchange(trial.letter, trial.number, turn, exchange.key, exchange.reply)
        for trial in trials(params)
        for turn, exchange in enumerate(read_record(record_path(folder, team, trial)).exchanges, start=1)
    ]
