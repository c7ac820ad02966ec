"""Write the pages of the evaluated round."""

from pcgeval.core.console import run_stage
from pcgeval.pipeline import report

if __name__ == "__main__":
    run_stage(report)
