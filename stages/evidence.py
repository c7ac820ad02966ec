"""Gather what the rubric's checks look at for one model and team."""

from pcgeval.checks.gathering import evidence_stage
from pcgeval.core.console import run_stage
from pcgeval.core.params import load_params


def main(model: str, team: str) -> None:
    """Write data/evidence/<team>/<model>.json."""
    evidence_stage(load_params(), model, team)


if __name__ == "__main__":
    run_stage(main)
