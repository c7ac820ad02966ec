"""Score all teams on each model: the official result files."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import score

if __name__ == "__main__":
    run_stage(score)
