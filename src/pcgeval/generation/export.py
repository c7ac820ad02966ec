"""Export finished trials as recordings, so that others replay them without the models.

The recording of a prompt holds its calls. The recording of a program holds its trials, which are replayed without
running the program as long as it stays the same. A program that was changed runs again, on the recorded replies.
"""

from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_text, sha256_file
from pcgeval.core.layout import SUBMISSIONS, recording_file, stage_dir, trials
from pcgeval.core.params import Params
from pcgeval.core.trials import read_record, record_path
from pcgeval.llm.call_log import LoggedCall, RecordedTrial, trial_calls, write_recording
from pcgeval.submissions.load import Program, load_submissions


def record_competition(params: Params, submissions: Path = SUBMISSIONS) -> list[Path]:
    """Write the recordings of each model and team from the records in data/raw; return the files.

    Raises FileError if a trial has no record or is to be repeated.
    """
    recordings = []
    for team, submission in load_submissions(params.teams, submissions).items():
        for model in params.models:
            lines: list[LoggedCall | RecordedTrial] = []
            for trial in sorted(trials(params)):
                path = record_path(stage_dir("raw", model, team), team, trial)
                record = read_record(path)
                if not record.is_final:
                    raise FileError(f"{path}: failed through no fault of {team}. Run `dvc repro` first.")
                if isinstance(submission.work, Program):
                    response, sha256 = read_text(path.with_suffix(".txt")), sha256_file(path)
                    lines.append(
                        RecordedTrial(
                            letter=trial.letter, trial=trial.number, response=response, record=record, sha256=sha256
                        )
                    )
                else:
                    lines += trial_calls(trial, record)
            recordings.append(recording_file(model, team))
            write_recording(recordings[-1], lines)
    return recordings
