"""Options of the judge on the command line, as one object that every command that grades takes whole."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from pcgeval.cli.options import BaseUrl, Host, print_json, print_table, within
from pcgeval.core.console import print_stderr
from pcgeval.core.untrusted import printable_name

if TYPE_CHECKING:
    from pcgeval.core.params import Model, Params
    from pcgeval.judge.plan import GradingPlan
    from pcgeval.judge.settings import JudgeSettings

MAX_TEMPERATURE = 2.0  # of the common endpoints
MIN_CONTEXT, MAX_CONTEXT = 1024, 2**24  # as in params.yaml
_OF_TRIALS = ("num_ctx", "num_predict", "seed", "temperature")  # options that a model of params.yaml has for trials

MaxInvalid = Annotated[
    int, typer.Option(metavar="N", min=0, help="Exit with 0 where at most N leaves have no grade; they count as 0.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print calls, tokens and price of what is still to be asked, and ask nothing.")
]


@dataclass(frozen=True)
class JudgeOptions:
    """The options of `pcgeval grade` that are settings of the judge; what is None or False is as in params.yaml."""

    papers_dir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Default: as in params.yaml, or data/papers.")
    ] = None
    judge: Annotated[
        Literal["simple", "checks", "random", "dummy", "human"] | None,
        typer.Option(help="Default: as in params.yaml; simple with --model, human with --grades."),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(metavar="M", help="The judge: a model of params.yaml, a local one, OpenAI's, or a server's."),
    ] = None
    host: Host = None
    base_url: BaseUrl = None
    votes: Annotated[int | None, typer.Option(metavar="N", help="How often the model grades each leaf.")] = None
    temperature: Annotated[
        float | None,
        typer.Option(metavar="T", callback=within(0, MAX_TEMPERATURE), help="Of the model; votes differ only above 0."),
    ] = None
    reasoning_effort: Annotated[
        str | None, typer.Option(metavar="E", help="Of a reasoning model: low, medium, high, ...")
    ] = None
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Of the judge; default: 0.")] = (
        None
    )
    context: Annotated[
        int | None,
        typer.Option(metavar="N", callback=within(MIN_CONTEXT, MAX_CONTEXT), help="Tokens of a call with its answer."),
    ] = None
    answer_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=16, help="Room for an answer; default: the model's.")
    ] = None
    prompts: Annotated[
        Literal["pcgeval", "paperbench"] | None,
        typer.Option(help="The family of prompts; default: as in params.yaml, or pcgeval."),
    ] = None
    deadline: Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop asking the model after that.")] = None
    concurrency: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=256, help="Calls at once; default: as in params.yaml, or 1.")
    ] = None
    max_cost: Annotated[
        float | None,
        typer.Option(
            metavar="USD", callback=within(1e-9, 1e9), help="End before the calls cost more, by the model's price."
        ),
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="End before the calls read and write more tokens.")
    ] = None
    code_only: Annotated[bool, typer.Option("--code-only", help="Grade the leaves about code only.")] = False
    resources_provided: Annotated[
        bool, typer.Option("--resources-provided", help="Give no weight to acquiring data and models.")
    ] = False
    max_depth: Annotated[
        int | None, typer.Option(metavar="N", help="Grade everything deeper than N levels as a whole.")
    ] = None
    ignore_checks: Annotated[
        bool, typer.Option("--ignore-checks", help="Ask the model about leaves with a check too.")
    ] = False

    @property
    def address(self) -> str | None:
        """The address of the model's server, if one was named."""
        return self.host or self.base_url

    def settings(
        self, params: "Params", *, human_grades: Path | None = None, checks_file: Path | None = None
    ) -> "JudgeSettings":
        """Return the settings of params.yaml with those of the command line in their place.

        Raises:
            BadParameter: Two options contradict each other.
            GradingError: A value is invalid.
            SettingsError: There is no such model.
        """
        from pcgeval.judge.settings import JudgeSettings

        if "" in (self.host, self.base_url):
            raise typer.BadParameter("--host and --base-url must not be empty. Name the address, or leave them out.")
        if self.host and self.base_url:
            raise typer.BadParameter("--host and --base-url both say where the model is. Leave one of them out.")
        if self.address and not self.model:
            raise typer.BadParameter(
                "--host and --base-url say where a model is asked. Name the model with --model, or leave them out."
            )
        model = self._model(params)
        given: dict[str, Any] = {
            "judge": self.judge or ("human" if human_grades else "simple" if self.model else None),
            "model": model and dict(model),
            "seed": self.seed,
            "votes": self.votes,
            "prompts": self.prompts,
            "context": self.context,
            "deadline": self.deadline,
            "max_cost": self.max_cost,
            "max_tokens": self.max_tokens,
            "papers_dir": self.papers_dir and str(self.papers_dir),
            "human_grades": human_grades,
            "checks_file": checks_file,
            "max_depth": self.max_depth,
            "code_only": self.code_only or None,
            "resources_provided": self.resources_provided or None,
            "ignore_checks": self.ignore_checks or None,
        }
        named = {name: value for name, value in given.items() if value is not None}
        return JudgeSettings.checked({**dict(params.rubric), **named})

    def _model(self, params: "Params") -> "Model | None":
        """Return the model of the command line, or else of params.yaml, with the options of the command line."""
        from pcgeval.cli.settings import find_model_to_ask

        model, name = params.rubric.model, self.model
        if name is not None:
            model = find_model_to_ask(params, name, self.host, self.base_url)
            options = {option: value for option, value in model.options.items() if option not in _OF_TRIALS}
            left_out = sorted(set(model.options) - set(options))
            if left_out and name in {*params.models, *(each.name for each in params.models.values())}:
                print_stderr(
                    f"model {name}: {', '.join(left_out)} in params.yaml are for trials, and not for the judge"
                )
            model = model.model_copy(update={"options": options})
        own = {
            "temperature": self.temperature,
            "reasoning_effort": self.reasoning_effort,
            "num_predict": self.answer_tokens,
        }
        given = {option: value for option, value in own.items() if value is not None}
        at_once = {} if self.concurrency is None else {"concurrency": self.concurrency}
        return model and model.model_copy(update={"options": {**model.options, **given}, **at_once})


def with_judge_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command's argument `options` the options of `JudgeOptions`, which stand on its command line one by one.

    Options that the command declares itself, such as ones that can be given several times, stay its own.
    """
    own = inspect.signature(command).parameters
    names = [field.name for field in fields(JudgeOptions) if field.name not in own]
    defaults = {field.name: field.default for field in fields(JudgeOptions)}
    kinds = get_type_hints(JudgeOptions, include_extras=True)

    @wraps(command)
    def with_one_object(**given: Any) -> None:
        command(options=JudgeOptions(**{name: given.pop(name) for name in names}), **given)

    parameters: list[inspect.Parameter] = []
    for parameter in own.values():
        if parameter.name != "options":
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=kinds[name])
            for name in names
        ]
    with_one_object.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_one_object.__annotations__ = {each.name: each.annotation for each in parameters}
    return with_one_object


def print_plans(
    plans: "Sequence[GradingPlan]", settings: "JudgeSettings", *, json: bool = False, reproduce: bool = False
) -> None:
    """Print what gradings would cost, a line each and one for all, and whether that is more than the settings' budget.

    `reproduce`: after a run of reproduce.sh.
    """
    from pcgeval.judge.plan import total_plan

    whole = total_plan(plans)
    if json:
        print_json({"gradings": [plan.to_json() for plan in plans], "total": whole.to_json()})
        return
    columns = ("grading", "calls", "known", "input tokens", "cached", "output tokens", "US dollars")
    print_table(columns, [_plan_row(plan) for plan in (*plans, *([whole] if len(plans) > 1 else []))])
    print_stderr(
        "An estimate; no call was made. Known replies cost nothing. Nobody knows which files the model will choose: "
        "ten by chance are taken for each leaf, and a token for each four bytes."
    )
    tokens = whole.prompt_tokens + whole.output_tokens
    for is_more, option, most in (
        ((whole.cost or 0) > (settings.max_cost or math.inf), "--max-cost", settings.max_cost),
        (tokens > (settings.max_tokens or math.inf), "--max-tokens", settings.max_tokens),
    ):
        if is_more:
            print_stderr(f"This is more than the budget: {option} {most} would end the grading early.")
    if reproduce and whole.leaves_of_results:
        print_stderr(
            f"reproduce.sh was not run. If it makes results, {whole.leaves_of_results} more leaves are asked about "
            "than this estimate has."
        )


def _plan_row(plan: "GradingPlan") -> tuple[str, ...]:
    from pcgeval.rubric.text import dollars

    cached = f"{plan.cached_tokens / plan.prompt_tokens:.0%}" if plan.prompt_tokens else "-"
    cost = "unknown" if plan.cost is None else dollars(plan.cost)
    tokens = (f"{plan.prompt_tokens:,}", cached, f"{plan.output_tokens:,}")
    return (
        printable_name(plan.name),
        str(plan.calls),
        str(plan.known_calls),
        *(each.replace(",", " ") for each in tokens),
        cost,
    )
