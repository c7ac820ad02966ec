"""Export finished trials as recordings, so that others replay them without the models.

Of each call the model's reply is kept. Of a program also each whole trial: it is replayed without running the program,
for as long as all that made it is the same. A program that was changed is run again, on the recorded replies.
"""

from collections.abc import Iterator
from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text, write_text
from pcgeval.core.layout import SUBMISSIONS, Trial, recorded_trials_file, recording_file, stage_dir, trials
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
    for team, submission in load_submissions(params.teams, submissions).items():
        for model in params.models:
            folder = stage_dir("raw", model, team)
            records = {trial: read_record(record_path(folder, team, trial)) for trial in trials(params)}
            if again := [f"{trial.letter}{trial.number}" for trial, record in records.items() if not record.is_final]:
                raise FileError(
                    f"{folder}: {', '.join(again)} failed through no fault of {team}. Run `dvc repro` first."
                )
            path = recording_file(model, team)
            write_recording(path, [call for trial in sorted(records) for call in recorded_calls(trial, records[trial])])
            written.append(path)
            if isinstance(submission.work, Program):
                path = recorded_trials_file(model, team)
                write_text(path, "".join(_line(folder, team, trial, record) for trial, record in records.items()))
                written.append(path)
    return written


def recorded_calls(trial: Trial, record: TrialRecord) -> Iterator[LoggedCall]:
    """Yield the calls of a trial as they stand in a recording, the failed ones among them."""
    for turn, call in enumerate(record.calls, start=1):
        reply, reason = (None, call.reason) if isinstance(call, FailedCall) else (call.reply, None)
        yield LoggedCall(key=call.key, reply=reply, reason=reason, letter=trial.letter, trial=trial.number, turn=turn)


def _line(folder: Path, team: str, trial: Trial, record: TrialRecord) -> str:
    response = read_text(record_path(folder, team, trial).with_suffix(".txt"))
    return recorded_line(RecordedTrial(trial.letter, trial.number, response, record))
