"""Simulate the levels: stability, a picture and a replay of each."""

from pcgeval.pipeline import run_stage, simulate

if __name__ == "__main__":
    run_stage(simulate)
