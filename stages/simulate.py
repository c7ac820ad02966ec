"""Simulate the levels of one model and team: stability, a picture and a replay of each."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import replays_file, stage_dir, trials
from pcgeval.core.params import load_params
from pcgeval.core.spread import chosen_scheduler
from pcgeval.evaluator.stage import simulate_stage


def main(model: str, team: str) -> None:
    """Write data/stability/<model>/<team>, data/images/<model>/<team> and data/replays/<model>/<team>.json."""
    params = load_params()
    levels, stability, images = (stage_dir(step, model, team) for step in ("levels", "stability", "images"))
    simulate_stage(
        levels,
        stability,
        images,
        team,
        trials(params),
        physics=params.physics,
        replays=replays_file(model, team),
        scheduler=chosen_scheduler(params),
    )


if __name__ == "__main__":
    run_stage(main)
