"""Grade one team's submission by the rubric; what a model judge said before is not asked again."""

from pcgeval.core.console import print_stderr, run_stage
from pcgeval.core.params import load_params
from pcgeval.judge.grading import GradingProgress, no_report
from pcgeval.judge.stage import grade_stage
from pcgeval.rubric.text import summary_lines


def main(team: str) -> None:
    """Write data/grades/<team>/grade.json and data/judgements/<team>/calls.jsonl."""
    params = load_params()
    report = GradingProgress(f"grade {team}") if params.rubric.judge == "simple" else no_report
    for line in summary_lines(grade_stage(params, team, report=report)):
        print_stderr(f"grade of {team}: {line}")


if __name__ == "__main__":
    run_stage(main)
