"""Simulate the levels of one model and team: stability and a picture of each."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import step_folder, trials
from pcgeval.core.params import load_params
from pcgeval.evaluator.step import simulate_step


def main(model: str, team: str) -> None:
    """Write data/stability/<model>/<team> and data/images/<model>/<team>."""
    params = load_params()
    levels, stability, images = (step_folder(step, model, team) for step in ("levels", "stability", "images"))
    simulate_step(levels, stability, images, team, trials(params), physics=params.physics)


if __name__ == "__main__":
    run_stage(main)
