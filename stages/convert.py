"""Convert the drop_block calls of one model and team to Science Birds levels."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import step_folder, trials
from pcgeval.core.params import load_params
from pcgeval.levels.steps import convert_step


def main(model: str, team: str) -> None:
    """Write data/levels/<model>/<team>."""
    params = load_params()
    convert_step(step_folder("intermediate", model, team), step_folder("levels", model, team), team, trials(params))


if __name__ == "__main__":
    run_stage(main)
