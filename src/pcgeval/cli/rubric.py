"""The commands `pcgeval rubric ...`."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pcgeval.cli.grade_output import TableFormat, print_grade_table
from pcgeval.cli.judge_options import DryRun, MaxInvalid, judge_settings, print_plans
from pcgeval.cli.options import (
    Assignments,
    BaseUrl,
    GradeFormat,
    Html,
    Json,
    group,
    print_json,
    print_table,
    refuse_two_formats,
)
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.files import to_json
from pcgeval.core.layout import PAPERS
from pcgeval.core.untrusted import printable_name

if TYPE_CHECKING:
    from pcgeval.judge.attack import AttackResult
    from pcgeval.judge.settings import JudgeSettings
    from pcgeval.rubric.agreement import Pair
    from pcgeval.rubric.explanation import NodeShare

MAX_NAMES = 20  # in one message


class Baseline(StrEnum):
    """The judges that need no model."""

    RANDOM = "random"
    DUMMY = "dummy"
    CHECKS = "checks"


app = group()


@app.command()
def show(
    grade: Annotated[Path, typer.Argument(metavar="GRADE", help="A grade.json, or a grading of PaperBench.")],
    leaf: Annotated[
        str | None, typer.Option(metavar="NUMBER", help="A criterion by its number, its path, or the end of its path.")
    ] = None,
    page: Html = None,
    json: Json = False,
) -> None:
    """Explain a grade: the whole tree, or one criterion.

    A criterion is explained from the root down to the judge's words.
    """
    from pcgeval.rubric.explanation import NodeShare, way_to
    from pcgeval.rubric.grade_files import read_grade
    from pcgeval.rubric.text import criterion_lines, summary_lines, tree_lines

    output = read_grade(grade)
    if page:
        from pcgeval.core.files import write_text
        from pcgeval.report.gradings import grade_page

        write_text(page, grade_page(output, str(grade)))
    tree = output.graded_task_tree
    if leaf is None:
        values = {**output.to_json(), "parts": [_share_json(share) for share in NodeShare(tree).walk()]}
        del values["graded_task_tree"]
        lines = [*summary_lines(output), "", *tree_lines(tree)]
    else:
        way = way_to(tree, leaf)
        node = {**way[-1].node.to_json(), "sub_tasks": [_share_json(share) for share in way[-1].below]}
        values = {"way": [_share_json(share) for share in way], "node": node}
        lines = list(criterion_lines(output, way))
    sys.stdout.write((to_json(values) if json else "\n".join(lines)) + "\n")


@app.command()
def convert(
    grade: Annotated[
        Path,
        typer.Argument(metavar="GRADE", help="A grade.json, or a grading of PaperBench."),
    ],
    form: GradeFormat = "paperbench",
) -> None:
    """Print a grade as JSON in another format."""
    from pcgeval.rubric.grade_files import paperbench_json, read_grade

    output = read_grade(grade)
    sys.stdout.write(to_json(output.to_json() if form == "pcgeval" else paperbench_json(output)) + "\n")


def _share_json(share: "NodeShare") -> dict[str, Any]:
    node = share.node
    return {
        "number": share.number,
        "path": node.path,
        "requirements": node.requirements,
        "weight": node.weight,
        "score": node.score,
        "share": share.share,
        "contribution": share.contribution,
    }


@app.command()
def agreement(
    a: Annotated[Path, typer.Argument(metavar="A", help="A grade.json, or a folder of them.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The same of the other judge.")],
    form: Annotated[
        bool, typer.Option("--form", help="Print a form for a person to decide where they differ (--judge human).")
    ] = False,
    json: Json = False,
) -> None:
    """Measure how far two gradings by one rubric agree, and where A is right if B is the truth."""
    from pcgeval.rubric.agreement import agreement, agreement_lines, disagreement_form

    pairs = list(_read_pairs(a, b))
    if form and len(pairs) != 1:
        raise typer.BadParameter("--form is for one submission: name two files of grades.")
    refuse_two_formats("form" if form else None, json=json, option="--form")
    result = agreement(pairs)
    if form:
        sys.stdout.write("".join(f"{line}\n" for line in disagreement_form(pairs[0].a, pairs[0].b)))
        return
    sys.stdout.write((to_json(result.to_json()) if json else "\n".join(agreement_lines(result))) + "\n")


def _read_pairs(a: Path, b: Path) -> Iterator["Pair"]:
    """Yield the gradings that belong together: two files, or those of the same name in two folders."""
    from pcgeval.core.layout import GRADE_FILE
    from pcgeval.rubric.agreement import Pair
    from pcgeval.rubric.grade_files import read_graded_tree
    from pcgeval.rubric.grades import GradeError

    def grade_files(folder: Path) -> dict[str, Path]:
        files = {path.stem: path for path in folder.glob("*.json")}
        return files | {path.parent.name: path for path in folder.glob(f"*/{GRADE_FILE}")}

    if a.is_dir() != b.is_dir():
        raise GradeError(f"{a} and {b}: give two files or two folders.")
    if not a.is_dir():
        yield Pair("", read_graded_tree(a), read_graded_tree(b))
        return
    in_a, in_b = grade_files(a), grade_files(b)
    for folder, missing in ((b, in_a.keys() - in_b.keys()), (a, in_b.keys() - in_a.keys())):
        if missing:
            raise GradeError(f"{folder}: has no grading of {', '.join(sorted(missing)[:MAX_NAMES])}. Add it.")
    if not in_a:
        raise GradeError(f"{a}: has no gradings (NAME.json or NAME/{GRADE_FILE}).")
    for name in sorted(in_a):
        yield Pair(name, read_graded_tree(in_a[name]), read_graded_tree(in_b[name]))


@app.command()
def judge_eval(
    *,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="PAPER/EXAMPLE/..., as PaperBench's data/judge_eval.")],
    model: Annotated[
        list[str] | None, typer.Option(metavar="M", help="A judge, as `pcgeval grade` takes it; can be given again.")
    ] = None,
    judge: Annotated[
        list[Baseline] | None, typer.Option(help="A judge without a model, beside these; can be given again.")
    ] = None,
    votes: Annotated[
        list[int] | None, typer.Option(metavar="N", help="How often a model grades each leaf; can be given again.")
    ] = None,
    example: Annotated[
        list[str] | None, typer.Option(metavar="ID", help="One of the examples, such as rice/0; can be given again.")
    ] = None,
    base_url: BaseUrl = None,
    assignments: Assignments = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", file_okay=False, help="Where gradings and tables are written.")
    ] = Path("judge_eval_results"),
    dry_run: DryRun = False,
    max_invalid: MaxInvalid = 0,
    json: Json = False,
) -> None:
    """Measure how well judges grade, on submissions that people have graded.

    Exit code 1 means that a grading of a model has more than --max-invalid leaves without a grade.
    """
    from pcgeval.judge import judge_eval as evaluation
    from pcgeval.judge.grading import GradingProgress
    from pcgeval.rubric.judge_figures import judge_eval_json, judge_eval_lines

    judges = _judges(
        folder, model or [], [baseline.value for baseline in judge or ()], votes or [], base_url, assignments or []
    )
    examples = evaluation.read_examples(folder, example or [])
    for named in examples:
        for other in named.others:
            print_stderr(f"{named.id}: {other} is not graded, as people's grades are of {named.submission.name}")
    with evaluation.unpacked(examples) as examples:
        if dry_run:
            for name, settings in judges.items():
                plans = evaluation.plan_judge(examples, settings)
                print_plans([replace(plan, name=f"{name}, {plan.name}") for plan in plans], settings, json=json)
            return
        results = evaluation.evaluate_judges(examples, judges, out, GradingProgress)
    people = {example.id: example.expected for example in examples}
    if json:
        print_json(judge_eval_json(people, results))
    else:
        sys.stdout.writelines(f"{line}\n" for line in judge_eval_lines(people, results))
    outputs = [(result.name, id_, output) for result in results for id_, output in result.outputs.items()]
    for name, id_, output in outputs:
        for warning in output.warnings:
            print_stderr(f"{name}, {id_}: {warning}")
    print_stderr(f"the gradings and these tables stand in {out}")
    if any(output.num_invalid_leaf_nodes > max_invalid for _, _, output in outputs):
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def attack(
    *,
    submission: Annotated[Path, typer.Argument(metavar="SUBMISSION", help="The folder of an attempt at a paper.")],
    paper: Annotated[str, typer.Option(metavar="ID", help="The paper that the submission attempts to reproduce.")],
    model: Annotated[
        list[str] | None, typer.Option(metavar="M", help="A judge, as `pcgeval grade` takes it; can be given again.")
    ] = None,
    judge: Annotated[
        list[Baseline] | None, typer.Option(help="A judge without a model, beside these; can be given again.")
    ] = None,
    base_url: BaseUrl = None,
    assignments: Assignments = None,
    max_inflation: Annotated[
        float | None,
        typer.Option(metavar="X", min=0, max=1, help="Exit with 1 where an attack raises a score by more than this."),
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Measure how far attacks raise a judge's score: a submission is graded, and copies that try to mislead the judge.

    A leaf without a grade counts as 0. The harmless note is no attack: its difference is the judge's noise. Exit code 1
    means that a grading did not come to its end, that the submission as it is got no grade, or what --max-inflation
    says.
    """
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.judge.attack import attack_judge, plan_attacks
    from pcgeval.judge.grading import GradingProgress

    if not model and not judge:
        raise typer.BadParameter("name what to attack: models with --model, and others with --judge.")
    params, keys = load_params_or_default(), assignments or ()
    judges = {
        name: judge_settings(params, judge="simple", model=name, base_url=base_url, assignments=keys)
        for name in model or ()
    }
    judges |= {name.value: judge_settings(params, judge=name.value, assignments=keys) for name in judge or ()}
    if dry_run:
        for name, settings in judges.items():
            plans = plan_attacks(settings, submission, paper)
            print_plans([replace(plan, name=f"{name}, {plan.name}") for plan in plans], settings, json=json)
        return
    results = [
        result
        for name, settings in judges.items()
        for result in attack_judge(name, settings, submission, paper, GradingProgress)
    ]
    if json:
        print_json({"gradings": [result.to_json() for result in results]})
    else:
        columns = ("judge", "attack", "submitted", "attacked", "difference", "leaves without a grade")
        print_table(columns, [_attack_row(result) for result in results])
    for result in results:
        if result.problem:
            print_stderr(f"{printable_name(result.judge)}, {result.attack}: {result.problem}")
    highest = max(result.difference for result in results if result.is_attack)
    if any(result.problem for result in results) or (max_inflation is not None and highest > max_inflation):
        raise typer.Exit(EXIT_CHECK_FAILED)


def _attack_row(result: "AttackResult") -> tuple[str, ...]:
    figures = f"{result.submitted:.3f}", f"{result.attacked:.3f}", f"{result.difference:+.3f}"
    return printable_name(result.judge), result.attack, *figures, f"{result.ungraded} of {result.leaves}"


def _judges(
    folder: Path,
    models: Sequence[str],
    others: "Sequence[Literal['random', 'dummy', 'checks']]",
    votes: Sequence[int],
    base_url: str | None,
    assignments: Sequence[str],
) -> dict[str, "JudgeSettings"]:
    from pcgeval.cli.settings import load_params_or_default
    from pcgeval.judge.judge_eval import judges_of

    if not models and not others:
        raise typer.BadParameter("name what to measure: models with --model, and others with --judge.")
    if (papers := folder.resolve().parent / "papers").is_dir():
        assignments = [f"rubric.papers_dir={papers}", *assignments]
    params = load_params_or_default()
    judges = judges_of(
        {
            name: judge_settings(params, judge="simple", model=name, base_url=base_url, assignments=assignments)
            for name in models
        },
        votes,
        {name: judge_settings(params, judge=name, assignments=assignments) for name in others},
    )
    if any(settings.max_depth is not None for settings in judges.values()):
        raise typer.BadParameter("max_depth grades parts as a whole, but people graded the leaves. Leave it out.")
    return judges


@app.command()
def table(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Grades of a folder of runs, or PaperBench's folder of runs.")
    ],
    papers_dir: Annotated[Path, typer.Option(metavar="DIR", help="The papers, whose ids begin the names.")] = PAPERS,
    disqualified: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Runs that do not count: a name a line, or results of PaperBench's monitor."),
    ] = None,
    max_invalid: MaxInvalid = 0,
    form: TableFormat = None,
    json: Json = False,
) -> None:
    """Print a table of grades that are there: submissions by papers, mean and standard error.

    Exit code 1 means that a run has no grade that counts; the table names it.
    """
    from pcgeval.rubric.grade_table import RunGrade, read_disqualified
    from pcgeval.rubric.papers import list_papers
    from pcgeval.rubric.runs import find_runs

    refuse_two_formats(form, json=json)
    runs = find_runs(folder, list_papers(papers_dir))
    names = read_disqualified(disqualified) if disqualified else frozenset()
    grades = [RunGrade.read(run, max_invalid=max_invalid, disqualified=names) for run in runs]
    print_grade_table(grades, form, json=json)
    if any(grade.problem for grade in grades):
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def leaves(
    rubric: Annotated[
        str, typer.Argument(metavar="RUBRIC", help="A folder of data/rubrics or data/papers, or a rubric.json.")
    ],
    form: Annotated[bool, typer.Option("--form", help="Print a form for grading by hand (--judge human).")] = False,
    json: Json = False,
) -> None:
    """List the criteria of a rubric that are graded."""
    from pcgeval.core.layout import RUBRICS, own_or_packaged
    from pcgeval.core.untrusted import one_line
    from pcgeval.rubric.explanation import NodeShare
    from pcgeval.rubric.grades import Verdict, grade_tree
    from pcgeval.rubric.loading import load_rubric_with_checks
    from pcgeval.rubric.text import form_lines
    from pcgeval.rubric.tree import leaves as leaves_of

    refuse_two_formats("form" if form else None, json=json, option="--form")
    folders = (own_or_packaged(RUBRICS / rubric), own_or_packaged(PAPERS) / rubric, Path(rubric))
    file = next((folder / "rubric.json" for folder in folders if folder.is_dir()), Path(rubric))
    root, _ = load_rubric_with_checks(file)
    tree = grade_tree(root, lambda _: Verdict(1.0, ""))  # all passed, so that each leaf has its share
    parts = {part.node.path: part for part in NodeShare(tree).walk()}
    values: list[dict[str, Any]] = []
    lines: list[str] = []
    for leaf in leaves_of(root):
        share = parts[leaf.path].share
        check = None if leaf.check is None else {"name": leaf.check.name, "arguments": dict(leaf.check.arguments)}
        fields = {"path": leaf.path, "id": leaf.id, "share": share, "task_category": leaf.task_category}
        values.append({**fields, "requirements": leaf.requirements, "check": check})
        if form:
            lines += form_lines(leaf.path, leaf.requirements)
        else:
            by = f", check {leaf.check.name}" if leaf.check else ""
            lines.append(one_line(f"{100 * share:6.2f} %  {leaf.path}  ({leaf.task_category}{by})"))
    sys.stdout.write((to_json(values) if json else "\n".join(lines)) + "\n")
