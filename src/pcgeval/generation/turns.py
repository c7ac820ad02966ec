"""Do the trials of all teams with one model in turn, letter by letter, before DVC runs the stage of each team.

A server that is slow for an hour then costs every team alike, and a run that is stopped has results of all teams. The
stages find the finished trials and ask nothing again.
"""

from contextlib import suppress
from pathlib import Path

from pcgeval.core.errors import PcgevalError
from pcgeval.core.layout import SUBMISSIONS, recording_file, stage_dir, trials
from pcgeval.core.params import Params
from pcgeval.core.trials import read_record, record_path
from pcgeval.generation.environments import InstallError, lock_requirements
from pcgeval.generation.generate import FAULTS_IN_A_ROW, Report, TrialFaultError, generate_stage
from pcgeval.generation.tasks import present_fingerprint
from pcgeval.llm.backends import open_backend
from pcgeval.llm.protocol import LlmError
from pcgeval.submissions.load import Program, Submission, load_submissions
from pcgeval.submissions.requirements import RequirementsError


def generate_in_turn(
    params: Params, model: str, report: Report, *, trust_programs: bool = False, scheduler: str | None = None
) -> list[PcgevalError]:
    """Do every trial that is not yet finished, one letter of each team after the other.

    Args:
        params: The competition.
        model: The model's key in params.
        report: Called after each trial, finished before or just now.
        trust_programs: Run a program without a sandbox where there is none.
        scheduler: The address of a Dask cluster that does the trials.

    Returns:
        What went wrong. A team whose trials cannot be done is left out; its stage says so again. After three teams
        whose trials failed through the server, one after the other, or where it cannot be asked at all, nothing else
        is begun.

    Raises:
        LlmError: The model cannot be asked.
        SubmissionError: A team's submission cannot be read.
    """
    backend = open_backend(params.models[model], recording_file(model, params.teams[0]))
    submissions = load_submissions(params.teams)
    errors: list[PcgevalError] = []
    faults_in_a_row = 0
    for team, submission in submissions.items():
        if isinstance(submission.work, Program):
            with suppress(RequirementsError, InstallError):  # its trials fail with the reason, or its stage says so
                lock_requirements(SUBMISSIONS / team)
    for letter in params.competition.characters:
        one_letter = params.competition.model_copy(update={"characters": letter})
        part = params.model_copy(update={"competition": one_letter})
        for team, submission in list(submissions.items()):
            folder = stage_dir("raw", model, team)
            try:
                if _is_done(part, model, submission, folder, report):
                    continue
                generate_stage(
                    part,
                    model,
                    submission,
                    backend,
                    folder,
                    report,
                    trust_programs=trust_programs,
                    keep_others=True,
                    scheduler=scheduler,
                )
                faults_in_a_row = 0
            except TrialFaultError as error:
                errors.append(error)
                faults_in_a_row += 1
                if faults_in_a_row == FAULTS_IN_A_ROW:
                    return errors
            except LlmError as error:
                return [*errors, error]
            except PcgevalError as error:
                errors.append(error)
                del submissions[team]
    return errors


def _is_done(params: Params, model: str, submission: Submission, folder: Path, report: Report) -> bool:
    """Return whether all trials are finished, which are then reported: their stage need not be run again."""
    fingerprint = present_fingerprint(params, model, submission)
    records = {}
    for trial in trials(params):
        path = record_path(folder, submission.team, trial)
        if not path.exists():
            return False
        records[trial] = record = read_record(path)
        if not record.is_final or record.fingerprint != fingerprint(trial, record.digest):
            return False
    for trial, record in records.items():
        report(trial, record, False)
    return True
