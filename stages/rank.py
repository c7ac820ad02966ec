"""Rank the teams over all models."""

from pcgeval.core.console import run_stage
from pcgeval.core.params import load_params
from pcgeval.scoring.stages import rank_stage


def main() -> None:
    """Write results/ranking.csv, results/ranking.json and results/metrics.json."""
    rank_stage(load_params())


if __name__ == "__main__":
    run_stage(main)
