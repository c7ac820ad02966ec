"""ranking.csv, ranking.json and metrics.json."""

import csv
import io
import json

import pytest
from scoring_examples import uniform

from pcgeval import CompetitionResults, Entrant, ScoreInterval, ScoringRules, TeamResults, rank, score_competition
from pcgeval.core.stage_files import RankingIntervals
from pcgeval.scoring.ranking import metrics, ranking_csv, ranking_file, write_ranking

RULES = ScoringRules("A", 3, baseline="base")


@pytest.fixture
def scores():
    teams = {"a,b": uniform(0.5, 0.5, 0.5), "base": TeamResults({}, failed_trials=3)}
    return score_competition(CompetitionResults({"m1": teams, "m2": teams}), RULES)


@pytest.fixture
def ranking(scores):
    entrants = [Entrant("a,b", 7), Entrant("base", 9, role="baseline"), Entrant("out", 1, disqualified="late")]
    return rank(scores, entrants, {"a,b": ScoreInterval(99.5, 100.0)})


def test_csv(ranking, scores):
    rows = list(csv.DictReader(io.StringIO(ranking_csv(ranking, scores))))
    assert [(row["rank"], row["team"], row["status"], row["winner"]) for row in rows] == [
        ("1", "a,b", "ranked", "yes"),
        ("", "base", "baseline", "no"),
        ("", "out", "disqualified", "no"),
    ]
    assert [row["normalised"] for row in rows] == ["100", "0", ""]
    assert [row["failed trials m2"] for row in rows] == ["0", "3", ""]
    assert rows[0]["score m1"] == rows[0]["score m2"] == "0.125"
    assert rows[0]["total"] == "0.25"


def test_json(ranking, scores, tmp_path):
    write_ranking(
        tmp_path, ranking, scores, ranking_file(ranking, scores, RankingIntervals(level=0.9, resamples=500, seed=7))
    )
    value = json.loads((tmp_path / "ranking.json").read_text())
    assert value["winners"] == ["a,b"]
    assert value["baseline"] == "base"
    assert value["engine"] == value["classifier"] == "unknown"
    assert value["result"] is None
    assert value["intervals"] == {"level": 0.9, "resamples": 500, "seed": 7}
    first, second, third = value["teams"]
    assert first["interval"] == [99.5, 100.0]
    unknown = {"flagged_trials": None, "blocks": None, "supplied": None}
    assert first["models"]["m1"] == {"score": "0.125", "normalised": "100", "failed_trials": 0, **unknown}
    assert second["status"] == "baseline"
    assert (third["disqualified"], third["total"], third["models"]) == ("late", None, {})


def test_no_intervals_without_resamples(ranking, scores):
    assert ranking_file(ranking, scores).intervals is None


def test_metrics_are_flat_numbers(ranking):
    assert metrics(ranking) == {
        "normalised.a,b": 100.0,
        "normalised.base": 0.0,
        "failed_trials.a,b": 0,
        "failed_trials.base": 6,
        "failed_trials_in_all": 6,
        "winner_total": 0.25,
        "winners": 1,
    }


def test_no_winner_has_no_total(scores):
    ranking = rank(scores, [Entrant("a,b", 7, role="baseline"), Entrant("base", 9, role="baseline")])
    found = metrics(ranking)
    assert found["winners"] == 0
    assert "winner_total" not in found


def test_the_three_files_are_written(ranking, scores, tmp_path):
    write_ranking(tmp_path / "results", ranking, scores, ranking_file(ranking, scores))
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "metrics.json",
        "ranking.csv",
        "ranking.json",
    ]
