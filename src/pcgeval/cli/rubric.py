"""The commands `pcgeval rubric ...`."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from pcgeval.cli.grade import Baselines, DryRun, Models, named_judges, print_grade_table, print_plans
from pcgeval.cli.models import load_params_or_default
from pcgeval.cli.options import Assignments, BaseUrl, Html, Json, group, print_json, print_table
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.files import to_json, write_text
from pcgeval.core.text import listed, one_line, printable_name
from pcgeval.formats.layout import PAPERS, RUBRICS, own_or_packaged
from pcgeval.judge.calls import CallFiles
from pcgeval.judge.trust import NO_ATTACKS, attack_gradings, attack_judge, evaluate_judges, file_name, read_examples
from pcgeval.report.markup import grade_page
from pcgeval.rubric.agreement import (
    FIGURE_COLUMNS,
    METHOD,
    agreement as measure_agreement,
    judge_eval_json,
    judge_eval_lines,
)
from pcgeval.rubric.explanation import NodeShare, criterion_lines, form_lines, summary_lines, tree_lines, way_to
from pcgeval.rubric.grades import GradedTaskNode, GradeError, Verdict, grade_tree
from pcgeval.rubric.output import JudgeOutput, inspect_log, read_grade, read_graded_tree
from pcgeval.rubric.papers import RunGrade, find_runs, list_papers, read_disqualified, width_problem
from pcgeval.rubric.tree import load_rubric_with_checks

MAX_NAMES = 20  # in one message
Grade = Annotated[Path, typer.Argument(metavar="GRADE", help="A grade.json, or a grading of PaperBench.")]

app = group()
measures = group()
app.add_typer(measures, name="rubric", help="Explain grades, compare them, and measure judges.")


@measures.command()
def show(
    grade: Grade,
    leaf: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="A criterion by its number, its path, or the end of its path.")
    ] = None,
    page: Html = None,
    json: Json = False,
) -> None:
    """Explain a grade: the whole tree, or one criterion.

    The explanation of a criterion goes from the root down to the judge's answer.
    """
    output = read_grade(grade)
    if page:
        write_text(page, grade_page(output, str(grade)))
    tree = output.graded_task_tree
    if leaf is None:
        values = {**output.to_json(), "parts": [part.to_json() for part in NodeShare(tree).walk()]}
        del values["graded_task_tree"]
        lines = [*summary_lines(output), "", *tree_lines(tree)]
    else:
        way = way_to(tree, leaf)
        node = {**way[-1].node.to_json(), "sub_tasks": [part.to_json() for part in way[-1].below]}
        values = {"way": [part.to_json() for part in way], "node": node}
        lines = list(criterion_lines(output, way))
    _print(values, lines, json=json)


@measures.command()
def convert(
    grade: Grade,
    form: Annotated[
        Literal["pcgeval", "paperbench", "inspect"],
        typer.Option(
            "--format",
            help="The format of the JSON: paperbench is PaperBench's grader_output.json, inspect an eval log of "
            "Inspect.",
        ),
    ] = "paperbench",
) -> None:
    """Print a grade as JSON in another format."""
    formats = {"pcgeval": JudgeOutput.to_json, "paperbench": JudgeOutput.to_dict, "inspect": inspect_log}
    sys.stdout.write(f"{to_json(formats[form](read_grade(grade)))}\n")


def _print(value: Any, lines: Iterable[str], *, json: bool) -> None:
    text = to_json(value) if json else "\n".join(lines)
    sys.stdout.write(f"{text}\n")


@measures.command()
def agreement(
    a: Annotated[Path, typer.Argument(metavar="A", help="A grade.json, or a folder of them.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The other judge's grade.json or folder.")],
    json: Json = False,
) -> None:
    """Measure how far two gradings by one rubric agree, and where A is right if B is the truth."""
    result = measure_agreement(_read_pairs(a, b))
    if not json:
        print_table(FIGURE_COLUMNS, [figures.cells(name) for name, figures in result.groups.items()])
    _print(result.to_json(), [METHOD, *result.lines()], json=json)


def _read_pairs(a: Path, b: Path) -> dict[str, tuple[GradedTaskNode, GradedTaskNode]]:
    """Return the gradings that belong together: two files, or those of the same name in two folders."""
    in_a, in_b = (
        {path.relative_to(place).as_posix(): path for path in place.rglob("*.json")} if place.is_dir() else {"": place}
        for place in (a, b)
    )
    if not in_a or in_a.keys() != in_b.keys():
        lacking = listed(sorted(in_a.keys() ^ in_b.keys()), MAX_NAMES)
        raise GradeError(f"{a} and {b}: give two files, or two folders with the same files. Only one has {lacking}.")
    return {name: (read_graded_tree(in_a[name]), read_graded_tree(in_b[name])) for name in sorted(in_a)}


@measures.command()
def judge_eval(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="PAPER/EXAMPLE/..., as PaperBench's data/judge_eval.")],
    model: Models = None,
    judge: Baselines = None,
    example: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="Only this example, such as rice/0. Repeatable.")
    ] = None,
    base_url: BaseUrl = None,
    assignments: Assignments = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Write gradings and tables to this folder.")
    ] = Path("judge_eval_results"),
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Measure how well judges grade, on submissions that people have graded.

    Exit code 1: leaves without a grade leave the score of a submission open by more than rubric.max_width.
    """
    papers = folder.resolve().parent / "papers"
    keys = [*([f"rubric.papers_dir={papers}"] if papers.is_dir() else []), *(assignments or [])]
    judges = named_judges(model, judge, base_url, keys)
    if any(settings.max_depth is not None for settings in judges.values()):
        raise typer.BadParameter("max_depth grades parts as a whole, but people graded the leaves. Leave it out.")
    examples = read_examples(folder, example or [])
    for entry in examples:
        for other in entry.others:
            print_stderr(f"{entry.id}: {other} is not graded, as people's grades are of {entry.submission.name}")
    if dry_run:
        print_plans(
            judges, lambda name, by: [entry.grading(by, out / file_name(name)) for entry in examples], json=json
        )
        return
    results, people = evaluate_judges(examples, judges, out), {entry.id: entry.people for entry in examples}
    if json:
        print_json(judge_eval_json(people, results))
    else:
        sys.stdout.writelines(f"{line}\n" for line in judge_eval_lines(people, results))
    print_stderr(f"The gradings and these tables are in {out}.")
    code = 0
    for result in results:
        for id_, output in result.outputs.items():
            problem = width_problem(output, judges[result.name].max_width)
            code = EXIT_CHECK_FAILED if problem else code
            for remark in (*output.warnings, *([problem] if problem else [])):
                print_stderr(one_line(f"{result.name}, {id_}: {remark}"))
    raise typer.Exit(code)


@measures.command()
def attack(
    *,
    submission: Annotated[
        Path, typer.Argument(metavar="SUBMISSION", help="An attempt at a paper: a folder or tar file.")
    ],
    paper: Annotated[str, typer.Option(metavar="ID", help="The paper that the submission attempts to reproduce.")],
    model: Models = None,
    judge: Baselines = None,
    base_url: BaseUrl = None,
    assignments: Assignments = None,
    max_inflation: Annotated[
        float | None,
        typer.Option(metavar="X", min=0, max=1, help="Fail if an attack raises a score by more than this."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Measure how far attacks raise a judge's score.

    The command grades a submission, and copies of it that try to mislead the judge. A leaf without a grade counts as 0.
    The harmless note is a control: its difference is the judge's noise. Exit code 1: a grading did not finish, the
    unchanged submission got no grade, or an attack exceeds --max-inflation.
    """
    judges = named_judges(model, judge, base_url, assignments)
    if dry_run:
        print_plans(judges, lambda _, settings: attack_gradings(submission, paper, settings), json=json)
        return
    results = [
        result
        for name, settings in judges.items()
        for result in attack_judge(name, CallFiles().client(settings), submission, paper)
    ]
    if json:
        print_json({"gradings": [vars(result) for result in results]})
    else:
        rows = []
        for result in results:
            figures = f"{result.submitted:.3f}", f"{result.attacked:.3f}", f"{result.difference:+.3f}"
            ungraded = f"{result.ungraded} of {result.leaves}"
            rows.append((printable_name(result.judge), result.attack, *figures, ungraded))
        print_table(("judge", "attack", "submitted", "attacked", "difference", "leaves without a grade"), rows)
    for result in results:
        if result.problem:
            print_stderr(f"{printable_name(result.judge)}, {result.attack}: {result.problem}")
    highest = max(result.difference for result in results if result.attack not in NO_ATTACKS)
    if any(result.problem for result in results) or (max_inflation is not None and highest > max_inflation):
        raise typer.Exit(EXIT_CHECK_FAILED)


@measures.command()
def table(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Grades of `pcgeval grade RUNS`, or PaperBench's folder of runs.")
    ],
    assignments: Assignments = None,
    disqualified: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Runs that count as 0: one name per line, or results of PaperBench's monitor."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Print finished grades as a table: submissions by papers, mean and standard error.

    The names of runs begin with those of the papers in rubric.papers_dir. Exit code 1: a run has no grade that counts;
    the table names it.
    """
    params = load_params_or_default(assignments or ())
    runs = find_runs(folder, list_papers(Path(params.rubric.papers_dir)))
    names = read_disqualified(disqualified) if disqualified else frozenset()
    grades = [RunGrade.read(run, params.rubric.max_width, names) for run in runs]
    print_grade_table(grades, json=json)
    if any(grade.problem for grade in grades):
        raise typer.Exit(EXIT_CHECK_FAILED)


@measures.command()
def leaves(
    rubric: Annotated[
        str, typer.Argument(metavar="RUBRIC", help="A folder of data/rubrics or data/papers, or a rubric.json.")
    ],
    form: Annotated[bool, typer.Option("--form", help="Print a form for grading by hand (--judge human).")] = False,
    json: Json = False,
) -> None:
    """List the leaves of a rubric: the criteria that are graded."""
    folders = (own_or_packaged(RUBRICS / rubric), own_or_packaged(PAPERS) / rubric, Path(rubric))
    file = next((folder / "rubric.json" for folder in folders if folder.is_dir()), Path(rubric))
    root, _ = load_rubric_with_checks(file)
    parts = NodeShare(grade_tree(root, lambda _: Verdict(1.0, ""))).walk()  # all passed, so that each has its share
    shares = [part.share for part in parts if part.node.is_leaf]
    values: list[dict[str, Any]] = []
    lines: list[str] = []
    for leaf, share in zip(root.leaves, shares, strict=True):
        values.append({**asdict(leaf), "share": share})
        by = f", check {leaf.check.name}" if leaf.check else ""
        line = one_line(f"{100 * share:6.2f} %  {leaf.path}  ({leaf.task_category}{by})")
        lines += form_lines(leaf.path, leaf.requirements) if form else [line]
    _print(values, lines, json=json)
