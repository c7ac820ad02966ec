"""Extract the drop_block calls from the responses of one model and team."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import step_folder, trials
from pcgeval.core.params import load_params
from pcgeval.levels.steps import extract_step


def main(model: str, team: str) -> None:
    """Write data/intermediate/<model>/<team>."""
    params = load_params()
    extract_step(step_folder("raw", model, team), step_folder("intermediate", model, team), team, trials(params))


if __name__ == "__main__":
    run_stage(main)
