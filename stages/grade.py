"""Grade the submissions by the rubric."""

from pcgeval.pipeline import grade, run_stage

if __name__ == "__main__":
    run_stage(grade)
