"""Score all teams on one model: the four official result files."""

from pcgeval.core.console import run_stage
from pcgeval.core.layout import OFFICIAL_RESULTS
from pcgeval.core.params import load_params
from pcgeval.scoring.stages import score_stage


def main(model: str) -> None:
    """Write results/official/<model>."""
    score_stage(load_params(), model, OFFICIAL_RESULTS / model)


if __name__ == "__main__":
    run_stage(main)
