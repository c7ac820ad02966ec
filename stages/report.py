"""Write the pages of the evaluated round."""

from pcgeval.pipeline import report, run_stage

if __name__ == "__main__":
    run_stage(report)
