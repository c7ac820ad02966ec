"""Rank the teams over all models."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import rank

if __name__ == "__main__":
    run_stage(rank)
