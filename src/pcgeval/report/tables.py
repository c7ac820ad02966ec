"""The ranking as a table for a spreadsheet, a paper or a web page."""

import csv
import io
from collections.abc import Sequence
from typing import Literal

from pcgeval.core.stage_files import RankedTeam, RankingFile, plain
from pcgeval.core.untrusted import printable_line
from pcgeval.report.results import Evaluation
from pcgeval.scoring.decimals import rounded

_LATEX = {
    "\\": r"\textbackslash{}",
    **{each: f"\\{each}" for each in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
TableFormat = Literal["csv", "latex", "markdown"]
_TEXT_COLUMNS = 2  # team and status; all others are numbers


def ranking_table(ranking: RankingFile, form: TableFormat) -> str:
    """Return a ranking as a table, one team a line, the best first.

    CSV has the exact figures; LaTeX (for the package booktabs) and Markdown have them rounded as everywhere.
    """
    models = list(dict.fromkeys(model for team in ranking.teams for model in team.models))
    columns = ["team", "status", "rank", "normalised", "low", "high", "total", *models, "failed trials"]
    rows = [_row(team, models, exact=form == "csv") for team in ranking.teams]
    return {"csv": _csv, "latex": _latex, "markdown": _markdown}[form](columns, rows)


def trials_parquet(evaluation: Evaluation) -> bytes:
    """Return all trials as a Parquet file, a row each; what a trial did not reach is null.

    Raises:
        ImportError: pyarrow is not installed.
    """
    import pyarrow as pa  # noqa: PLC0415 - an extra
    from pyarrow import parquet  # noqa: PLC0415

    rows = [
        {
            "model": model.name,
            "team": team.name,
            "letter": trial.trial.letter,
            "trial": trial.trial.number,
            "stability": trial.stability,
            "similarity": trial.similarity,
            "score": None if trial.score is None else float(trial.score),
            "likeliest": trial.top_label.label if trial.top_label else None,
            "failed_stage": trial.failure.stage if trial.failure else None,
            "reason": trial.failure.reason if trial.failure else None,
            "calls": trial.usage.calls if trial.usage else None,
            "tokens": trial.usage.tokens if trial.usage else None,
            "flags": list(trial.flag_kinds),
        }
        for team in evaluation.teams
        for model in team.models
        for trial in model.trials
    ]
    text, number, count = pa.string(), pa.float64(), pa.int64()
    types = [text, text, text, count, number, number, number, text, text, text, count, count, pa.list_(text)]
    schema = pa.schema(list(zip(rows[0], types, strict=True)))
    sink = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    return sink.getvalue()


def _row(team: RankedTeam, models: Sequence[str], *, exact: bool) -> list[str]:
    low, high = team.interval or (None, None)
    normalised, total = team.normalised, team.total
    scores = [team.models[model].score if model in team.models else None for model in models]
    if exact:
        figures = ["" if each is None else plain(each) for each in (normalised, total, *scores)]
        ends = ["" if each is None else f"{each:g}" for each in (low, high)]
    else:
        figures = [
            "" if normalised is None else rounded(normalised, 3),
            *("" if each is None else rounded(each) for each in (total, *scores)),
        ]
        ends = ["" if each is None else f"{each:.1f}" for each in (low, high)]
    return [
        team.team,
        "winner" if team.winner else team.status,
        "" if team.rank is None else str(team.rank),
        figures[0],
        *ends,
        *figures[1:],
        str(sum(each.failed_trials for each in team.models.values())) if team.models else "",
    ]


def _csv(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


def _latex(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join("".join(_LATEX.get(each, each) for each in printable_line(cell)) for cell in cells) + r" \\"

    alignment = "l" * _TEXT_COLUMNS + "r" * (len(columns) - _TEXT_COLUMNS)
    lines = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule", line(columns), r"\midrule"]
    return "\n".join([*lines, *map(line, rows), r"\bottomrule", r"\end{tabular}", ""])


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(printable_line(cell).replace("|", "\\|") for cell in cells) + " |"

    marks = ["---"] * _TEXT_COLUMNS + ["---:"] * (len(columns) - _TEXT_COLUMNS)
    return "\n".join([line(columns), line(marks), *map(line, rows), ""])
