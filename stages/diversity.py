"""Compare the trials of each letter with one another."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import diversity

if __name__ == "__main__":
    run_stage(diversity)
