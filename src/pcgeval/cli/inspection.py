"""The commands that look at a run and its trials, and tell teams: `status`, `inspect`, `explain`, `letter`."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcgeval.cli.options import Anonymous, Html, Json, group, print_json, print_ranking, print_table, within
from pcgeval.core.console import count, duration, print_stderr

if TYPE_CHECKING:
    from pcgeval.core.params import Params
    from pcgeval.report.inspection import InspectedTrial
    from pcgeval.report.status import RunStatus

MOST_SHOWN = 20  # trials whose conversations are printed

app = group()


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Look again until all trials are evaluated.")] = False,
    every: Annotated[
        int, typer.Option(metavar="SECONDS", callback=within(1, 86_400), help="The time between two looks.")
    ] = 10,
    page: Html = None,
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
    columns = ("model", "team", "trials", "failed", "again", "flagged", "tokens", "s a trial", "left", "state")
    rows = []
    for each in found.teams:
        left = "-" if not each.seconds_left else duration(each.seconds_left)
        rows.append(
            (
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
        )
    print_table(columns, rows)
    sys.stdout.write(f"{found.summary}\n")
    for note in found.notes:
        print_stderr(note)
    if found.ranking:
        sys.stdout.write(f"\n{found.scope}\n")
        print_ranking(found.ranking.ranking.rows, provisional=True)


@app.command()
def inspect(
    team: Annotated[str, typer.Argument(metavar="TEAM", help="A team of params.yaml.")],
    model: Annotated[str | None, typer.Option(metavar="M", help="Only trials with this model of params.yaml.")] = None,
    letter: Annotated[str | None, typer.Option(metavar="L", help="Only trials of this letter.")] = None,
    trial: Annotated[int | None, typer.Option(metavar="N", help="Only trials with this number.")] = None,
    flagged: Annotated[bool, typer.Option("--flagged", help="Only flagged trials.")] = False,
    json: Json = False,
) -> None:
    """Show failed and flagged trials, conversation beside answer.

    With --letter and --trial the trial is shown whatever became of it.
    """
    from pcgeval.core.params import load_params
    from pcgeval.report.inspection import inspected_trials

    params = load_params()
    _check_known(params, team, model, letter, trial)
    every = [
        each
        for name in ([model] if model else params.models)
        for each in inspected_trials(params, team, name)
        if letter in {None, each.trial.letter} and trial in {None, each.trial.number}
    ]
    named = letter is not None and trial is not None
    found = [each for each in every if (each.flags if flagged else named or each.stands_out)]
    _warn_of_stale_trials(params, team, found)
    if json:
        print_json([each.to_json() for each in found])
        return
    for number, each in enumerate(found):
        _print_trial(each, with_conversation=number < MOST_SHOWN)
    failed = sum(each.failed_stage is not None for each in every)
    marked = sum(bool(each.flags) for each in every)
    print_stderr(f"{team}: {count(len(every), 'trial')}, {failed} failed, {marked} flagged; {len(found)} shown")
    if len(found) > MOST_SHOWN:
        print_stderr(f"conversations of the first {MOST_SHOWN} only: choose others with --model, --letter and --trial")


def _check_known(params: "Params", team: str, model: str | None, letter: str | None, trial: int | None) -> None:
    """Refuse a name that params.yaml does not have, and say which it has."""
    competition = params.competition
    for what, value, known in (
        ("team", team, params.teams),
        ("model", model, params.models),
        ("letter", letter, competition.characters),
        ("trial", None if trial is None else str(trial), map(str, range(1, competition.trials + 1))),
    ):
        names = list(known)
        if value is not None and value not in names:
            raise typer.BadParameter(f"{what} {value!r}: params.yaml has {', '.join(names)}.")


def _warn_of_stale_trials(params: "Params", team: str, found: list["InspectedTrial"]) -> None:
    """Name the trials beside whose replies a prompt is shown that they may not have had."""
    from pcgeval.core.layout import SUBMISSIONS, stage_dir
    from pcgeval.generation.tasks import stale_records
    from pcgeval.submissions.load import load_submission

    for model in dict.fromkeys(each.model for each in found):
        stale = stale_records(params, model, load_submission(SUBMISSIONS / team), stage_dir("raw", model, team))
        shown = [each.trial for each in found if each.model == model and each.trial in stale]
        if names := ", ".join(f"{trial.letter}{trial.number}" for trial in shown):
            print_stderr(
                f"warning: {names} with {model}: made from another submission, model, seed or limits than are there "
                "now; a prompt that is shown is that of now"
            )


def _print_trial(each: "InspectedTrial", *, with_conversation: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from pcgeval.core.untrusted import one_line, printable_text

    console = Console(width=None if sys.stdout.isatty() else 140, highlight=False)
    facts = [f"stability {each.stability:.3f}" if each.stability is not None else ""]
    facts += [f"similarity {each.similarity:.4f}" if each.similarity is not None else ""]
    facts += [f"score {each.score:.6f}" if each.score is not None else ""]
    facts += ["no record" if each.calls is None else f"{each.calls} calls, {each.tokens} tokens, seed {each.seed}"]
    lines = [f"{each.model} {each.trial.letter}{each.trial.number}: {', '.join(filter(None, facts))}"]
    if each.failed_stage:
        lines.append(f"  failed in {each.failed_stage}: {each.reason}")
    if each.cause:
        lines.append(
            f"  a fault of the {each.cause}, {f'accepted by {each.accepted}' if each.accepted else 'to repeat'}"
        )
    lines += [f"  flagged: {flag.kind}: {flag.detail}" for flag in each.flags]
    if each.picture:
        lines.append(f"  {each.picture}")
    for line in lines:
        console.print(Text(one_line(line)), soft_wrap=True)
    if with_conversation and (each.conversation or each.answer):
        said = "\n".join(f"{message.speaker}:\n{message.text.rstrip()}\n" for message in each.conversation)
        table = Table("conversation", "answer", header_style="")
        table.add_row(Text(printable_text(said)), Text(printable_text(each.answer or "(nothing)")))
        console.print(table)


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
    _warn_of_stale_trials(params, team, [found.trial])
    if json:
        print_json(found.to_json())
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 120
        sys.stdout.write(explain_text(found, width, long=long) + "\n")
    if found.differences:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def letter(
    team: Annotated[str | None, typer.Argument(metavar="[TEAM]", help="Only this team's letter.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder for the letters; default: results/letters.")
    ] = None,
    anonymous: Anonymous = False,
    json: Json = False,
) -> None:
    """Write each team a letter of results: Markdown and a page.

    It tells a team all about its own trials, and of the others what the ranking says. Exit code 1 means that this may
    not be the ranking of what is there now; the reasons are named.
    """
    from pcgeval.cli.competition import fail_if_doubtful
    from pcgeval.core.layout import LETTERS, RANKING_JSON
    from pcgeval.core.params import load_params
    from pcgeval.core.stage_files import RankingFile
    from pcgeval.report.letter import write_letters
    from pcgeval.report.pseudonyms import read_pseudonyms
    from pcgeval.scoring.result_hash import result_doubts

    params = load_params()
    if team is not None and team not in params.teams:
        raise typer.BadParameter(f"team {team!r}: params.yaml has {', '.join(params.teams)}.")
    names = read_pseudonyms(params.teams) if anonymous else None
    files = write_letters(params, Path(), out or LETTERS, [team] if team else params.teams, names)
    if json:
        print_json({"files": [str(file) for file in files], "pseudonyms": names.of_team if names else None})
    else:
        sys.stdout.writelines(f"{file}\n" for file in files)
        if names:
            names.print_mapping()
    fail_if_doubtful(result_doubts(params, RankingFile.read(RANKING_JSON)))
