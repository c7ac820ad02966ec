"""The formulas against a slow literal version in fractions, and what must not change them."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scoring_examples import RULES, competitions, literal_prompt_score, literal_weight, measured, one_model, uniform

from pcgeval import CompetitionResults, Entry, LetterResults, Provenance, ScoringRules, TeamResults, score_competition
from pcgeval.scoring.decimals import from_float
from pcgeval.scoring.inputs import ScoringError


@settings(deadline=None, max_examples=40)
@given(competitions())
def test_scores_are_those_of_the_literal_formulas(results):
    scores = score_competition(results, RULES)
    for model in scores.models:
        teams = results.models[model.model]
        for weight in model.weights:
            assert Fraction(weight.weight) == literal_weight(teams, weight.letter, RULES)
        for prompt in model.prompts:
            assert Fraction(prompt.score) == literal_prompt_score(teams, prompt.team, RULES)
    for total in scores.totals:
        each = [literal_prompt_score(teams, total.team, RULES) for teams in results.models.values()]
        assert Fraction(total.total) == sum(each)


@settings(deadline=None, max_examples=40)
@given(competitions())
def test_normalised_totals_are_shares_of_a_hundred(results):
    scores = score_competition(results, RULES)
    whole = sum(Fraction(total.total) for total in scores.totals)
    for total in scores.totals:
        expected = 100 * Fraction(total.total) / whole if whole else 0
        assert abs(Fraction(total.normalised) - expected) <= Fraction(100, 10**20)


@settings(deadline=None, max_examples=40)
@given(competitions(), st.randoms(use_true_random=False))
def test_no_order_matters(results, random):
    def shuffled(mapping):
        items = list(mapping.items())
        random.shuffle(items)
        return dict(items)

    models = {model: shuffled(teams) for model, teams in shuffled(results.models).items()}
    letters = {
        model: {team: TeamResults(shuffled(each.letters)) for team, each in teams.items()}
        for model, teams in models.items()
    }
    assert score_competition(CompetitionResults(letters), RULES) == score_competition(results, RULES)


@settings(deadline=None, max_examples=40)
@given(competitions())
def test_entry_order_does_not_matter(results):
    turned = {
        model: {team: TeamResults({c: turn(x) for c, x in each.letters.items()}) for team, each in teams.items()}
        for model, teams in results.models.items()
    }
    assert score_competition(CompetitionResults(turned), RULES) == score_competition(results, RULES)


def turn(letter):
    stability, similarity = letter.stability, letter.similarity
    return LetterResults(stability and stability[::-1], similarity and similarity[::-1], letter.diversity)


def test_a_renamed_team_keeps_its_scores():
    first = score_competition(one_model(a=(1, 0.5, 0.25), b=(0.5, 0.5, 0.5)), ScoringRules("A", 3))
    second = score_competition(one_model(z=(1, 0.5, 0.25), b=(0.5, 0.5, 0.5)), ScoringRules("A", 3))
    assert {total.total for total in first.totals} == {total.total for total in second.totals}


def test_a_worked_example():
    """P = 1, C = 1, T = 2: the weight bottoms out at 1/C = 1, so scores are the plain products."""
    letter = measured({1: 0.5, 2: 1.0}, {1: 0.2, 2: 0.1}, 0.5)
    scores = score_competition(CompetitionResults({"m": {"t": TeamResults({"A": letter})}}), ScoringRules("A", 2))
    prompt = scores.models[0].prompts[0]
    assert [trial.score for trial in prompt.letters[0].trials] == [Decimal("0.1"), Decimal("0.1")]
    assert prompt.letters[0].score == prompt.score == Decimal("0.05")
    assert prompt.normalised == 100


def test_absent_trials_count_as_nothing():
    letter = measured({1: 1.0}, {1: 1.0, 2: 1.0}, 1.0)
    scores = score_competition(CompetitionResults({"m": {"t": TeamResults({"A": letter})}}), ScoringRules("AB", 4))
    weight = scores.models[0].weights[0]
    assert (weight.stability, weight.similarity, weight.diversity) == (Decimal("0.75"), Decimal("0.5"), Decimal("0.5"))
    assert scores.models[0].prompts[0].letters[0].score == Decimal("0.1875") / 4


def test_entries_beyond_the_trials_count_only_with_the_scripts_quirk():
    letter = measured({1: 0.5, 11: 0.5}, {1: 0.5, 11: 0.5}, 0.5)
    results = CompetitionResults({"m": {"t": TeamResults({"A": letter})}})
    by_rules = score_competition(results, ScoringRules("AB", 2)).models[0].weights[0]
    by_script = score_competition(results, ScoringRules("AB", 2, official_quirks=True)).models[0].weights[0]
    assert (by_rules.stability, by_script.stability) == (Decimal("0.75"), Decimal("0.5"))


def test_of_two_entries_of_a_trial_the_first_counts():
    twice = (Entry(1, from_float(0.25)), Entry(1, from_float(0.75)))
    letter = LetterResults(twice, (Entry(1, from_float(1.0)),), from_float(1.0))
    results = CompetitionResults({"m": {"t": TeamResults({"A": letter})}})
    assert score_competition(results, ScoringRules("A", 1)).models[0].prompts[0].score == Decimal("0.25")


def test_a_baseline_counts_in_the_weights():
    alone = score_competition(one_model(a=(1, 0.5, 0.5)), ScoringRules("AB", 3)).totals[0]
    beside = score_competition(one_model(a=(1, 0.5, 0.5), base=(0, 0, 0)), ScoringRules("AB", 3)).totals[0]
    assert beside.total > alone.total


def test_different_engines_do_not_meet():
    measured = {
        "a": TeamResults({}, provenance=Provenance("pymunk 7.1", "vit")),
        "b": TeamResults({}, provenance=Provenance("box2d 2.3", "vit")),
    }
    with pytest.raises(ScoringError, match=r"engines.*box2d 2\.3: b \(m\); pymunk 7\.1: a \(m\)"):
        score_competition(CompetitionResults({"m": measured}), RULES)


def test_different_classifiers_do_not_meet_across_models():
    def made_by(classifier):
        return {"a": TeamResults({}, provenance=Provenance("pymunk", classifier))}

    results = CompetitionResults({"m1": made_by("vit-1"), "m2": made_by("vit-2")})
    with pytest.raises(ScoringError, match=r"classifiers.*vit-1: a \(m1\); vit-2: a \(m2\)"):
        score_competition(results, RULES)


def test_provenance_is_carried_along():
    team = TeamResults({}, provenance=Provenance("pymunk", "vit"))
    assert score_competition(CompetitionResults({"m": {"a": team}}), RULES).provenance == Provenance("pymunk", "vit")


def test_a_team_must_have_every_model():
    results = CompetitionResults({"m1": {"a": uniform(1, 1, 1), "b": uniform(1, 1, 1)}, "m2": {"a": uniform(1, 1, 1)}})
    with pytest.raises(ScoringError, match=r"model 'm2' has no results of team 'b'"):
        score_competition(results, RULES)


@pytest.mark.parametrize("models", [{}, {"m": {}}])
def test_nothing_to_score(models):
    with pytest.raises(ScoringError, match="no teams to score"):
        score_competition(CompetitionResults(models), RULES)


def test_unequal_file_counts_stop_only_the_script():
    results = CompetitionResults({"m": {"t": TeamResults({"A": measured({1: 1.0}, None, 0.5)})}})
    assert score_competition(results, RULES).totals[0].total == 0
    with pytest.raises(ScoringError, match="1 stability, 0 similarity and 1 diversity files"):
        score_competition(results, ScoringRules("AB", 3, official_quirks=True))


@pytest.mark.parametrize("letters", ["", "AA", "a", "A/", "Ä", "A B"])
def test_letters_that_cannot_be_meant_are_refused(letters):
    with pytest.raises(ScoringError, match="capital letters"):
        ScoringRules(letters)


@pytest.mark.parametrize("trials", [0, -1, 1001])
def test_numbers_of_trials_that_cannot_be_meant_are_refused(trials):
    with pytest.raises(ScoringError, match="from 1 to 1000"):
        ScoringRules("A", trials)
