"""The command `generate`: ask the models for the trials of all teams in turn."""

import os
from typing import Annotated

import typer

from pcgeval.cli.options import Scheduler, group
from pcgeval.core.console import EXIT_BAD_INPUT, Progress, print_stderr

app = group()


@app.command()
def generate(
    model: Annotated[
        list[str] | None, typer.Option(metavar="M", help="Only this model of params.yaml; may be repeated.")
    ] = None,
    scheduler: Scheduler = None,
) -> None:
    """Ask the models for all teams' trials, letter by letter.

    Recorded models are left to `dvc repro`, which replays them. Finished trials are kept. Models on several machines
    are asked at once by one such command each, in terminals of their own.
    """
    from pcgeval.core.layout import trials
    from pcgeval.core.params import load_params
    from pcgeval.core.spread import chosen_scheduler
    from pcgeval.generation.generate import report_to
    from pcgeval.generation.turns import generate_in_turn
    from pcgeval.sandbox.sandbox import TRUST_PROGRAMS

    params = load_params()
    if unknown := [name for name in model or () if name not in params.models]:
        raise typer.BadParameter(f"model {unknown[0]!r}: params.yaml has {', '.join(params.models)}.")
    failed = False
    for name in model or params.models:
        if params.models[name].backend == "recorded":
            continue
        report = report_to(Progress(f"generate with {name}", len(params.teams) * len(list(trials(params)))))
        trusted = os.environ.get(TRUST_PROGRAMS) == "1"
        cluster = scheduler or chosen_scheduler(params)
        for error in generate_in_turn(params, name, report, trust_programs=trusted, scheduler=cluster):
            print_stderr(f"{name}: {error}")
            failed = True
    if failed:
        raise typer.Exit(EXIT_BAD_INPUT)
