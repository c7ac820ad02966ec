"""Places and winners by the rules of the competition, and the files that show them."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from scoring_examples import uniform

from pcgeval import (
    CompetitionResults,
    Entrant,
    PcgevalError,
    ScoreInterval,
    ScoringRules,
    TeamResults,
    rank as rank_teams,
    score_competition as score_all,
)
from pcgeval.formats.results import RankingIntervals
from pcgeval.scoring.ranking import ranking_file, with_disqualified, write_metrics, write_ranking

RULES = ScoringRules("A", 3)
WITH_BAR = replace(RULES, baseline="base")
EQUAL = {"a": 0.5, "b": 0.5, "c": 0.5}
BASE, OTHER_BASE = Entrant("base", 9, role="baseline"), Entrant("other", 1, role="baseline")


def ranking_of(diversities, entrants, rules=RULES):
    """Rank teams that differ in their diversity alone: their totals are in the order of it."""
    teams = {team: uniform(0.5, 0.5, diversity) for team, diversity in diversities.items()}
    return rank_teams(score_all(CompetitionResults({"m": teams}), rules), entrants)


few = st.sampled_from([0.0, 0.25, 0.5])
teams = st.lists(
    st.tuples(few, st.sampled_from([1, 2]), st.sampled_from(["participant", "baseline"])), min_size=1, max_size=6
)


@given(teams, st.randoms(use_true_random=False))
def test_places_by_definition(drawn, random):
    """A place is one more than the number of participants that are strictly ahead; no order of input matters."""
    entrants = [Entrant(f"t{place}", length, role) for place, (_, length, role) in enumerate(drawn)]
    diversities = {f"t{place}": diversity for place, (diversity, _, _) in enumerate(drawn)}
    ranking = ranking_of(diversities, entrants)
    ranks = {row.team: row.rank for row in ranking.rows}
    for (diversity, length, role), name in zip(drawn, diversities, strict=True):
        ahead = sum(
            other > diversity or (other == diversity and other_length < length)
            for other, other_length, other_role in drawn
            if other_role == "participant"
        )
        assert ranks[name] == (None if role == "baseline" else 1 + ahead)
    assert set(ranking.winners) == {team for team, place in ranks.items() if place == 1}
    assert sorted(row.total for row in ranking.rows)[::-1] == [row.total for row in ranking.rows]
    shown = [row.rank for row in ranking.rows if row.rank]
    assert shown == sorted(shown)
    random.shuffle(entrants)
    assert ranking_of(dict(reversed(diversities.items())), entrants) == ranking


@pytest.mark.parametrize(
    ("diversities", "entrants", "winners", "reason"),
    [
        (EQUAL, [Entrant("a", 20), Entrant("b", 10), Entrant("c", 11)], ("b",), "its prompt is shorter"),
        (EQUAL, [Entrant("a", 20), Entrant("b", 10), Entrant("c")], ("a", "b", "c"), "a and b and c win together"),
        ({"a": 0.5, "base": 0.4}, [Entrant("a", 9), BASE], ("a",), "highest total, above the baseline base"),
        ({"a": 0.4, "base": 0.4}, [Entrant("a", 1), BASE], (), "no team beats the baseline base"),
        ({"base": 0.5}, [BASE], (), "all teams are baselines"),
        ({"a": 0.4, "base": 0.3, "other": 0.5}, [Entrant("a", 1), BASE, OTHER_BASE], ("a",), "above the baseline base"),
    ],
)
def test_the_winner_has_the_highest_total_the_shorter_prompt_and_beats_the_baseline(
    diversities, entrants, winners, reason
):
    ranking = ranking_of(diversities, entrants, WITH_BAR if "base" in diversities else RULES)
    assert ranking.winners == winners == tuple(row.team for row in ranking.rows if row.winner)
    assert reason in ranking.reason


@given(teams, st.integers(0, 5))
def test_a_disqualified_team_would_have_had_what_it_has_when_it_is_ranked(drawn, place):
    """Its line is that of the ranking in which it takes part; the lines of the others are those without it."""
    entrants = [Entrant("base", 9, "baseline"), *(Entrant(f"t{n}", team[1], team[2]) for n, team in enumerate(drawn))]
    diversities = {"base": 0.25} | {f"t{n}": diversity for n, (diversity, _, _) in enumerate(drawn)}
    measured = diversities | {"gone": 0.5}
    results = CompetitionResults({"m": {team: uniform(0.5, 0.5, value) for team, value in measured.items()}})
    out = entrants[1 + place % len(drawn)].team
    others = [entrant for entrant in entrants if entrant.team != out]
    without = ranking_of({team: value for team, value in diversities.items() if team != out}, others)
    judged = [replace(entrant, disqualified="late" if entrant.team == out else None) for entrant in entrants]
    judged.append(Entrant("gone", 1, disqualified="another"))
    scores = score_all(results.of([entrant.team for entrant in others]), RULES)
    ranking = with_disqualified(rank_teams(scores, judged), results, RULES, judged)
    (row,) = (row for row in ranking.rows if row.team == out)
    assert (row.status, row.rank, row.total, row.models) == ("disqualified", None, None, {})
    assert row.would_have == next(row for row in ranking_of(diversities, entrants).rows if row.team == out)
    assert [row for row in ranking.rows if row.status != "disqualified"] == list(without.rows)


def test_scores_submissions_and_baseline_must_fit():
    with pytest.raises(PcgevalError, match=r"team 'a'.*disqualified"):
        ranking_of({"a": 0.5}, [Entrant("a", 1, disqualified="cheated")])
    with pytest.raises(PcgevalError, match="role: baseline"):
        ranking_of({"a": 0.5, "base": 0.5}, [Entrant("a"), Entrant("base")], WITH_BAR)


def test_the_files_of_the_ranking(tmp_path):
    """A team above a baseline of which all trials failed, with two models."""
    scored = {"a,b": uniform(0.5, 0.5, 0.5), "base": TeamResults({}, failed_trials=3)}
    for version, (team, results) in enumerate(scored.items(), start=1):
        packages = frozenset({("numpy", f"{version}")})
        scored[team] = replace(results, provenance=replace(results.provenance, packages=packages))
    scores = score_all(CompetitionResults({"m1": scored, "m2": scored}), ScoringRules("A", 3))
    entrants = [Entrant("out", 1, disqualified="late"), BASE, Entrant("a,b", 7)]
    ranking = rank_teams(scores, entrants, {"a,b": ScoreInterval(99.5, 100.0)})
    first, *others = ranking.rows
    flagged = {
        name: first.models[name].model_copy(update={"flagged_trials": at}) for at, name in enumerate(("m1", "m2"), 1)
    }
    ranking = replace(ranking, rows=(first.model_copy(update={"models": flagged, "winner": False}), *others))
    write_ranking(tmp_path, ranking_file(ranking, scores, RankingIntervals(level=0.9, resamples=500, seed=7)))
    write_metrics(tmp_path / "metrics", ranking)
    columns = "rank,team,status,winner,normalised,total,recognised,trials,score m1,score m2,recognised m1,recognised m2"
    columns += ",failed trials m1,failed trials m2,flagged trials m1,flagged trials m2"
    columns += ",disqualified,rank if ranked,normalised if ranked,low,high"
    assert (tmp_path / "ranking.csv").read_text().splitlines() == [
        columns,
        '1,"a,b",ranked,no,100,0.25,,6,0.125,0.125,,,0,0,1,2,,,,99.5,100.0',
        ",base,baseline,no,0,0,0,6,0,0,0,0,3,3,,,,,,,",
        ",out,disqualified,no,,,,,,,,,,,,,late,,,,",
    ]
    values = json.loads((tmp_path / "ranking.json").read_text())
    assert values["packages"] == {"numpy": ["1", "2"]}
    assert (values["winners"], values["intervals"]) == (["a,b"], {"level": 0.9, "resamples": 500, "seed": 7})
    assert {path.stem: json.loads(path.read_text()) for path in (tmp_path / "metrics").iterdir()} == {
        "a,b": {"rank": 1, "normalised": 100.0, "low": 99.5, "high": 100.0, "failed_trials": 0, "flagged_trials": 3},
        "base": {"normalised": 0.0, "recognised": 0, "failed_trials": 6},
    }
