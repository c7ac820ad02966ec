"""Convert the drop_block calls of one model and team to Science Birds levels."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import stage_dir, trials
from pcgeval.core.params import load_params
from pcgeval.levels.stages import convert_stage


def main(model: str, team: str) -> None:
    """Write data/levels/<model>/<team>."""
    params = load_params()
    convert_stage(stage_dir("intermediate", model, team), stage_dir("levels", model, team), team, trials(params))


if __name__ == "__main__":
    run_stage(main)
