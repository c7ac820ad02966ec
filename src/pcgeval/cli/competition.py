"""The commands for a whole competition, from `ranking` to `export`."""

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pcgeval.cli.options import Anonymous, Json, group, print_json, print_ranking, refuse_two_formats
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json

if TYPE_CHECKING:
    from pcgeval.core.stage_files import RankingFile

app = group()
export = group()
app.add_typer(export, name="export", help="Copy the data to the layout of the official tools.")


@app.command()
def ranking(
    form: Annotated[
        Literal["csv", "latex", "markdown"] | None,
        typer.Option("--format", help="Print a table for a spreadsheet, a paper or a web page."),
    ] = None,
    anonymous: Anonymous = False,
    open_page: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    single_file: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write the report as one page, to mail it.")
    ] = None,
    json: Json = False,
) -> None:
    """Print the ranking of the last run, or open its report.

    Exit code 1 means that it is not the ranking of what is in the folder now, by its result hash.
    """
    refuse_two_formats(form, json=json)
    if open_page:
        _open_report()
    if single_file:
        from pcgeval.core.files import write_text
        from pcgeval.core.params import load_params
        from pcgeval.report.render import single_page

        write_text(single_file, single_page(load_params(), Path()))
    show_ranking(form, anonymous=anonymous, json=json)


def _open_report() -> None:
    import webbrowser

    from pcgeval.core.layout import REPORT

    index = REPORT / "index.html"
    if not index.is_file():
        raise FileError(f"{index}: is missing. Run `make report` to make it.")
    if not webbrowser.open(index.resolve().as_uri()):
        print_stderr(f"no browser could be started; open {index} in one")


def show_ranking(
    form: Literal["csv", "latex", "markdown"] | None = None,
    *,
    anonymous: bool = False,
    json: bool = False,
) -> None:
    """Print the ranking, then every doubt whether it is that of what is in the folder now.

    Raises:
        Exit: There are doubts: exit code 1.
    """
    from pcgeval.core.layout import RANKING_JSON, REPORT
    from pcgeval.core.params import load_params
    from pcgeval.core.stage_files import RankingFile
    from pcgeval.report.tables import ranking_table
    from pcgeval.scoring.result_hash import result_doubts

    params = load_params()
    found = RankingFile.read(RANKING_JSON)
    doubts = result_doubts(params, found)
    if anonymous:
        from pcgeval.report.pseudonyms import anonymous_ranking

        found = anonymous_ranking(found)
    if json:
        print_json(found.model_dump(mode="json") if anonymous else read_json(RANKING_JSON))
    elif form:
        sys.stdout.write(ranking_table(found, form))
    else:
        print_ranking(found.teams)
        print_stderr(found.reason)
        if found.result is not None:
            print_stderr(f"result hash {found.result.sha256}")
        print_stderr(f"{_failed_trials(found)} The report is {REPORT / 'index.html'}.")
    fail_if_doubtful(doubts)


def _failed_trials(ranking: "RankingFile") -> str:
    """Return how many trials failed, in a sentence."""
    scored = [model for team in ranking.teams for model in team.models.values()]
    trials = len(scored) * len(ranking.rules.letters) * ranking.rules.trials
    failed = sum(model.failed_trials for model in scored)
    return f"{failed} of {trials} trials failed{': the report says why.' if failed else '.'}"


def fail_if_doubtful(doubts: list[str]) -> None:
    """Print the doubts about a ranking and end with exit code 1, if there are any."""
    for doubt in doubts:
        print_stderr(f"warning: this may not be the ranking of what is here: {doubt}")
    if doubts:
        print_stderr(
            "Run `make final-eval` to its end for the ranking of what is here; `make audit` names what differs."
        )
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def record() -> None:
    """Keep the replies in data/raw as recordings to replay."""
    from pcgeval.core.params import load_params
    from pcgeval.generation.export import record_competition
    from pcgeval.judge.stage import record_judgements

    params = load_params()
    for path in [*record_competition(params), *record_judgements(params)]:
        print_stderr(f"wrote {path}")


@app.command()
def rescore(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="The <SOURCE> folder of one model each.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the result files go.")],
    letters: Annotated[str, typer.Option(help="The letters to score.")] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    trials: Annotated[int, typer.Option(help="Trials per letter.")] = 10,
    baseline: Annotated[str | None, typer.Option(metavar="TEAM", help="The team that the winner must beat.")] = None,
    baselines: Annotated[
        list[str] | None, typer.Option(metavar="TEAM", help="A team that is scored but not ranked; may be repeated.")
    ] = None,
    disqualified: Annotated[
        list[str] | None, typer.Option(metavar="TEAM", help="A team that is left out of everything; may be repeated.")
    ] = None,
    official_quirks: Annotated[
        bool, typer.Option("--official-quirks", help="Follow the official script where it departs from the rules.")
    ] = False,
    json: Json = False,
) -> None:
    """Score and rank from official files or published tables.

    Exit code 1 means that the published figures differ.
    """
    from pcgeval.core.layout import RANKING_JSON
    from pcgeval.core.stage_files import RankingFile
    from pcgeval.scoring.inputs import ScoringRules
    from pcgeval.scoring.rescore import rescore as rescore_folders

    rules = ScoringRules(letters, trials, official_quirks, baseline)
    found = rescore_folders(folders, out, rules, baselines=baselines or (), disqualified=disqualified or ())
    if json:
        print_json(read_json(out / RANKING_JSON.name))
    else:
        print_ranking(RankingFile.read(out / RANKING_JSON.name).teams)
    for reproduction in found.reproductions:
        compared = ", ".join(f"{count} {kind}" for kind, count in reproduction.compared.items())
        print_stderr(f"{reproduction.folder}: compared {compared}; {reproduction.differing} differ")
        for line in reproduction.differences:
            print_stderr(f"  {line}")
    print_stderr(f"{found.ranking.reason}\nwrote {out}")
    if not found.reproduced:
        raise typer.Exit(EXIT_CHECK_FAILED)


@export.command("official")
def export_official(target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")]) -> None:
    """Copy the data of the last run to DIR/<model>/<team>/<stage> as the official tools expect it."""
    from pcgeval.core.layout import EXTENSIONS, STAGE_DIRS, stage_dir, tag, trials
    from pcgeval.core.params import load_params

    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target}: already exists and is not empty. Name a new folder, or empty it.")
    params = load_params()
    letter_files = [Path(f"{letter}.json") for letter in params.competition.characters]
    copied = 0
    for model in params.models:
        for team in params.teams:
            for stage in STAGE_DIRS:
                names = letter_files
                if extension := EXTENSIONS.get(stage):
                    names = [Path(trial.letter, tag(team, trial) + extension) for trial in trials(params)]
                for name in names:
                    source, copy = stage_dir(stage, model, team) / name, target / model / team / stage / name
                    if source.is_file():
                        copy.parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(source, copy)
                        copied += 1
    if not copied:
        raise FileError("data: holds no results of this competition yet. Run `make final-eval` first.")
    print_stderr(f"wrote {copied} files to {target}")
