"""Options of the commands that grade, and their output: plans, and the table of gradings."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pcgeval.cli.options import assign, print_json, print_table
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.text import printable_name

if TYPE_CHECKING:
    from pcgeval.formats.params import Params
    from pcgeval.judge.many import Grading
    from pcgeval.judge.settings import JudgeSettings
    from pcgeval.rubric.papers import RunGrade

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


def judge_settings(
    params: "Params",
    *,
    judge: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    assignments: Sequence[str] = (),
    human_grades: Path | None = None,
) -> "JudgeSettings":
    """Return the settings of params.yaml with those of the command line in their place.

    Options that a model of params.yaml has for trials are left out. Raises BadParameter, GradingError or SettingsError
    if an option is incomplete, a value invalid or the model unknown.
    """
    from pcgeval.cli.settings import find_model_to_ask
    from pcgeval.judge.settings import JudgeSettings

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
) -> "dict[str, JudgeSettings]":
    """Return the settings of the judges with these models, and of those that need none, by their names."""
    from pcgeval.cli.settings import load_params_or_default

    if not models and not others:
        raise typer.BadParameter("name a judge: models with --model, and others with --judge.")
    params = load_params_or_default()
    named = {
        name: judge_settings(params, judge="simple", model=name, base_url=base_url, assignments=assignments or ())
        for name in models or ()
    }
    return named | {name: judge_settings(params, judge=name, assignments=assignments or ()) for name in others or ()}


def print_plans(
    judges: "Mapping[str, JudgeSettings]",
    gradings_of: "Callable[[str, JudgeSettings], Iterable[Grading]]",
    *,
    recordings: Sequence[Path] = (),
    json: bool,
) -> None:
    """Print what the gradings by each judge would cost; exit with 1 if some would fail, which are named.

    The error of a grading that is alone is raised.
    """
    from pcgeval.judge.calls import CallFiles
    from pcgeval.judge.many import GradingPlan, plan_all, total_plan
    from pcgeval.rubric.explanation import dollars

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


def print_grade_table(grades: "Sequence[RunGrade]", *, json: bool) -> None:
    """Print the means of gradings as a table, and below it why gradings do not count."""
    from pcgeval.rubric.papers import COLUMNS, grade_table

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
