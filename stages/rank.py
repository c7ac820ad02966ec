"""Rank the teams over all models."""

from pcgeval.pipeline import rank, run_stage

if __name__ == "__main__":
    run_stage(rank)
