"""Grade one team's submission by the rubric."""

from pcgeval.competition.params import load_params
from pcgeval.console import run_stage, say
from pcgeval.rubric.step import grade_step


def main(team: str) -> None:
    """Write data/grades/<team>/grade.json."""
    output = grade_step(load_params(), team)
    say(f"grade of {team}: {output.score} ({output.num_passed} of {output.num_leaf_nodes} criteria passed)")


if __name__ == "__main__":
    run_stage(main)
