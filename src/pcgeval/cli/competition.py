"""The commands for the results of a competition: `ranking`, `rescore`, `export`."""

import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pcgeval.cli.options import Json, file_to_write, group, print_json, print_table
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import copy_files, tree_files, write_text
from pcgeval.core.text import count
from pcgeval.core.untrusted import read_json
from pcgeval.formats import layout

if TYPE_CHECKING:
    from pcgeval.formats.results import RankedTeam

# records of trials and files beside the official ones
_NOT_OFFICIAL = (
    *("*_*_*.json", layout.FAILURES_FILE),
    *(layout.CLASSIFIER_FILE, layout.SIMULATIONS_FILE, layout.TRIALS_FILE),
)
Format = Literal["csv", "markdown"]
app = group()
export = group()
app.add_typer(export, name="export", help="Export the data or the recordings of the last run.")


@app.command()
def ranking(
    form: Annotated[
        Format | None, typer.Option("--format", help="Print a table for a spreadsheet or a web page.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    single_file: Annotated[Path | None, file_to_write(text="Write the report as a single page.")] = None,
    json: Json = False,
) -> None:
    """Print the ranking of the last run, or open its report.

    Exit code 1: the inputs or results have changed since that run.
    """
    if form and json:
        raise typer.BadParameter("--json and --format: use one of them.")
    if open_page:
        import webbrowser

        index = layout.REPORT / "index.html"
        if not index.is_file():
            raise FileError(f"{index}: is missing. Run `make report` to make it.")
        if not webbrowser.open(index.resolve().as_uri()):
            print_stderr(f"no browser could be started; open {index} in one")
    if single_file:
        from pcgeval.formats.params import load_params
        from pcgeval.report.render import single_page

        write_text(single_file, single_page(load_params(), Path()))
    show_ranking(form, json=json)


def show_ranking(form: Format | None = None, *, json: bool = False) -> None:
    """Print the ranking, then name what has changed since; exit with code 1 if anything has."""
    from pcgeval.formats.params import load_params
    from pcgeval.formats.results import RankingFile
    from pcgeval.report.tables import doubtful_settings, failure_counts, ranking_table
    from pcgeval.scoring.result_hash import result_doubts

    params = load_params()
    ranking = RankingFile.read(layout.RANKING_JSON)
    if json:
        print_json(read_json(layout.RANKING_JSON))
    elif form:
        sys.stdout.write(ranking_table(ranking, form))
    else:
        _print_ranking(ranking.teams)
        if failures := failure_counts(ranking, params.models):
            rows = [(title, *map(str, [sum(numbers), *numbers])) for title, numbers in failures]
            print()
            print_table(("failure", "all", *params.models), rows)
        for sentence in doubtful_settings(ranking, params):
            print(sentence)
        result = f"; result hash {ranking.result.sha256}" if ranking.result else ""
        print_stderr(
            f"{ranking.reason}\nThe report with the reasons of failures: {layout.REPORT / 'index.html'}{result}"
        )
    if doubts := result_doubts(params, ranking):
        for doubt in doubts:
            print_stderr(f"warning: this ranking may be out of date: {doubt}")
        print_stderr("Run `make final-eval` for an up-to-date ranking; `make audit` names the files that differ.")
        raise typer.Exit(EXIT_CHECK_FAILED)


def _print_ranking(teams: Sequence["RankedTeam"]) -> None:
    from pcgeval.scoring.decimals import rounded

    columns = ("rank", "team", "normalised", "90% interval", "total", "failed trials", "flagged", "supplied", "status")
    rows = [
        (
            str(team.rank or "-"),
            team.team,
            "-" if team.normalised is None else rounded(team.normalised, 3),
            f"{team.interval.low:.2f}-{team.interval.high:.2f}" if team.interval else "-",
            "-" if team.total is None else rounded(team.total),
            str(sum(model.failed_trials for model in team.models.values())),
            str(sum(model.flagged_trials or 0 for model in team.models.values())),
            "-" if team.supplied_share is None else f"{team.supplied_share:.0%}",
            "winner" if team.winner else team.status,
        )
        for team in teams
    ]
    print_table(columns, rows, rare={"flagged"})


@app.command()
def rescore(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="The <SOURCE> folder of each model."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Write the results to this folder.")],
    letters: Annotated[
        str | None, typer.Option(metavar="LETTERS", help="The letters to score; default: those of the files.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Trials per letter; default: those of the files.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="TEAM", help="The team that the winner must beat.")] = None,
    baselines: Annotated[list[str] | None, typer.Option(metavar="TEAM", help="Score, but do not rank it.")] = None,
    disqualified: Annotated[list[str] | None, typer.Option(metavar="TEAM", help="Leave it out.")] = None,
    official_quirks: Annotated[bool, typer.Option("--official-quirks", help="Do as the official script.")] = False,
    json: Json = False,
) -> None:
    """Score and rank from official files or published tables.

    --baselines and --disqualified are repeatable. The official script departs from the rules in places. Exit code 1:
    the results differ from published figures.
    """
    from pcgeval.formats.results import RankingFile
    from pcgeval.scoring.inputs import ScoringRules
    from pcgeval.scoring.rescore import measured_letters_and_trials
    from pcgeval.scoring.rescore import rescore as rescore_folders

    measured_letters, measured_trials = measured_letters_and_trials(folders)
    rules = ScoringRules(letters or measured_letters, trials or measured_trials, official_quirks, baseline)
    rescored = rescore_folders(folders, out, rules, baselines=baselines or (), disqualified=disqualified or ())
    if json:
        print_json(read_json(out / layout.RANKING_JSON.name))
    else:
        _print_ranking(RankingFile.read(out / layout.RANKING_JSON.name).teams)
    for reproduction in rescored.reproductions:
        compared = ", ".join(count(number, kind) for kind, number in reproduction.compared.items())
        print_stderr(f"{reproduction.folder}: compared {compared}; {len(reproduction.differences)} differ")
        for line in reproduction.differences[:20]:
            print_stderr(f"  {line}")
    scored = f"{count(rules.trials, 'trial')} of each of the letters {rules.letters}"
    print_stderr(f"scored {scored}; --trials and --letters name others\n{rescored.ranking.reason}\nwrote {out}")
    if not rescored.reproduced:
        raise typer.Exit(EXIT_CHECK_FAILED)


@export.command("official")
def export_official(target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")]) -> None:
    """Copy the data to DIR/<model>/<team>/<stage>, as the official tools expect."""
    from pcgeval.formats.params import load_params

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target}: already exists and is not empty. Name a new folder, or empty it.")
    params = load_params()
    for model, team, stage in product(params.models, params.teams, layout.STAGE_DIRS):
        source = layout.stage_dir(stage, model, team)
        if source.is_dir():
            names = [name for name in tree_files(source) if not any(map(PurePath(name).match, _NOT_OFFICIAL))]
            copy_files(source, target / model / team / stage, names, follow_link=True)
    if not target.exists():
        raise FileError("data: holds no results of this competition yet. Run `make final-eval` first.")
    print_stderr(f"wrote {target}")


@export.command("recordings")
def export_recordings() -> None:
    """Write all replies to data/recordings, so that others can replay them."""
    from pcgeval.formats.params import load_params
    from pcgeval.generation.export import record_competition
    from pcgeval.judge.many import record_judgements

    params = load_params()
    for path in [*record_competition(params), *record_judgements(params)]:
        print_stderr(f"wrote {path}")
    print_stderr("run `make final-eval` again, so that dvc.lock has the hashes of the recordings; it asks no model")
