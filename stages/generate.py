"""Ask one model for every trial of one team; finished trials are kept and never asked again."""

from pcgeval.competition.layout import SUBMISSIONS, Trial, recording_file, step_folder, trials
from pcgeval.competition.params import load_params
from pcgeval.competition.submissions import load_submission
from pcgeval.console import Progress, run_stage
from pcgeval.llm.backends import open_backend
from pcgeval.programs.generate import generate_step
from pcgeval.programs.records import TrialRecord


def main(model: str, team: str) -> None:
    """Write data/raw/<model>/<team>."""
    params = load_params()
    progress = Progress(f"generate {team} with {model}", len(list(trials(params))))

    def report(trial: Trial, record: TrialRecord, fresh: bool) -> None:
        what_happened = record.reason or ("new" if fresh else "kept")
        progress.step(f"{trial.letter}{trial.number}: {what_happened}, {record.tokens} tokens")

    generate_step(
        params,
        model,
        load_submission(SUBMISSIONS / team),
        open_backend(params.models[model], recording_file(model, team)),
        step_folder("raw", model, team),
        report,
    )


if __name__ == "__main__":
    run_stage(main)
