"""The commands that look at a run and at one trial: `status` and `explain`."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pcgeval.cli.options import Json, group, print_json, print_table, terminal_width
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.text import duration
from pcgeval.formats.layout import SUBMISSIONS, Trial, stage_dir

if TYPE_CHECKING:
    from pcgeval.report.status import RunStatus

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
    from pcgeval.formats.params import load_params
    from pcgeval.report.status import run_status

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


def _print_status(run: "RunStatus") -> None:
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


@app.command()
def explain(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="A team of params.yaml.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model of params.yaml.")],
    letter: Annotated[str, typer.Argument(metavar="LETTER", help="A letter of the competition.")],
    trial: Annotated[int, typer.Argument(metavar="TRIAL", help="The number of the trial, from 1.")],
    json: Json = False,
) -> None:
    """Explain a trial, from its prompt to its share of the total.

    One page shows the prompt, the answer, the blocks that fell, the classifier's letters, every formula with its
    figures, and the SHA-256 of every file; --json has everything in full. The command computes the figures from the
    measurements. Exit code 1: the published results differ from them.
    """
    from pcgeval.cli.explain_output import explain_lines
    from pcgeval.formats.params import load_params
    from pcgeval.formats.trials import read_record, record_path
    from pcgeval.generation.tasks import present_fingerprint
    from pcgeval.report.explanation import explain as explain_trial
    from pcgeval.submissions.load import load_submission

    params = load_params()
    numbers = [str(number) for number in range(1, params.competition.trials + 1)]
    for argument, value, known in (
        ("team", team, params.teams),
        ("model", model, [*params.models]),
        ("letter", letter, [*params.competition.characters]),
        ("trial", str(trial), numbers),
    ):
        if value not in known:
            raise typer.BadParameter(f"{argument} {value!r}: params.yaml has {', '.join(known)}.")
    explained = explain_trial(params, team, model, Trial(letter, trial))
    path = record_path(stage_dir("raw", model, team), team, Trial(letter, trial))
    record = read_record(path) if path.exists() else None
    fingerprint = present_fingerprint(params, model, load_submission(SUBMISSIONS / team, params.teams[team]))
    if record and fingerprint(Trial(letter, trial), record.digest) != record.fingerprint:
        print_stderr(
            f"warning: {letter}{trial} with {model}: made from another submission, model, seed or limits; the prompt "
            "below is the present one"
        )
    if json:
        print_json(explained.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in explain_lines(explained, terminal_width(piped=120)))
    if explained.differences:
        raise typer.Exit(EXIT_CHECK_FAILED)
