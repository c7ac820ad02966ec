"""Extract the drop_block calls from the responses."""

from pcgeval.pipeline import extract, run_stage

if __name__ == "__main__":
    run_stage(extract)
