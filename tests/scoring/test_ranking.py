"""Places and winners by the rules of the competition."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_examples import one_model, uniform

from pcgeval import CompetitionResults, Entrant, ScoreInterval, ScoringRules, rank, score_competition
from pcgeval.scoring.inputs import ScoringError

RULES = ScoringRules("A", 3)
WITH_BAR = replace(RULES, baseline="base")


def ranking_of(diversities, entrants, rules=RULES):
    """Rank teams that differ in their diversity alone: their totals are in the order of it."""
    results = one_model(**{team: (0.5, 0.5, diversity) for team, diversity in diversities.items()})
    return rank(score_competition(results, rules), entrants)


def ranks(ranking):
    return {row.team: row.rank for row in ranking.rows}


def test_best_first():
    found = ranking_of({"a": 0.25, "b": 0.5}, [Entrant("a", 10), Entrant("b", 20)])
    assert [(row.team, row.rank, row.winner, row.status) for row in found.rows] == [
        ("b", 1, True, "ranked"),
        ("a", 2, False, "ranked"),
    ]
    assert found.winners == ("b",)
    assert found.reason == "b wins: it has the highest total; no baseline had to be beaten."


def test_equals_share_a_rank_and_the_next_is_skipped():
    totals = {"a": 0.5, "b": 0.25, "c": 0.25, "d": 0.125}
    assert ranks(ranking_of(totals, [Entrant(team, 10) for team in totals])) == {"a": 1, "b": 2, "c": 2, "d": 4}


def test_the_shorter_prompt_wins_among_equals():
    found = ranking_of({"a": 0.5, "b": 0.5, "c": 0.25}, [Entrant("a", 20), Entrant("b", 10), Entrant("c", 1)])
    assert ranks(found) == {"b": 1, "a": 2, "c": 3}
    assert found.winners == ("b",)
    assert found.reason == "b wins: its total equals that of a, its prompt is shorter; no baseline had to be beaten."


@pytest.mark.parametrize("lengths", [(10, 10), (None, None), (None, 10)])
def test_co_winners(lengths):
    found = ranking_of({"a": 0.5, "b": 0.5}, [Entrant("a", lengths[0]), Entrant("b", lengths[1])])
    assert ranks(found) == {"a": 1, "b": 1}
    assert found.winners == ("a", "b")
    assert found.reason.startswith("a and b win together")


def test_a_baseline_is_scored_but_has_no_rank():
    entrants = [Entrant("a", 10), Entrant("base", 10, role="baseline"), Entrant("b", 10)]
    found = ranking_of({"a": 0.5, "base": 0.4, "b": 0.3}, entrants, WITH_BAR)
    assert [(row.team, row.rank, row.status) for row in found.rows] == [
        ("a", 1, "ranked"),
        ("base", None, "baseline"),
        ("b", 2, "ranked"),
    ]
    assert sum(row.normalised for row in found.rows) == pytest.approx(100)
    assert found.reason == "a wins: it has the highest total, above the baseline base."


@pytest.mark.parametrize(("best", "winners"), [(0.5, ("a",)), (0.4, ()), (0.3, ())])
def test_the_winner_must_beat_the_baseline_strictly(best, winners):
    found = ranking_of({"a": best, "base": 0.4}, [Entrant("a", 1), Entrant("base", 9, role="baseline")], WITH_BAR)
    assert found.winners == winners
    assert ranks(found)["a"] == 1
    assert winners or found.reason.startswith("There is no winner: no team beats the baseline base")


def test_only_the_named_baseline_is_the_bar():
    entrants = [Entrant("a", 1), Entrant("base", 1, role="baseline"), Entrant("strong", 1, role="baseline")]
    found = ranking_of({"a": 0.4, "base": 0.3, "strong": 0.5}, entrants, WITH_BAR)
    assert found.winners == ("a",)


def test_disqualified_teams_are_shown_and_not_scored():
    entrants = [Entrant("a", 10), Entrant("d", 10, disqualified="called another model")]
    row = ranking_of({"a": 0.5}, entrants).rows[-1]
    assert (row.team, row.status, row.rank, row.total, row.models) == ("d", "disqualified", None, None, {})
    assert row.disqualified == "called another model"


def test_nobody_takes_part():
    found = ranking_of({"base": 0.5}, [Entrant("base", 1, role="baseline")], WITH_BAR)
    assert found.winners == ()
    assert "nobody takes part" in found.reason


def test_totals_are_summed_over_the_models():
    models = {
        "m1": {"a": uniform(0.5, 0.5, 0.5), "b": uniform(0.5, 0.5, 0.25)},
        "m2": {"a": uniform(0.5, 0.5, 0.25), "b": uniform(0.5, 0.5, 1)},
    }
    found = rank(score_competition(CompetitionResults(models), RULES), [Entrant("a", 1), Entrant("b", 1)])
    assert [row.team for row in found.rows] == ["b", "a"]
    for row in found.rows:
        assert row.total == sum(model.score for model in row.models.values())
    assert list(found.rows[0].models) == ["m1", "m2"]


def test_intervals_are_shown_beside_the_totals():
    results = one_model(a=(0.5, 0.5, 0.5), b=(0.5, 0.5, 0.4))
    found = rank(score_competition(results, RULES), [Entrant("a", 1), Entrant("b", 1)], {"a": ScoreInterval(1, 2)})
    assert [row.interval for row in found.rows] == [ScoreInterval(1, 2), None]


@pytest.mark.parametrize(
    ("entrants", "complaint"),
    [
        ([], "'a' has scores but no submission"),
        ([Entrant("a", 1), Entrant("b", 1)], "'b' has a submission but no scores"),
        ([Entrant("a", 1, disqualified="cheated")], "'a' is disqualified but was scored"),
        ([Entrant("a", 1), Entrant("a", 2)], "twice"),
    ],
)
def test_scores_and_submissions_must_fit(entrants, complaint):
    with pytest.raises(ScoringError, match=complaint):
        ranking_of({"a": 0.5}, entrants)


def test_the_baseline_must_be_scored_and_be_a_baseline():
    with pytest.raises(ScoringError, match="baseline 'base' is not among the scored"):
        ranking_of({"a": 0.5}, [Entrant("a", 1)], WITH_BAR)
    with pytest.raises(ScoringError, match="baseline 'base' takes part"):
        ranking_of({"a": 0.5, "base": 0.5}, [Entrant("a", 1), Entrant("base", 1)], WITH_BAR)


few = st.sampled_from([0.0, 0.25, 0.5])
teams = st.lists(
    st.tuples(few, st.sampled_from([1, 2]), st.sampled_from(["participant", "baseline"])), min_size=1, max_size=6
)


@settings(deadline=None)
@given(teams, st.randoms(use_true_random=False))
def test_places_by_definition(drawn, random):
    """A place is one more than the number of participants that are strictly ahead; no order of input matters."""
    entrants = [Entrant(f"t{place}", length, role) for place, (_, length, role) in enumerate(drawn)]
    diversities = {f"t{place}": each for place, (each, _, _) in enumerate(drawn)}
    found = ranking_of(diversities, entrants)
    for (own, length, role), name in zip(drawn, diversities, strict=True):
        ahead = sum(
            other > own or (other == own and other_length < length)
            for other, other_length, other_role in drawn
            if other_role == "participant"
        )
        assert ranks(found)[name] == (None if role == "baseline" else 1 + ahead)
    assert set(found.winners) == {team for team, place in ranks(found).items() if place == 1}
    random.shuffle(entrants)
    assert ranking_of(dict(reversed(diversities.items())), entrants) == found
