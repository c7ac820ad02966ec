"""Export finished trials as recordings, so that others replay them without the models.

The recording of a prompt holds its calls. The recording of a program holds its trials, which are replayed without
running the program as long as it stays the same. A program that was changed runs again, on the recorded replies.

A failed call of a live model is exported only if the call log or the earlier recording holds it; the neutral calls that
prove it come with it.
"""

from pathlib import Path

from pcgeval.core.errors import FileError
from pcgeval.core.untrusted import read_text
from pcgeval.formats.layout import SUBMISSIONS, recording_file, stage_dir
from pcgeval.formats.params import Params
from pcgeval.formats.trials import read_record, record_path
from pcgeval.llm.call_log import (
    NEUTRAL,
    LoggedCall,
    RecordedTrial,
    known_calls,
    proofs,
    read_recording,
    trial_calls,
    unproved_calls,
    write_recording,
)
from pcgeval.submissions.load import Program, load_submissions


def record_competition(params: Params, submissions: Path = SUBMISSIONS) -> list[Path]:
    """Write the recordings of each model and team from the records in data/raw; return the files.

    Raises FileError if a trial has no record or is to be repeated, or if nothing proves its failed call.
    """
    recordings = []
    for team, submission in load_submissions(params.teams, submissions).items():
        for model, settings in params.models.items():
            recording, folder = recording_file(model, team), stage_dir("raw", model, team)
            records = {trial: read_record(record_path(folder, team, trial)) for trial in sorted(params.trials())}
            known: list[LoggedCall] = []
            if any(record.failed_calls for record in records.values()):
                earlier = read_recording(recording) if recording.is_file() else ()
                known = [*known_calls(settings, Path()), *earlier]
            lines: list[LoggedCall | RecordedTrial] = []
            for trial, record in records.items():
                path = record_path(folder, team, trial)
                if record.is_open:
                    raise FileError(f"{path}: failed through no fault of {team}. Run `dvc repro` first.")
                if settings.backend != "recorded" and unproved_calls(record, known):
                    raise FileError(f"{path}: no call log holds its failed call. Export where the competition ran.")
                if isinstance(submission.work, Program):
                    lines.append(
                        RecordedTrial(
                            letter=trial.letter,
                            trial=trial.number,
                            response=read_text(path.with_suffix(".txt"), follow_link=True),
                            record=record,
                            sha256=record.sha256,
                        )
                    )
                else:
                    lines += trial_calls(trial, record)
            lines += [call for call in proofs(records.values(), known) if call.kind == NEUTRAL]
            write_recording(recording, lines)
            recordings.append(recording)
    return recordings
