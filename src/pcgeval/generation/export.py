"""Export finished trials as recordings, so that others replay them without the models.

Of each call the model's reply is kept. Of a program also each whole trial: it is replayed without running the program,
for as long as all that made it is the same. A program that was changed is run again, on the recorded replies.
"""

from collections.abc import Iterator
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text, write_text
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
from pcgeval.core.trials import FailedCall, RecordedTrial, TrialRecord, read_record, record_path, recorded_line
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.submissions.load import Program, load_submissions


def record_competition(params: Params, submissions: Path = SUBMISSIONS) -> list[Path]:
    """Write the recordings of each model and team from the records in data/raw; return the files.

    Raises:
        FileError: A trial has no record, or is to be done again; run the generate stage first.
    """
    written = []
    work = {team: submission.work for team, submission in load_submissions(params.teams, submissions).items()}
    for model in params.models:
        for team in params.teams:
            folder = stage_dir("raw", model, team)
            records = {trial: read_record(record_path(folder, team, trial)) for trial in sorted(trials(params))}
            if again := [f"{trial.letter}{trial.number}" for trial, record in records.items() if not record.is_final]:
                raise FileError(
                    f"{folder}: {', '.join(again)} failed through no fault of {team}. Run `dvc repro` first."
                )
            path = recording_file(model, team)
            write_recording(path, [call for trial, record in records.items() for call in _calls(trial, record)])
            written.append(path)
            if isinstance(work[team], Program):
                path = recorded_trials_file(model, team)
                responses = {trial: read_text(trial_file(folder, "raw", team, trial)) for trial in trials(params)}
                lines = [
                    recorded_line(RecordedTrial(trial.letter, trial.number, response, records[trial]))
                    for trial, response in responses.items()
                ]
                write_text(path, "".join(lines))
                written.append(path)
    return written


def _calls(trial: Trial, record: TrialRecord) -> Iterator[LoggedCall]:
    for turn, call in enumerate(record.calls, start=1):
        reply, reason = (None, call.reason) if isinstance(call, FailedCall) else (call.reply, None)
        yield LoggedCall(
            key=call.key,
            reply=reply,
            reason=reason,
            letter=trial.letter,
            trial=trial.number,
            turn=turn,
        )
