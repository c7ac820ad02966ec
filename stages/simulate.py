"""Simulate the levels of one model and team: stability and a picture of each."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import stage_dir, trials
from pcgeval.core.params import load_params
from pcgeval.evaluator.stage import simulate_stage


def main(model: str, team: str) -> None:
    """Write data/stability/<model>/<team> and data/images/<model>/<team>."""
    params = load_params()
    levels, stability, images = (stage_dir(step, model, team) for step in ("levels", "stability", "images"))
    simulate_stage(levels, stability, images, team, trials(params), physics=params.physics)


if __name__ == "__main__":
    run_stage(main)
