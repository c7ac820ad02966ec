"""The command `ranking`, and the table of a ranking."""

import csv
import io
import sys
import webbrowser
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

import typer

from pcgeval.cli.options import Json, file_to_write, group, print_json, print_table
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_text
from pcgeval.core.text import count, markdown_table, plain, printable_line, rounded
from pcgeval.core.untrusted import read_json
from pcgeval.formats import layout
from pcgeval.formats.failures import FAILURES
from pcgeval.formats.params import Params, load_params
from pcgeval.formats.results import RankedTeam, RankingFile, result_doubts

TableFormat = Literal["csv", "markdown"]
_FEWEST, _NEARLY_ALL = 3, 0.8  # failures of one kind, in number and as a share, that point to the model

app = group()


@app.command()
def ranking(
    form: Annotated[
        TableFormat | None, typer.Option("--format", help="Print a table for a spreadsheet or a web page.")
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
        index = layout.REPORT / "index.html"
        if not index.is_file():
            raise FileError(f"{index}: is missing. Run `make report` to make it.")
        if not webbrowser.open(index.resolve().as_uri()):
            print_stderr(f"no browser could be started; open {index} in one")
    if single_file:
        from pcgeval.report.render import single_page  # noqa: PLC0415 - rendering loads much

        write_text(single_file, single_page(load_params()))
    show_ranking(form, json=json)


def show_ranking(form: TableFormat | None = None, *, json: bool = False) -> None:
    """Print the ranking, then name what has changed since; exit with code 1 if anything has."""
    params = load_params()
    ranking = RankingFile.read(layout.RANKING_JSON)
    if json:
        print_json(read_json(layout.RANKING_JSON))
    elif form:
        sys.stdout.write(ranking_table(ranking, form))
    else:
        print_teams(ranking.teams)
        if failures := _failure_counts(ranking, params.models):
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


def print_teams(teams: Sequence[RankedTeam]) -> None:
    """Print the table of a ranking, and below it why teams are disqualified and what they would have had."""
    columns = ["rank", "team", "share of all points", "90% interval", "total", "recognised", "failed trials", "flagged"]
    columns += ["supplied", "best levels supplied", "status"]
    rows = []
    for team in teams:
        counted = team.counted
        models = counted.models.values()
        row = (
            str(team.rank or "-"),
            team.team,
            "-" if team.normalised is None else f"{rounded(team.normalised, 3)}%",
            f"{team.interval.low:.2f}-{team.interval.high:.2f}%" if team.interval else "-",
            "-" if team.total is None else rounded(team.total),
            counted.recognised_words or "-",
            str(counted.failed_trials) if models else "-",
            str(sum(model.flagged_trials or 0 for model in models)),
            "-" if counted.supplied_share is None else f"{counted.supplied_share:.0%}",
            counted.supplied_words or "-",
            "winner" if team.winner else team.status,
        )
        rows.append(row)
    print_table(columns, rows, rare={"flagged"})
    for team in teams:
        if team.disqualified is not None:
            print(f"{team.team} is disqualified: {printable_line(team.disqualified)}")
        if (would_have := team.would_have) and would_have.normalised is not None:
            rank = f", rank {would_have.rank}" if would_have.rank else ""
            print(f"  ranked with the others, it would have had {would_have.normalised:.2f} % of all points{rank}")
            if would_have.supplied_share is not None:
                supplied = f"{100 * would_have.supplied_share:.0f} % of its blocks"
                if would_have.supplied_words:
                    supplied = f"{would_have.supplied_words} best levels, call for call, and {supplied}"
                print(f"  {supplied} stood in its messages before the model named them")


def ranking_table(ranking: RankingFile, form: TableFormat) -> str:
    """Return a ranking as a table, one team a line, the best first.

    CSV has the exact figures, Markdown has them rounded as everywhere.
    """
    models = list(dict.fromkeys(model for team in ranking.teams for model in team.models))
    columns = ["team", "status", "rank", "normalised", "low", "high", "total", *models]
    columns += ["recognised", "trials", "failed trials"]

    def figure(value: Decimal | None, digits: int = 6) -> str:
        return "" if value is None else plain(value) if form == "csv" else rounded(value, digits)

    rows = []
    for team in ranking.teams:
        ends = team.interval or (None, None)
        counts = team.counted
        row = [
            team.team,
            "winner" if team.winner else team.status,
            "" if team.rank is None else str(team.rank),
            figure(team.normalised, 3),
            *("" if end is None else f"{end:g}" if form == "csv" else f"{end:.2f}" for end in ends),
            figure(team.total),
            *(figure(team.models[model].score if model in team.models else None) for model in models),
            *("" if number is None else str(number) for number in (counts.recognised, counts.trials)),
            str(counts.failed_trials) if counts.models else "",
        ]
        rows.append(row)
    if form == "csv":
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([columns, *rows])
        return text.getvalue()
    return "".join(f"{line}\n" for line in markdown_table(columns, rows, ("team", "status")))


def _failure_counts(ranking: RankingFile, models: Iterable[str]) -> list[tuple[str, list[int]]]:
    """Return the titles of the failures, the commonest first, each with the number of trials with these models."""
    counts = [Counter(FAILURES[kind].title for kind in _failures(ranking, model).elements()) for model in models]
    titles = sum(counts, Counter[str]())
    ordered = sorted(titles, key=lambda title: (-titles[title], title))
    return [(title, [of_model[title] for of_model in counts]) for title in ordered]


def doubtful_settings(ranking: RankingFile, params: Params) -> list[str]:
    """Return a sentence about each model with which nearly all failures are of one kind, and not of one team alone."""
    sentences = []
    for model, settings in params.models.items():
        failures = _failures(ranking, model)
        by_team = [team.models[model].failures for team in ranking.teams if model in team.models]
        for kind, number in failures.items():
            teams = sum(kind in team for team in by_team)
            if number >= max(_FEWEST, _NEARLY_ALL * failures.total()) and teams >= min(2, len(by_team)):
                values = [(name, settings.options[name]) for name in FAILURES[kind].options if name in settings.options]
                shown = "".join(f", {name} {value}" for name, value in values)
                some = f"{number} of {failures.total()} failures are `{FAILURES[kind].title}`"
                where = f"{count(teams, 'team')}{shown}"
                sentences.append(f"{model}: {some} ({where}): look at the model and its settings before the teams")
    return sentences


def _failures(ranking: RankingFile, model: str) -> Counter[str]:
    """Count the kinds of the failures of all teams with a model."""
    return sum((Counter(team.models[model].failures) for team in ranking.teams if model in team.models), Counter())
