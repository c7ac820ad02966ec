"""The command `pcgeval grade`: a team, a submission that was not run, or an attempt to reproduce a paper."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcgeval.cli.grade_output import TableFormat, print_grade_table
from pcgeval.cli.judge_options import DryRun, JudgeOptions, MaxInvalid, print_plans, with_judge_options
from pcgeval.cli.options import GradeFormat, Html, Json, TrustPrograms, group, print_json, refuse_two_formats
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr

if TYPE_CHECKING:
    from pcgeval.judge.settings import JudgeSettings
    from pcgeval.rubric.grades import JudgeOutput

Submission = Annotated[str, typer.Argument(metavar="SUBMISSION", help="A team of params.yaml, or a folder.")]
Rubric = Annotated[
    str | None, typer.Option(metavar="ID", help="A folder of data/rubrics or a file; default: as in params.yaml.")
]
Paper = Annotated[str | None, typer.Option(metavar="ID", help="The paper that the submission attempts to reproduce.")]
HumanGrades = Annotated[Path | None, typer.Option(metavar="FILE", help="A person's grades, as YAML or CSV.")]
Reproduce = Annotated[bool, typer.Option("--reproduce", help="Run reproduce.sh first, on a copy in the sandbox.")]
Network = Annotated[bool, typer.Option("--network", help="Let reproduce.sh use the network.")]
Recording = Annotated[Path | None, typer.Option(metavar="FILE", help="Replies of the model to replay.")]
ExchangesFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the model's replies to this recording, too.")
]
ChecksFile = Annotated[
    Path | None,
    typer.Option("--checks", metavar="FILE", help="Checks for leaves, by their id; default: checks.yaml of the paper."),
]
Out = Annotated[Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write the grade there too, as JSON.")]

app = group()


@app.command()
@with_judge_options
def grade(
    *,
    submission: Submission,
    rubric: Rubric = None,
    paper: Paper = None,
    options: JudgeOptions,
    grades: HumanGrades = None,
    checks: ChecksFile = None,
    reproduce: Reproduce = False,
    network: Network = False,
    trust_programs: TrustPrograms = False,
    recording: Recording = None,
    exchanges: ExchangesFile = None,
    dry_run: DryRun = False,
    max_invalid: MaxInvalid = 0,
    out: Out = None,
    form: GradeFormat = "pcgeval",
    page: Html = None,
    json: Json = False,
) -> None:
    """Grade a submission by a rubric and print the tree.

    A leaf without a grade counts as 0. Exit code 1 means that more than --max-invalid leaves have no grade, or that the
    score is only a guess.
    """
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.core import layout
    from pcgeval.core.files import write_json, write_text
    from pcgeval.judge import grading
    from pcgeval.judge.client import CallFiles
    from pcgeval.judge.plan import plan_gradings
    from pcgeval.judge.run import grade_submission, submission_task
    from pcgeval.judge.stage import competition_task, team_settings
    from pcgeval.rubric.grade_files import grade_json
    from pcgeval.sandbox.reproduction import SandboxComputer
    from pcgeval.submissions.reproduction import REPRODUCE_LOG

    params = load_params_or_default()
    settings = options.settings(params, human_grades=grades, checks_file=checks)
    if rubric and paper:
        raise typer.BadParameter("--rubric and --paper both name criteria. Leave one of them out.")
    _refuse_contradictions(settings, is_paper=paper is not None, reproduce=reproduce, network=network)
    report = grading.GradingProgress(f"grade {submission}") if settings.judge == "simple" else grading.no_report
    recordings = [recording] if recording else []
    if paper is None and submission in params.teams:
        settings = team_settings(settings, submission)
        kept = (layout.judge_recording_file(submission), layout.judgement_file(submission))
        recordings += [path for path in kept if path.is_file()]
    calls = CallFiles(recordings=tuple(recordings), export=exchanges)
    task = competition_task(params, submission, rubric=rubric, checks_file=checks) if paper is None else None
    if dry_run:
        task = task or submission_task(submission, str(paper), settings)
        with calls.opened(task.folder, settings, read_only=True) as log:
            print_plans(plan_gradings([(submission, task)], settings, log), settings, json=json, reproduce=reproduce)
        return
    if task is not None:
        with calls.opened(task.folder, settings) as log:
            output = grading.grade(task, settings, log, report)
            calls.write_export(log, keep_others=True)
    else:
        computer = SandboxComputer(network=network, trust_programs=trust_programs) if reproduce else None
        output = grade_submission(submission, str(paper), settings, computer, calls, report)
    values = grade_json(output, form)
    if out is not None:
        write_json(out, values)
    if page is not None:
        from pcgeval.report.gradings import grade_page

        write_text(page, grade_page(output, submission if paper is None else f"{submission}, {paper}"))
    in_json = json or (form != "pcgeval" and out is None)
    needs_none = settings.judge not in {"simple", "checks"} or settings.code_only or paper is None
    lacks_a_run = not (needs_none or reproduce or (Path(submission) / REPRODUCE_LOG).exists())
    _print_grade(output, values if in_json else None, lacks_a_run=lacks_a_run, max_invalid=max_invalid)


@app.command()
@with_judge_options
def grade_all(
    *,
    runs: Annotated[Path, typer.Argument(metavar="RUNS", help="A folder of runs: GROUP/PAPER_RUN, as in PaperBench.")],
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Write each grade there: GROUP/PAPER_RUN/grade.json.")
    ] = Path("grades"),
    options: JudgeOptions,
    reproduce: Reproduce = False,
    network: Network = False,
    trust_programs: TrustPrograms = False,
    recording: Recording = None,
    dry_run: DryRun = False,
    max_invalid: MaxInvalid = 0,
    form: TableFormat = None,
    json: Json = False,
) -> None:
    """Grade many attempts at papers and print a table of means.

    A line has a submission and a paper, with mean and standard error. Finished gradings are skipped. Exit code 1 means
    that a grading failed or is partial; the table names it.
    """
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.judge.many import ManyGradings
    from pcgeval.sandbox.reproduction import SandboxComputer

    refuse_two_formats(form, json=json)
    settings = options.settings(load_params_or_default())
    if settings.judge == "human":
        raise typer.BadParameter("a person's grades are of one submission. Use `pcgeval grade ... --grades FILE`.")
    _refuse_contradictions(settings, is_paper=True, reproduce=reproduce, network=network)
    computer = SandboxComputer(network=network, trust_programs=trust_programs) if reproduce and not dry_run else None
    many = ManyGradings(runs, out, settings, computer, (recording,) if recording else ())
    if dry_run:
        plans, failed = many.plan()
        print_plans(plans, settings, json=json, reproduce=reproduce)
        for each in failed:
            print_stderr(f"{each.run.id}: would fail: {each.problem}")
        raise typer.Exit(EXIT_CHECK_FAILED if failed else 0)
    grades = many.grade(max_invalid=max_invalid)
    print_grade_table(grades, form, json=json)
    if failed_runs := sum(each.problem is not None for each in grades):
        print_stderr(
            f"{failed_runs} of {len(grades)} gradings do not count. The same command tries them again: what is "
            "finished is kept, and no reply is paid for twice."
        )
        raise typer.Exit(EXIT_CHECK_FAILED)


def _refuse_contradictions(settings: "JudgeSettings", *, is_paper: bool, reproduce: bool, network: bool) -> None:
    looks_at_results = settings.judge in {"simple", "checks"}
    for is_wrong, advice in (
        (
            reproduce and settings.code_only,
            "--reproduce runs the code, --code-only only reads it. Leave one of them out.",
        ),
        (reproduce and not looks_at_results, f"the judge {settings.judge} needs no results. Leave --reproduce out."),
        (reproduce and not is_paper, "--reproduce is for attempts to reproduce a paper. Name the paper with --paper."),
        (network and not reproduce, "--network is for the run of reproduce.sh. Give --reproduce too."),
    ):
        if is_wrong:
            raise typer.BadParameter(advice)


def _print_grade(output: "JudgeOutput", values: dict[str, Any] | None, *, lacks_a_run: bool, max_invalid: int) -> None:
    """Print the grade's values as JSON, or else its tree, and the summary."""
    from pcgeval.rubric.grades import HEURISTIC
    from pcgeval.rubric.text import summary_lines, tree_lines

    if values is not None:
        print_json(values)
    else:
        sys.stdout.writelines(f"{line}\n" for line in tree_lines(output.graded_task_tree))
    for line in summary_lines(output):
        print_stderr(line)
    if lacks_a_run:
        print_stderr("reproduce.sh was not run, and there is no reproduce.log; --reproduce runs it first.")
    if output.partial:
        print_stderr("The same command goes on where this ended: no reply is paid for twice.")
    if output.judge_type == HEURISTIC or output.num_invalid_leaf_nodes > max_invalid:
        raise typer.Exit(EXIT_CHECK_FAILED)
