"""Draw the page of the evaluated round from the results of all other stages."""

from pathlib import Path

from pcgeval.core.console import print_stderr, run_stage
from pcgeval.core.layout import REPORT
from pcgeval.core.params import load_params
from pcgeval.report.render import write_report


def main() -> None:
    """Write results/report."""
    print_stderr(f"the report is {write_report(load_params(), Path(), REPORT)}")


if __name__ == "__main__":
    run_stage(main)
