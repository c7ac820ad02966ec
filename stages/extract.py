"""Extract the drop_block calls from the responses."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import extract

if __name__ == "__main__":
    run_stage(extract)
