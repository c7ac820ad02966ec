"""Compare the trials of each letter with one another."""

from pcgeval.pipeline import diversity, run_stage

if __name__ == "__main__":
    run_stage(diversity)
