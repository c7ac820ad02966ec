"""`ranking.csv`, `ranking.json` and `metrics.json`: the ranking for tables, programs and `dvc metrics show`.

Exact numbers are texts in JSON, as in the official files; the metrics are rounded floats.
"""

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcgeval.core.files import to_json, write_text
from pcgeval.core.layout import METRICS, RANKING_CSV, RANKING_JSON
from pcgeval.scoring.decimals import plain
from pcgeval.scoring.formulas import RULES_VERSION, CompetitionScores
from pcgeval.scoring.ranking import ModelResult, Ranking, RankingRow
from pcgeval.scoring.uncertainty import LEVEL

_METRIC_DIGITS = 4


@dataclass(frozen=True)
class Bootstrap:
    """How the intervals of a ranking were drawn; no resamples means no intervals."""

    resamples: int = 0
    seed: int = 0


def write_ranking(folder: Path, ranking: Ranking, scores: CompetitionScores, drawn: Bootstrap) -> None:
    """Write the three files of the ranking into a folder, under the names that `results/` gives them."""
    csv_text, json_text = ranking_csv(ranking, scores), ranking_json(ranking, scores, drawn)
    metrics_text = metrics_json(ranking)
    write_text(folder / RANKING_CSV.name, csv_text)
    write_text(folder / RANKING_JSON.name, json_text)
    write_text(folder / METRICS.name, metrics_text)


def ranking_csv(ranking: Ranking, scores: CompetitionScores) -> str:
    """Return the table, one team a line: totals and normalised scores exact, empty where there is none."""
    models = [each.model for each in scores.models]
    columns = ["rank", "team", "status", "winner", "normalised", "total"]
    columns += [f"score {model}" for model in models] + [f"failed trials {model}" for model in models]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(_csv_row(row, len(models)) for row in ranking.rows)
    return text.getvalue()


def _csv_row(row: RankingRow, models: int) -> list[str]:
    numbers = ["" if each is None else plain(each) for each in (row.normalised, row.total)]
    results = [plain(each.score) for each in row.models] + [str(each.failed_trials) for each in row.models]
    place = "" if row.rank is None else str(row.rank)
    return [place, row.team, row.status, "yes" if row.winner else "no", *numbers, *(results or [""] * (2 * models))]


def ranking_json(ranking: Ranking, scores: CompetitionScores, drawn: Bootstrap) -> str:
    """Return all that is known of the ranking, with the rules and tools that it came from."""
    value = {
        "winners": list(ranking.winners),
        "reason": ranking.reason,
        "baseline": ranking.baseline,
        "rules": {
            "version": RULES_VERSION,
            "letters": scores.rules.letters,
            "trials": scores.rules.trials,
            "official_quirks": scores.rules.official_quirks,
        },
        "engine": scores.provenance.engine,
        "classifier": scores.provenance.classifier,
        "intervals": {"level": LEVEL, "resamples": drawn.resamples, "seed": drawn.seed} if drawn.resamples else None,
        "teams": [_team_object(row) for row in ranking.rows],
    }
    return to_json(value) + "\n"


def _team_object(row: RankingRow) -> dict[str, Any]:
    return {
        "team": row.team,
        "status": row.status,
        "rank": row.rank,
        "winner": row.winner,
        "total": None if row.total is None else plain(row.total),
        "normalised": None if row.normalised is None else plain(row.normalised),
        "interval": None if row.interval is None else [row.interval.low, row.interval.high],
        "models": {each.model: _model_object(each) for each in row.models},
        "prompt_length": row.prompt_length,
        "disqualified": row.disqualified,
    }


def _model_object(result: ModelResult) -> dict[str, Any]:
    return {
        "score": plain(result.score),
        "normalised": plain(result.normalised),
        "failed_trials": result.failed_trials,
    }


def metrics_json(ranking: Ranking) -> str:
    """Return flat figures for `dvc metrics show`: each team's normalised score, the winner's total, failed trials."""
    metrics: dict[str, float | int] = {}
    for row in ranking.rows:
        if row.normalised is not None:
            metrics[f"normalised.{row.team}"] = round(float(row.normalised), _METRIC_DIGITS)
            metrics[f"failed_trials.{row.team}"] = sum(each.failed_trials for each in row.models)
        if row.winner and row.total is not None:
            metrics["winner_total"] = float(f"{row.total:.6g}")
    metrics["winners"] = len(ranking.winners)
    metrics["failed_trials_in_all"] = sum(each.failed_trials for row in ranking.rows for each in row.models)
    return to_json(metrics) + "\n"
