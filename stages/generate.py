"""Ask the models for the responses of all teams."""

from pcgeval.pipeline import generate, run_stage

if __name__ == "__main__":
    run_stage(generate)
