"""Simulate the levels: stability, a picture and a replay of each."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import simulate

if __name__ == "__main__":
    run_stage(simulate)
