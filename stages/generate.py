"""Do every trial of one team with one model; finished trials are kept and no finished call is made again.

A submission or params.yaml that changed meanwhile fails the stage at its end, or DVC would take the trials for its.
`--trust-programs`, or PCGEVAL_TRUST_PROGRAMS=1 for the stages that DVC starts, runs a program without a sandbox where
none can start: it then has the rights of whoever runs this, and the network.
"""

import os
from contextlib import suppress

from pcgeval.core.console import Progress, run_stage
from pcgeval.core.layout import SUBMISSIONS, recorded_trials_file, recording_file, stage_dir, trials
from pcgeval.core.params import load_params
from pcgeval.core.spread import chosen_scheduler
from pcgeval.generation.environments import lock_requirements
from pcgeval.generation.generate import check_unchanged, generate_stage, report_to
from pcgeval.llm.backends import open_backend
from pcgeval.sandbox.sandbox import TRUST_PROGRAMS
from pcgeval.submissions.load import Program, load_submission
from pcgeval.submissions.requirements import RequirementsError


def main(model: str, team: str, *options: str) -> None:
    """Write data/raw/<model>/<team>."""
    trust_programs = os.environ.get(TRUST_PROGRAMS) == "1" or "--trust-programs" in options
    params = load_params()
    submission = load_submission(SUBMISSIONS / team)
    if isinstance(submission.work, Program) and params.models[model].backend != "recorded":
        with suppress(RequirementsError):  # its trials fail with the reason
            lock_requirements(submission.work.folder)
    generate_stage(
        params,
        model,
        submission,
        open_backend(params.models[model], recording_file(model, team)),
        stage_dir("raw", model, team),
        report_to(Progress(f"generate {team} with {model}", len(list(trials(params))))),
        trust_programs=trust_programs,
        recorded_trials=recorded_trials_file(model, team),
        scheduler=chosen_scheduler(params),
    )
    check_unchanged(params, model, team, stage_dir("raw", model, team))


if __name__ == "__main__":
    run_stage(main)
