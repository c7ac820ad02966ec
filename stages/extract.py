"""Extract the drop_block calls from the responses of one model and team."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import stage_dir, trials
from pcgeval.core.params import load_params
from pcgeval.levels.stages import extract_stage


def main(model: str, team: str) -> None:
    """Write data/intermediate/<model>/<team>."""
    params = load_params()
    extract_stage(stage_dir("raw", model, team), stage_dir("intermediate", model, team), team, trials(params))


if __name__ == "__main__":
    run_stage(main)
