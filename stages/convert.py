"""Convert the drop_block calls to Science Birds levels."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import convert

if __name__ == "__main__":
    run_stage(convert)
