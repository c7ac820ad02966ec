"""Options of the commands that grade, and their output: plans, and the table of gradings."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pcgeval.cli.options import assign, print_json, print_table
from pcgeval.core.console import print_stderr
from pcgeval.core.untrusted import printable_name

if TYPE_CHECKING:
    from pcgeval.core.params import Model, Params
    from pcgeval.judge.plan import GradingPlan
    from pcgeval.judge.settings import JudgeSettings
    from pcgeval.rubric.grade_table import RunGrade

_OF_TRIALS = ("num_ctx", "num_predict", "seed", "temperature")  # options that a model of params.yaml has for trials

JudgeModel = Annotated[
    str | None,
    typer.Option(metavar="M", help="The judge's model: of params.yaml, `pcgeval models list`, OpenAI, or a server."),
]
MaxInvalid = Annotated[
    int, typer.Option(metavar="N", min=0, help="Accept up to N leaves without a grade; they count as 0.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the calls still to make, their tokens and price, and make none.")
]
Models = Annotated[
    list[str] | None, typer.Option(metavar="M", help="A judge's model, as in `pcgeval grade`. Repeatable.")
]
TableFormat = Annotated[
    Literal["csv", "json", "markdown", "latex"] | None,
    typer.Option("--format", help="Print the table for a spreadsheet, a program, a web page or a paper."),
]


class Baseline(StrEnum):
    """The judges that need no model."""

    RANDOM = "random"
    DUMMY = "dummy"
    CHECKS = "checks"


Baselines = Annotated[list[Baseline] | None, typer.Option(help="A judge without a model, for comparison. Repeatable.")]


def named_judges(
    models: Sequence[str] | None, others: Sequence[Baseline] | None, base_url: str | None, assignments: Sequence[str]
) -> "tuple[dict[str, JudgeSettings], dict[str, JudgeSettings]]":
    """Return the settings of the judges with these models, and of those that need none, by their names.

    Raises:
        BadParameter: There is none, or as `judge_settings` raises it.
    """
    from pcgeval.cli.settings import load_params_or_default

    if not models and not others:
        raise typer.BadParameter("name a judge: models with --model, and others with --judge.")
    params = load_params_or_default()
    return (
        {
            name: judge_settings(params, judge="simple", model=name, base_url=base_url, assignments=assignments)
            for name in models or ()
        },
        {name.value: judge_settings(params, judge=name.value, assignments=assignments) for name in others or ()},
    )


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

    Args:
        params: The competition.
        judge: The judge's name; default: `human` with a person's grades, `simple` with a model, else as in params.
        model: The judge's model, as `find_model_to_ask` finds it.
        base_url: An endpoint of OpenAI's interface that has this model.
        assignments: `rubric.KEY=VALUE`, as in params.yaml.
        human_grades: The file of a person's grades.

    Raises:
        BadParameter: An option is incomplete, or is no assignment.
        GradingError: A value is invalid.
        SettingsError: There is no such model.
    """
    from pcgeval.judge.settings import JudgeSettings

    if base_url is not None and not (base_url and model):
        raise typer.BadParameter("--base-url says where a model is asked. Name the model with --model, and an address.")
    values: dict[str, Any] = params.rubric.model_dump(exclude_unset=True)
    if model is not None:
        values["model"] = _model_of_judge(params, model, base_url).model_dump(exclude_unset=True)
    named = judge or ("human" if human_grades else "simple" if model else None)
    values |= {"judge": named} if named else {}
    values |= {"human_grades": human_grades} if human_grades else {}
    for assignment in assignments:
        if not assignment.startswith("rubric."):
            raise typer.BadParameter(f"--set {assignment}: a judge has keys of `rubric`, such as rubric.votes=3.")
        assign({"rubric": values}, assignment)
    return JudgeSettings.checked(values)


def _model_of_judge(params: "Params", name: str, base_url: str | None) -> "Model":
    """Return the model of this name, without the options that params.yaml gives it for trials."""
    from pcgeval.cli.settings import find_model_to_ask

    model = find_model_to_ask(params, name, None, base_url)
    options = {option: value for option, value in model.options.items() if option not in _OF_TRIALS}
    dropped = sorted(set(model.options) - set(options))
    if dropped and name in {*params.models, *(model.name for model in params.models.values())}:
        print_stderr(f"model {name}: {', '.join(dropped)} in params.yaml are for trials, and not for the judge")
    return model.model_copy(update={"options": options})


def print_judge_plans(planned: "Mapping[str, tuple[Sequence[GradingPlan], JudgeSettings]]", *, json: bool) -> None:
    """Print what the gradings of several judges would cost, by the judge's name: a table each, or one JSON value."""
    named = {
        judge: [replace(plan, name=f"{judge}, {plan.name}") for plan in plans] for judge, (plans, _) in planned.items()
    }
    if json:
        _print_plans_json([plan for plans in named.values() for plan in plans])
        return
    for judge, (_, settings) in planned.items():
        print_plans(named[judge], settings, json=False)


def _print_plans_json(plans: "Sequence[GradingPlan]") -> None:
    from pcgeval.judge.plan import total_plan

    costs = [plan.cost for plan in plans if plan.cost is not None]  # judges may have different prices
    total = {**total_plan(plans).to_json(), "cost": sum(costs) if len(costs) == len(plans) else None}
    print_json({"gradings": [plan.to_json() for plan in plans], "total": total})


def print_plans(
    plans: "Sequence[GradingPlan]", settings: "JudgeSettings", *, json: bool, reproduce: bool = False
) -> None:
    """Print what gradings would cost, a line each and one for all, and whether that is more than the settings' budget.

    Args:
        plans: The plan of each grading.
        settings: The settings of all.
        json: Whether to print JSON.
        reproduce: Whether the gradings come after a run of reproduce.sh.
    """
    from pcgeval.judge.plan import total_plan

    if json:
        _print_plans_json(plans)
        return
    whole = total_plan(plans)
    columns = ("grading", "calls", "known", "input tokens", "cached", "output tokens", "US dollars")
    print_table(columns, [_plan_row(plan) for plan in (*plans, *([whole] if len(plans) > 1 else []))])
    print_stderr(
        "An estimate; no call was made. Known replies cost nothing. A token is four bytes; answers are as long as "
        "those in the call log, else as a stated figure. Of more than ten files, ten from the top folder are taken."
    )
    tokens = whole.prompt_tokens + whole.output_tokens
    for is_more, key, most in (
        ((whole.cost or 0) > (settings.max_cost or math.inf), "max_cost", settings.max_cost),
        (tokens > (settings.token_budget or math.inf), "token_budget", settings.token_budget),
    ):
        if is_more:
            print_stderr(f"This is more than the budget: {key} {most} would end the grading early.")
    if reproduce and whole.leaves_of_results:
        print_stderr(
            f"reproduce.sh was not run. If it makes results, {whole.leaves_of_results} more leaves are asked about "
            "than this estimate has."
        )


def _plan_row(plan: "GradingPlan") -> tuple[str, ...]:
    from pcgeval.rubric.text import dollars

    return (
        printable_name(plan.name),
        str(plan.calls),
        str(plan.known_calls),
        f"{plan.prompt_tokens:_}".replace("_", " "),
        f"{plan.cached_tokens / plan.prompt_tokens:.0%}" if plan.prompt_tokens else "-",
        f"{plan.output_tokens:_}".replace("_", " "),
        "unknown" if plan.cost is None else dollars(plan.cost),
    )


def print_grade_table(
    grades: "Sequence[RunGrade]", form: Literal["csv", "json", "markdown", "latex"] | None, *, json: bool
) -> None:
    """Print the means of gradings as a table."""
    from pcgeval.report.tables import table_text
    from pcgeval.rubric.grade_table import COLUMNS, grade_table

    rows = grade_table(grades)
    for grade in grades:
        for name in grade.run.left_out():
            print_stderr(f"{printable_name(grade.run.id)}: {printable_name(name)} is not graded")
    if json or form == "json":
        print_json({"rows": [row.to_json() for row in rows], "gradings": [grade.to_json() for grade in grades]})
        return
    cells = [row.cells(exact=form == "csv") for row in rows]
    if form is not None:
        sys.stdout.write(table_text(COLUMNS, cells, form, texts=("submission", "paper", "problems")))
        return
    print_table(COLUMNS[:-1], [row[:-1] for row in cells])
    for problem in dict.fromkeys(grade.problem for grade in grades if grade.problem):
        names = [printable_name(grade.run.id) for grade in grades if grade.problem == problem]
        sys.stdout.writelines(f"{line}\n" for line in (*names, f"    {problem}"))
