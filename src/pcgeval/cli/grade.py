"""The command `grade`, and what it shares with the commands that measure judges: options, plans, tables of grades."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pcgeval.cli.models import find_model_to_ask, load_params_or_default
from pcgeval.cli.options import Assignments, BaseUrl, Html, Json, TrustPrograms, assign, group, print_json, print_table
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_json, write_text
from pcgeval.core.text import one_line, printable_name
from pcgeval.formats.layout import judge_recording_file, judgement_file
from pcgeval.formats.params import Params
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.many import (
    Fault,
    Grading,
    GradingPlan,
    competition_task,
    grade_all,
    plan_all,
    run_gradings,
    total_plan,
)
from pcgeval.judge.run import attempt
from pcgeval.judge.settings import GradingTask, JudgeSettings
from pcgeval.report.markup import grade_page
from pcgeval.rubric.explanation import dollars, summary_lines, tree_lines
from pcgeval.rubric.output import JudgeOutput
from pcgeval.rubric.papers import (
    COLUMNS,
    RunGrade,
    find_runs,
    grade_table,
    holds_a_run,
    holds_runs,
    list_papers,
    submission_in,
    width_problem,
)
from pcgeval.sandbox.reproduction import SandboxComputer

_OF_TRIALS = ("num_ctx", "num_predict", "seed", "temperature")  # options that a model of params.yaml has for trials

Judge = Annotated[
    Literal["simple", "checks", "human", "random", "dummy"] | None,
    typer.Option(help="Default: as in params.yaml; simple with --model; human with --grades."),
]
JudgeModel = Annotated[
    str | None,
    typer.Option(metavar="M", help="The judge's model: of params.yaml, `pcgeval models list`, OpenAI, or a server."),
]
Models = Annotated[
    list[str] | None, typer.Option(metavar="M", help="A judge's model, as in `pcgeval grade`. Repeatable.")
]
Baselines = Annotated[
    list[str] | None,
    typer.Option(metavar="<checks|random|dummy>", help="A judge without a model, for comparison. Repeatable."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the calls still to make, their tokens and price, and make none.")
]
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


def print_plans(
    judges: Mapping[str, JudgeSettings],
    gradings_of: Callable[[str, JudgeSettings], Iterable[Grading]],
    *,
    recordings: Sequence[Path] = (),
    json: bool,
) -> None:
    """Print what the gradings by each judge would cost; exit with 1 if some would fail, which are named.

    The error of a grading that is alone is raised.
    """
    results = []
    for judge, settings in judges.items():
        client = CallFiles(recordings=tuple(recordings)).client(settings, read_only=True)
        results += [(judge, *result) for result in plan_all(gradings_of(judge, settings), client)]
    if len(results) == 1 and isinstance(error := results[0][2], Exception):
        raise error
    every = [(judge, plan) for judge, _, plan in results if isinstance(plan, GradingPlan)]
    if json:
        gradings = [{"judge": judge, **vars(plan)} for judge, plan in every]
        print_json({"gradings": gradings, "total": vars(total_plan([plan for _, plan in every]))})
    else:
        rows = []
        for judge in judges:
            of_judge = [plan for other, plan in every if other == judge]
            for plan in (*of_judge, *([total_plan(of_judge)] if len(of_judge) > 1 else [])):
                names, cost = (printable_name(judge), printable_name(plan.name)), plan.cost
                tokens = (plan.prompt_tokens, plan.cached_tokens, plan.output_tokens)
                numbers = map(str, (plan.calls, plan.known_calls, *tokens, plan.leaves_of_results))
                rows.append((*names, *numbers, "unknown" if cost is None else dollars(cost)))
        columns = ("judge", "grading", "calls", "known", "tokens read", "cached", "written", "need a run", "US dollars")
        print_table(columns, rows)
        print_stderr("An estimate; no call was made. Known replies cost nothing. A token is four bytes.")
    faults = [f"{printable_name(name)}: would fail: {plan}" for _, name, plan in results if isinstance(plan, Exception)]
    for fault in dict.fromkeys(faults):
        print_stderr(fault)
    if faults:
        raise typer.Exit(EXIT_CHECK_FAILED)


def print_grade_table(grades: Sequence[RunGrade], *, json: bool) -> None:
    """Print the means of gradings as a table, and below it why gradings do not count."""
    rows = grade_table(grades)
    for grade in grades:
        for name in grade.run.left_out():
            print_stderr(f"{printable_name(grade.run.id)}: {printable_name(name)} is not graded")
    judges = sorted({grade.judge for grade in grades if grade.judge and grade.score is not None})
    if len(judges) > 1:
        print_stderr(f"WARNING: means of this table mix gradings of {len(judges)} judges: {'; '.join(judges)}")
    if json:
        print_json({"rows": [vars(row) for row in rows], "gradings": [grade.to_json() for grade in grades]})
    else:
        print_table(COLUMNS, [row.cells() for row in rows])
        for grade in grades:
            if remark := "disqualified, counts as 0" if grade.disqualified else grade.problem:
                sys.stdout.write(f"{printable_name(grade.run.id)}: {remark}\n")


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
    out: Out = None,
    page: Html = None,
    json: Json = False,
) -> None:
    """Grade a submission by a rubric, or a folder of runs.

    The command prints the tree of criteria; for a folder of runs, a table of means. It skips runs that have a finished
    grade. A leaf without a grade counts as 0. Exit code 1: a run failed, or a score is open by more than
    rubric.max_width.
    """
    params = load_params_or_default()
    settings = judge_settings(
        params, judge=judge, model=model, base_url=base_url, assignments=assignments or (), human_grades=grades
    )
    is_team = submission in params.teams and not paper
    papers = list_papers(Path(settings.papers_dir))
    are_runs = not (rubric or paper or is_team) and holds_runs(Path(submission), papers)
    reads_results = settings.reads_submission and not settings.code_only
    is_within = are_runs and (out or GRADES).resolve().is_relative_to(Path(submission).resolve())
    _refuse(
        ("" in {rubric, paper}, "--rubric or --paper is empty. Name one, or leave the option out."),
        (rubric and paper, "--rubric and --paper both name criteria. Leave one of them out."),
        (network and not reproduce, "--network is for the run of reproduce.sh. Give --reproduce too."),
        (reproduce and not (paper or are_runs), "--reproduce is for attempts at a paper. Name it with --paper."),
        (reproduce and not reads_results, "This judge needs no results. Leave --reproduce out."),
        (are_runs and page, "--html is of one submission; `pcgeval rubric show GRADE --html` shows a run's."),
        (are_runs and settings.judge == "human", "A person's grades are of one submission. Name it instead."),
        (out and out.is_dir() and not are_runs, f"--out {out}: is a directory. Name a file."),
        (is_within, f"--out {out or GRADES}: lies among the runs. Name another folder for the grades."),
    )
    team_recordings = (judge_recording_file(submission), judgement_file(submission)) if is_team else ()
    recordings = [*([recording] if recording else []), *filter(Path.is_file, team_recordings)]
    if are_runs:
        runs = find_runs(Path(submission), papers)
        gradings = run_gradings(runs, out or GRADES, settings)
    elif paper:
        needs_run = reads_results and not reproduce
        gradings = [Grading(submission, partial(_attempt, Path(submission), paper, settings, needs_run=needs_run))]
    else:
        opened = partial(competition_task, params, submission, rubric=rubric, checks_file=settings.checks_file)
        gradings = [Grading(submission, opened)]
    if dry_run:
        print_plans({settings.judge: settings}, lambda *_: gradings, recordings=recordings, json=json)
        return
    computer = SandboxComputer(network=network, trust_programs=trust_programs) if reproduce else None
    client = CallFiles(recordings=tuple(recordings)).client(settings)
    results = grade_all(gradings, client, computer)
    if not are_runs:
        ((_, output),) = results
        title = f"{submission}, {paper}" if paper else submission
        _show_grade(output, settings.max_width, out, page, title, json=json)
        return
    run_grades = [RunGrade.of(run, output, settings.max_width) for run, (_, output) in zip(runs, results, strict=True)]
    print_grade_table(run_grades, json=json)
    if number := sum(grade.problem is not None for grade in run_grades):
        print_stderr(
            f"{number} of {len(run_grades)} gradings do not count. Repeat the command to try them again: finished "
            "grades stay, and no reply is paid for twice."
        )
        raise typer.Exit(EXIT_CHECK_FAILED)


def _refuse(*contradictions: tuple[object, str]) -> None:
    """Raise BadParameter with the advice of the first condition that holds."""
    for is_wrong, advice in contradictions:
        if is_wrong:
            raise typer.BadParameter(advice)


@contextmanager
def _attempt(place: Path, paper: str, settings: JudgeSettings, *, needs_run: bool) -> Iterator["GradingTask"]:
    """Give an attempt at a paper, or the one in the folder of a run, and say what a reader may not expect."""
    submission = place
    if place.is_dir() and holds_a_run(place):
        with suppress(FileError):
            submission = submission_in(place)
    if submission != place:
        print_stderr(f"{place} is the folder of a run; {submission} is graded.")
    with attempt(submission, paper, settings) as task:
        yield task
        if needs_run and task.run is not None and task.run.log is None:
            print_stderr("reproduce.sh was not run, and there is no reproduce.log; --reproduce runs it first.")


def _show_grade(
    output: JudgeOutput | Fault, max_width: float, out: Path | None, page: Path | None, title: str, *, json: bool
) -> None:
    """Print a grade as JSON, or else its tree, and the summary; write its file and its page, if they are asked for."""
    if isinstance(output, Exception):
        raise output
    if out is not None:
        write_json(out, output.to_json())
    if page is not None:
        write_text(page, grade_page(output, title))
    if json:
        print_json(output.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in tree_lines(output.graded_task_tree))
    for line in summary_lines(output):
        print_stderr(line)
    if output.partial:
        print_stderr("Repeat the command to continue: no reply is paid for twice.")
    if problem := width_problem(output, max_width):
        print_stderr(one_line(problem))
        raise typer.Exit(EXIT_CHECK_FAILED)


def judge_settings(
    params: Params,
    *,
    judge: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    assignments: Sequence[str] = (),
    human_grades: Path | None = None,
) -> JudgeSettings:
    """Return the settings of params.yaml with those of the command line in their place.

    Options that a model of params.yaml has for trials are left out. Raises BadParameter, GradingError or SettingsError
    if an option is incomplete, a value invalid or the model unknown.
    """
    if base_url is not None and not (base_url and model):
        raise typer.BadParameter("--base-url says where a model is asked. Name the model with --model, and an address.")
    values: dict[str, Any] = params.rubric.model_dump(exclude_unset=True)
    if model is not None:
        asked = find_model_to_ask(params, model, None, base_url)
        options = {option: value for option, value in asked.options.items() if option not in _OF_TRIALS}
        values["model"] = asked.model_copy(update={"options": options}).model_dump(exclude_unset=True)
    values["judge"] = judge or ("human" if human_grades else "simple" if model else params.rubric.judge)
    values |= {"human_grades": human_grades} if human_grades else {}
    for assignment in assignments:
        if not assignment.startswith("rubric."):
            raise typer.BadParameter(f"--set {assignment}: a judge has keys of `rubric`, such as rubric.votes=3.")
        assign({"rubric": values}, assignment)
    return JudgeSettings.checked(values)


def named_judges(
    models: Sequence[str] | None,
    others: Sequence[str] | None,
    base_url: str | None,
    assignments: Sequence[str] | None,
) -> dict[str, JudgeSettings]:
    """Return the settings of the judges with these models, and of those that need none, by their names."""
    if not models and not others:
        raise typer.BadParameter("name a judge: models with --model, and others with --judge.")
    params = load_params_or_default()
    named = {
        name: judge_settings(params, judge="simple", model=name, base_url=base_url, assignments=assignments or ())
        for name in models or ()
    }
    return named | {name: judge_settings(params, judge=name, assignments=assignments or ()) for name in others or ()}
