"""The commands that look at a run: `status`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcgeval.cli.options import Json, group, print_json, within
from pcgeval.core.console import duration, print_stderr

if TYPE_CHECKING:
    from pcgeval.report.status import RunStatus

app = group()


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Look again until all trials are evaluated.")] = False,
    every: Annotated[
        int, typer.Option(metavar="SECONDS", callback=within(1, 86_400), help="The time between two looks.")
    ] = 10,
    page: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write it as a page for a browser.")] = None,
    json: Json = False,
) -> None:
    """Show a run: trials done, time left, provisional ranking.

    It works before, during and after a run, and never disturbs it. Before the run, the time is estimated by earlier
    calls to the same models.
    """
    from pcgeval.core.params import load_params
    from pcgeval.report.status import run_status, write_status_page

    while True:
        params = load_params()
        found = run_status(params)
        goes_on = watch and not found.done
        if page:
            write_status_page(params, found, page, every if goes_on else None)
        if json:
            print_json(found.to_json())
        else:
            if watch and sys.stdout.isatty():
                sys.stdout.write("\x1b[H\x1b[2J")  # from the top of an empty screen
            _print_status(found)
        sys.stdout.flush()
        if not goes_on:
            return
        time.sleep(every)


def _print_status(found: "RunStatus") -> None:
    from rich.console import Console
    from rich.table import Table

    from pcgeval.scoring.decimals import rounded

    console = Console(width=None if sys.stdout.isatty() else 140, markup=False, emoji=False, highlight=False)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("model", "team", "trials", "failed", "again", "flagged", "tokens", "s a trial", "left", "state"):
        table.add_column(column, justify="left" if column in {"model", "team", "state"} else "right")
    for each in found.teams:
        left = "-" if not each.seconds_left else duration(each.seconds_left)
        table.add_row(
            each.model,
            each.team,
            f"{each.done}/{each.trials}",
            str(each.failed),
            str(each.repeated or "-"),
            str(each.flagged),
            f"{each.tokens:,}",
            "?" if each.trial_seconds is None else f"{each.trial_seconds:.1f}",
            "?" if each.seconds_left is None else left,
            each.state + (f", {each.per_minute:.1f} trials/min" if each.per_minute else ""),
        )
    console.print(table)
    sys.stdout.write(f"{found.summary}\n")
    for note in found.notes:
        print_stderr(note)
    if found.ranking:
        sys.stdout.write(f"\n{found.scope}\n")
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("rank", "team", "normalised", "total", "failed trials", "status"):
            table.add_column(column, justify="left" if column in {"team", "status"} else "right")
        for row in found.ranking.ranking.rows:
            table.add_row(
                str(row.rank or "-"),
                row.team,
                "-" if row.normalised is None else rounded(row.normalised, 3),
                "-" if row.total is None else rounded(row.total),
                str(sum(each.failed_trials for each in row.models.values())),
                "provisional" if row.status == "ranked" else row.status,
            )
        console.print(table)
