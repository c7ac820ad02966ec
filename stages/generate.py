"""Ask the models for the responses of all teams."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import generate

if __name__ == "__main__":
    run_stage(generate)
