"""Score all teams on each model: the official result files."""

from pcgeval.pipeline import run_stage, score

if __name__ == "__main__":
    run_stage(score)
