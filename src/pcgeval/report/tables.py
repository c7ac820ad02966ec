"""The ranking, and other tables, for a spreadsheet or a web page."""

import csv
import io
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Literal

from pcgeval.core.text import count as counted
from pcgeval.core.text import markdown_table, plain
from pcgeval.formats.failures import FAILURES
from pcgeval.formats.params import Params
from pcgeval.formats.results import RankingFile
from pcgeval.scoring.decimals import rounded

TableFormat = Literal["csv", "markdown"]
FEWEST, NEARLY_ALL = 3, 0.8  # failures of one kind, in number and as a share, that point to the model


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


def _failures(ranking: RankingFile, model: str) -> Counter[str]:
    """Count the kinds of the failures of all teams with a model."""
    return sum((Counter(team.models[model].failures) for team in ranking.teams if model in team.models), Counter())


def failure_counts(ranking: RankingFile, models: Iterable[str]) -> list[tuple[str, list[int]]]:
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
            if number >= max(FEWEST, NEARLY_ALL * failures.total()) and teams >= min(2, len(by_team)):
                values = [(name, settings.options[name]) for name in FAILURES[kind].options if name in settings.options]
                shown = "".join(f", {name} {value}" for name, value in values)
                some = f"{number} of {failures.total()} failures are `{FAILURES[kind].title}`"
                where = f"{counted(teams, 'team')}{shown}"
                sentences.append(f"{model}: {some} ({where}): look at the model and its settings before the teams")
    return sentences
