"""`ranking.csv`, `ranking.json` and `metrics.json`: the ranking for tables, programs and `dvc metrics show`.

Exact numbers are texts in JSON, as in the official files; the metrics are rounded floats.
"""

import csv
import io
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from pcgeval.core.files import write_json, write_text
from pcgeval.core.layout import METRICS, RANKING_CSV, RANKING_JSON
from pcgeval.core.stage_files import RankingFile, RankingIntervals, RankingRules, plain
from pcgeval.scoring.formulas import RULES_VERSION, CompetitionScores
from pcgeval.scoring.ranking import Ranking

_METRIC_DIGITS = 4


def write_ranking(folder: Path, ranking: Ranking, scores: CompetitionScores, file: RankingFile) -> None:
    """Write the three files of the ranking into a folder, under the names that `results/` gives them."""
    write_text(folder / RANKING_CSV.name, ranking_csv(ranking, scores))
    file.write(folder / RANKING_JSON.name)
    write_json(folder / METRICS.name, metrics(ranking))


def ranking_csv(ranking: Ranking, scores: CompetitionScores) -> str:
    """Return the table, one team a line: totals and normalised scores exact, empty where there is none."""
    models = [each.model for each in scores.models]
    columns = ["rank", "team", "status", "winner", "normalised", "total"]
    columns += [f"{figure} {model}" for figure in ("score", "failed trials", "flagged trials") for model in models]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in ranking.rows:  # the writer leaves None empty
        fields = [row.rank, row.team, row.status, "yes" if row.winner else "no"]
        fields += [None if each is None else plain(each) for each in (row.normalised, row.total)]
        fields += [plain(each.score) for each in row.models.values()]
        fields += [each.failed_trials for each in row.models.values()]
        fields += [each.flagged_trials for each in row.models.values()]
        writer.writerow(fields + [None] * (len(columns) - len(fields)))
    return text.getvalue()


def ranking_file(ranking: Ranking, scores: CompetitionScores, intervals: RankingIntervals | None = None) -> RankingFile:
    """Return all that is known of the ranking, with the rules and tools that it came from."""
    return RankingFile(
        winners=ranking.winners,
        reason=ranking.reason,
        baseline=ranking.baseline,
        rules=RankingRules(
            version=RULES_VERSION,
            letters=scores.rules.letters,
            trials=scores.rules.trials,
            official_quirks=scores.rules.official_quirks,
        ),
        engine=scores.provenance.engine,
        classifier=scores.provenance.classifier,
        packages={
            name: tuple(version for _, version in found)
            for name, found in groupby(sorted(scores.provenance.packages), key=itemgetter(0))
        },
        intervals=intervals,
        teams=ranking.rows,
    )


def metrics(ranking: Ranking) -> dict[str, float | int]:
    """Return flat figures for `dvc metrics show`: each team's normalised score, failed and flagged trials."""
    found: dict[str, float | int] = {}
    for row in ranking.rows:
        failed = sum(each.failed_trials for each in row.models.values())
        if row.normalised is not None:
            found[f"normalised.{row.team}"] = round(float(row.normalised), _METRIC_DIGITS)
            found[f"failed_trials.{row.team}"] = failed
            flagged = [each.flagged_trials for each in row.models.values() if each.flagged_trials is not None]
            if flagged:
                found[f"flagged_trials.{row.team}"] = sum(flagged)
        if row.winner and row.total is not None:
            found["winner_total"] = float(f"{row.total:.6g}")
        found["failed_trials_in_all"] = found.get("failed_trials_in_all", 0) + failed
    found["winners"] = len(ranking.winners)
    return found
