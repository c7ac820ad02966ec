"""Convert the drop_block calls to Science Birds levels."""

from pcgeval.pipeline import convert, run_stage

if __name__ == "__main__":
    run_stage(convert)
