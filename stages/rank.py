"""Rank the teams over all models."""

from pcgeval.competition.params import load_params
from pcgeval.console import run_stage
from pcgeval.scoring.steps import rank_step


def main() -> None:
    """Write results/ranking.csv, results/ranking.json and results/metrics.json."""
    rank_step(load_params())


if __name__ == "__main__":
    run_stage(main)
