"""What-ifs against the exact formulas: each must be what `score_competition` gives for results changed in that way."""

from dataclasses import replace

import pytest
from hypothesis import given
from scoring_examples import RULES, competitions, measured, one_model

from pcgeval.scoring.alternatives import POINT, alternatives, places
from pcgeval.scoring.formulas import score_competition
from pcgeval.scoring.inputs import CompetitionResults, LetterResults, TeamResults

NUMBERS = range(1, RULES.trials + 1)


def exact(results):
    return {each.team: float(each.normalised) for each in score_competition(results, RULES).totals}


def complete(results):
    """Return results in which no letter lacks a file; an absent trial failed."""

    def filled(team):
        letters = {}
        for letter in RULES.letters:
            found = team.letters.get(letter, LetterResults())
            values = [
                {entry.trial: float(entry.value) for entry in entries or () if entry.trial in NUMBERS}
                for entries in (found.stability, found.similarity)
            ]
            letters[letter] = measured(*values, float(found.diversity or 0))
        return TeamResults(letters)

    return CompetitionResults(
        {model: {team: filled(each) for team, each in teams.items()} for model, teams in results.models.items()}
    )


def with_gain(results, team, gain):
    """Return the results of a competition in which a team did better, trial by trial."""

    def better(letter):
        stability, similarity = (
            {each.trial: float(each.value) for each in entries} for entries in (letter.stability, letter.similarity)
        )
        diversity = float(letter.diversity)
        made = stability.keys() & similarity.keys()
        for trial in NUMBERS:
            if trial in made and gain == "stability":
                stability[trial] = min(1, stability[trial] + POINT)
            elif trial in made and gain == "similarity":
                similarity[trial] = min(1, similarity[trial] + POINT)
        if gain == "diversity" and len(made) > 1:
            diversity = min(1, diversity + POINT)
        if gain == "failures":
            for values in (stability, similarity):
                mean = sum(values[trial] for trial in made) / len(made) if made else 0
                values |= {trial: mean for trial in NUMBERS if trial not in made}
        return measured(stability, similarity, diversity)

    models = {
        model: teams
        | {team: replace(teams[team], letters={key: better(each) for key, each in teams[team].letters.items()})}
        for model, teams in results.models.items()
    }
    return CompetitionResults(models)


@given(competitions().map(complete))
def test_gains_are_what_the_formulas_give(results):
    found = alternatives(results, RULES)
    teams = exact(results)
    assert found.held == pytest.approx(teams, abs=1e-6)
    for team in teams:
        for gain, totals in found.gains[team].items():
            assert totals == pytest.approx(exact(with_gain(results, team, gain)), abs=1e-6)


@given(competitions().map(complete))
def test_a_model_that_is_left_out_is_as_if_it_were_never_there(results):
    found = alternatives(results, RULES)
    for model, totals in found.without_model.items():
        rest = {key: each for key, each in results.models.items() if key != model}
        assert totals == pytest.approx(exact(CompetitionResults(rest)), abs=1e-6)
    assert bool(found.without_model) == (len(results.models) > 1)


def test_without_weights_a_hard_letter_counts_like_any_other():
    results = CompetitionResults(
        {
            "m": {
                team: TeamResults({letter: measured(dict.fromkeys(NUMBERS, 1), dict.fromkeys(NUMBERS, value), 0.5)})
                for team, letter, value in (("easy", "A", 0.9), ("hard", "B", 0.3))
            }
        }
    )
    unweighted = alternatives(results, RULES).unweighted
    assert unweighted == pytest.approx({"easy": 75, "hard": 25})
    assert exact(results)["hard"] > 25


def test_equal_totals_share_a_place():
    assert places({"a": 1.0, "b": 3.0, "c": 1.0, "d": 0.0}) == {"a": 2, "b": 1, "c": 2, "d": 4}


def test_a_team_at_the_top_of_a_measure_gains_nothing_there():
    found = alternatives(one_model(best=(1, 0.5, 0.5), other=(0.5, 0.5, 0.5)), replace(RULES, letters="A"))
    assert found.gains["best"]["stability"]["best"] == found.gains["best"]["failures"]["best"]
    assert found.gains["other"]["stability"]["other"] > found.gains["other"]["failures"]["other"]
