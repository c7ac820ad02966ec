"""The command `status`: the progress of a run."""

import sys
import time
from typing import Annotated

import typer

from pcgeval.cli.options import Json, group, print_json, print_table
from pcgeval.core.console import print_stderr
from pcgeval.core.text import duration
from pcgeval.formats.params import load_params
from pcgeval.report.status import RunStatus, run_status

app = group()
WATCH_SECONDS = 5.0  # between two looks


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Repeat until all trials are evaluated.")] = False,
    json: Json = False,
) -> None:
    """Show the progress of a run: trials done, failed and left.

    The command works before, during and after a run, and never disturbs it. It estimates the time left from earlier
    calls to the same models.
    """
    while True:
        run = run_status(load_params())
        if json:
            print_json(run.to_json())
        else:
            if watch and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")  # from the top of an empty screen
            _print_status(run)
        sys.stdout.flush()
        if run.done or not watch:
            return
        time.sleep(WATCH_SECONDS)


def _print_status(run: RunStatus) -> None:
    rows = [
        (
            team.model,
            team.team,
            f"{team.done}/{team.trials}",
            str(team.failed),
            str(team.repeated),
            str(team.flagged),
            f"{team.tokens:,}",
            "?" if team.trial_seconds is None else f"{team.trial_seconds:.1f}",
            "?" if team.seconds_left is None else duration(team.seconds_left) if team.seconds_left else "-",
            team.state,
        )
        for team in run.teams
    ]
    columns = ("model", "team", "trials", "failed", "again", "flagged", "tokens", "s/trial", "left", "state")
    print_table(columns, rows, rare={"again", "flagged"})
    print(run.summary)
    for note in run.notes:
        print_stderr(note)
