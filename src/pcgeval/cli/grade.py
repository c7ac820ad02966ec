"""The command `pcgeval grade`: a team, a submission that was not run, an attempt at a paper, or a folder of runs."""

import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcgeval.cli.judge_options import (
    DryRun,
    Judge,
    JudgeModel,
    MaxInvalid,
    judge_settings,
    print_grade_table,
    print_plans,
)
from pcgeval.cli.options import Assignments, BaseUrl, Html, Json, TrustPrograms, group, print_json
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.judge import JUDGES

if TYPE_CHECKING:
    from pcgeval.core.params import Params
    from pcgeval.judge.calls import CallFiles
    from pcgeval.judge.many import ManyGradings
    from pcgeval.judge.settings import GradingTask, JudgeSettings
    from pcgeval.rubric.grades import JudgeOutput

GRADES = Path("grades")  # of a folder of runs, below the working directory
Submission = Annotated[
    str,
    typer.Argument(
        metavar="SUBMISSION", help="A team of params.yaml, a folder or tar file, or a folder of runs: GROUP/PAPER_RUN."
    ),
]
Rubric = Annotated[
    str | None, typer.Option(metavar="ID", help="A folder of data/rubrics or a file; default: as in params.yaml.")
]
Paper = Annotated[str | None, typer.Option(metavar="ID", help="The paper that the submission attempts to reproduce.")]
HumanGrades = Annotated[Path | None, typer.Option(metavar="FILE", help="A person's grades, as YAML.")]
Reproduce = Annotated[bool, typer.Option("--reproduce", help="Run reproduce.sh first, on a copy in the sandbox.")]
Network = Annotated[bool, typer.Option("--network", help="Let reproduce.sh use the network.")]
Recording = Annotated[Path | None, typer.Option(metavar="FILE", help="Replay the model's replies in this file.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Write the grade to this file; for runs, GROUP/RUN/grade.json in this folder."),
]

app = group()


@app.command()
def grade(
    *,
    submission: Submission,
    rubric: Rubric = None,
    paper: Paper = None,
    judge: Judge = None,
    model: JudgeModel = None,
    base_url: BaseUrl = None,
    assignments: Assignments = None,
    grades: HumanGrades = None,
    reproduce: Reproduce = False,
    network: Network = False,
    trust_programs: TrustPrograms = False,
    recording: Recording = None,
    dry_run: DryRun = False,
    max_invalid: MaxInvalid = 0,
    out: Out = None,
    page: Html = None,
    json: Json = False,
) -> None:
    """Grade a submission by a rubric, or a folder of runs.

    The command prints the tree of criteria; for a folder of runs, a table of means. It skips runs that have a finished
    grade. A leaf without a grade counts as 0. Exit code 1: more than --max-invalid leaves have no grade, or a run
    failed.
    """
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.core.files import write_json
    from pcgeval.judge.grading import grade as grade_task
    from pcgeval.judge.many import ManyGradings
    from pcgeval.judge.plan import plan_gradings
    from pcgeval.judge.run import grade_submission, submission_folder
    from pcgeval.rubric.papers import list_papers
    from pcgeval.rubric.runs import holds_runs
    from pcgeval.sandbox.reproduction import SandboxComputer

    params = load_params_or_default()
    settings = judge_settings(
        params, judge=judge, model=model, base_url=base_url, assignments=assignments or (), human_grades=grades
    )
    is_named = bool(rubric or paper or submission in params.teams)
    are_runs = not is_named and holds_runs(Path(submission), list_papers(Path(settings.papers_dir)))
    reads_results = JUDGES[settings.judge].reads_submission and not settings.code_only
    _refuse(
        (rubric and paper, "--rubric and --paper both name criteria. Leave one of them out."),
        (network and not reproduce, "--network is for the run of reproduce.sh. Give --reproduce too."),
        (reproduce and not (paper or are_runs), "--reproduce is for attempts at a paper. Name it with --paper."),
        (reproduce and not reads_results, "This judge needs no results. Leave --reproduce out."),
        (are_runs and page, "--html is of one submission; `pcgeval rubric show GRADE --html` shows a run's."),
        (are_runs and settings.judge == "human", "A person's grades are of one submission. Name it instead."),
        (out and out.is_dir() and not are_runs, f"--out {out}: is a directory. Name a file."),
    )
    computer = SandboxComputer(network=network, trust_programs=trust_programs) if reproduce else None
    recordings = (recording,) if recording else ()
    if are_runs:
        many = ManyGradings(Path(submission), out or GRADES, settings, None if dry_run else computer, recordings)
        _grade_runs(many, dry_run=dry_run, json=json, max_invalid=max_invalid)
        return
    with nullcontext(submission) if paper is None else submission_folder(_attempt(Path(submission))) as folder:
        task, settings, calls = _input(params, str(folder), paper, rubric, settings, recordings)
        client, title = calls.client(settings, read_only=dry_run), f"grade {submission}"
        if dry_run:
            print_plans({settings.judge: plan_gradings([(submission, task)], client)}, json=json)
            return
        if paper is not None:
            output = grade_submission(folder, paper, settings, computer, title=title, client=client)
        else:
            output = grade_task(task, client, title)
    if out is not None:
        write_json(out, output.to_json())
    _print_grade(output, page, submission if paper is None else f"{submission}, {paper}", json=json)
    if reads_results and not reproduce and task.run is not None and task.run.log is None:
        print_stderr("reproduce.sh was not run, and there is no reproduce.log; --reproduce runs it first.")
    if output.num_invalid_leaf_nodes > max_invalid:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _refuse(*contradictions: tuple[object, str]) -> None:
    """Raise BadParameter with the advice of the first condition that holds."""
    for is_wrong, advice in contradictions:
        if is_wrong:
            raise typer.BadParameter(advice)


def _attempt(place: Path) -> Path:
    """Return the submission in the folder of a run, and name it, or else the place itself."""
    from pcgeval.core.errors import FileError
    from pcgeval.rubric.runs import holds_a_run, submission_in

    attempt = place
    if place.is_dir() and holds_a_run(place):
        with suppress(FileError):
            attempt = submission_in(place)
    if attempt != place:
        print_stderr(f"{place} is the folder of a run; {attempt} is graded.")
    return attempt


def _input(
    params: "Params",
    submission: str,
    paper: str | None,
    rubric: str | None,
    settings: "JudgeSettings",
    recordings: tuple[Path, ...],
) -> tuple["GradingTask", "JudgeSettings", "CallFiles"]:
    """Return the submission with its rubric, the settings, and the files of replies, for a team with the team's."""
    from pcgeval.core.layout import judge_recording_file, judgement_file
    from pcgeval.judge.calls import CallFiles
    from pcgeval.judge.run import submission_task
    from pcgeval.judge.stage import competition_task, team_settings

    if paper is not None:
        return submission_task(submission, paper, settings), settings, CallFiles(recordings=recordings)
    task = competition_task(params, submission, rubric=rubric, checks_file=settings.checks_file)
    if submission not in params.teams:
        return task, settings, CallFiles(recordings=recordings)
    of_team = (path for path in (judge_recording_file(submission), judgement_file(submission)) if path.is_file())
    return task, team_settings(settings, submission), CallFiles(recordings=(*recordings, *of_team))


def _print_grade(output: "JudgeOutput", page: Path | None, title: str, *, json: bool) -> None:
    """Print a grade as JSON, or else its tree, and the summary; write its page, if one is asked for."""
    from pcgeval.core.files import write_text
    from pcgeval.rubric.explanation import summary_lines, tree_lines

    if page is not None:
        from pcgeval.report.markup import grade_page

        write_text(page, grade_page(output, title))
    if json:
        print_json(output.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in tree_lines(output.graded_task_tree))
    for line in summary_lines(output):
        print_stderr(line)
    if output.partial:
        print_stderr("Repeat the command to continue: no reply is paid for twice.")


def _grade_runs(many: "ManyGradings", *, dry_run: bool, json: bool, max_invalid: int) -> None:
    """Grade a folder of runs and print the table, or only what that would cost."""
    if dry_run:
        plans, failed = many.plan()
        print_plans({many.settings.judge: plans}, json=json)
        for grade in failed:
            print_stderr(f"{grade.run.id}: would fail: {grade.problem}")
        raise typer.Exit(EXIT_CHECK_FAILED if failed else 0)
    grades = many.grade(max_invalid=max_invalid)
    print_grade_table(grades, json=json)
    if number := sum(grade.problem is not None for grade in grades):
        print_stderr(
            f"{number} of {len(grades)} gradings do not count. Repeat the command to try them again: finished grades "
            "stay, and no reply is paid for twice."
        )
        raise typer.Exit(EXIT_CHECK_FAILED)
