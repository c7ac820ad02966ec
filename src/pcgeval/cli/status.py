"""The commands that look at a run and at one trial: `status` and `explain`."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pcgeval.cli.options import Json, group, print_json, print_table, within
from pcgeval.core.console import duration, print_stderr

if TYPE_CHECKING:
    from pcgeval.core.layout import Trial
    from pcgeval.core.params import Params
    from pcgeval.report.status import RunStatus

app = group()


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Look again until all trials are evaluated.")] = False,
    every: Annotated[
        int, typer.Option(metavar="SECONDS", callback=within(1, 86_400), help="The time between two looks.")
    ] = 10,
    json: Json = False,
) -> None:
    """Show a run: trials done, failed and left, and the time left.

    It works before, during and after a run, and never disturbs it. Before the run, the time is estimated by earlier
    calls to the same models.
    """
    from pcgeval.core.params import load_params
    from pcgeval.report.status import run_status

    while True:
        params = load_params()
        found = run_status(params)
        goes_on = watch and not found.done
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
    columns = ("model", "team", "trials", "failed", "again", "flagged", "tokens", "s a trial", "left", "state")
    rows = []
    for team in found.teams:
        left = "-" if not team.seconds_left else duration(team.seconds_left)
        rows.append(
            (
                team.model,
                team.team,
                f"{team.done}/{team.trials}",
                str(team.failed),
                str(team.repeated or "-"),
                str(team.flagged),
                f"{team.tokens:,}",
                "?" if team.trial_seconds is None else f"{team.trial_seconds:.1f}",
                "?" if team.seconds_left is None else left,
                team.state + (f", {team.per_minute:.1f} trials/min" if team.per_minute else ""),
            )
        )
    print_table(columns, rows)
    sys.stdout.write(f"{found.summary}\n")
    for note in found.notes:
        print_stderr(note)


def _check_known(params: "Params", team: str, model: str, letter: str, trial: int) -> None:
    """Refuse a name that params.yaml does not have, and say which it has."""
    competition = params.competition
    for what, value, known in (
        ("team", team, params.teams),
        ("model", model, params.models),
        ("letter", letter, competition.characters),
        ("trial", str(trial), map(str, range(1, competition.trials + 1))),
    ):
        names = list(known)
        if value not in names:
            raise typer.BadParameter(f"{what} {value!r}: params.yaml has {', '.join(names)}.")


def _warn_of_stale_trial(params: "Params", team: str, model: str, trial: "Trial") -> None:
    """Warn that the prompt shown beside a reply is not the one that the reply was made with."""
    from pcgeval.core.layout import SUBMISSIONS, stage_dir
    from pcgeval.generation.tasks import stale_records
    from pcgeval.submissions.load import load_submission

    if trial in stale_records(params, model, load_submission(SUBMISSIONS / team), stage_dir("raw", model, team)):
        print_stderr(
            f"warning: {trial.letter}{trial.number} with {model}: made from another submission, model, seed or limits "
            "than are there now; a prompt that is shown is that of now"
        )


@app.command()
def explain(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="A team of params.yaml.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of params.yaml.")],
    letter: Annotated[str, typer.Argument(metavar="LETTER", help="One of its letters.")],
    trial: Annotated[int, typer.Argument(metavar="TRIAL", help="The number of the trial, from 1.")],
    long: Annotated[bool, typer.Option("--long", help="Show whole messages and hashes, and all calls.")] = False,
    json: Json = False,
) -> None:
    """Explain a trial: from prompt to its share of the total.

    One screen: what was asked and answered, which blocks fell, what the classifier saw, every formula with its figures,
    computed again from the measurements, and the SHA-256 of each step's file. Exit code 1 means that the ranking has
    other figures than the measurements make.
    """
    import shutil

    from pcgeval.cli.explain_output import explain_text
    from pcgeval.core.console import EXIT_CHECK_FAILED
    from pcgeval.core.layout import Trial
    from pcgeval.core.params import load_params
    from pcgeval.report.explanation import explain as explain_trial

    params = load_params()
    _check_known(params, team, model, letter, trial)
    found = explain_trial(params, team, model, Trial(letter, trial))
    _warn_of_stale_trial(params, team, model, found.trial.trial)
    if json:
        print_json(found.to_json())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
        sys.stdout.write(explain_text(found, width, long=long) + "\n")
    if found.differences:
        raise typer.Exit(EXIT_CHECK_FAILED)
