"""Grade the submissions by the rubric."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import grade

if __name__ == "__main__":
    run_stage(grade)
