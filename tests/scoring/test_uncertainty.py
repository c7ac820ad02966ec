"""The bootstrap: deterministic, of no order, and equal to a slow version that resamples trial by trial."""

import numpy as np
import pytest
from hypothesis import given, settings
from scoring_examples import RULES, competitions, measured, uniform

from pcgeval import CompetitionResults, LetterResults, ScoreInterval, ScoringRules, TeamResults, score_competition
from pcgeval.scoring import uncertainty
from pcgeval.scoring.uncertainty import bootstrap


def results_of(generator, letters="AB", trials=3):
    def letter():
        numbers = range(1, trials + 1)
        values = [{number: float(generator.random()) for number in numbers} for _ in range(2)]
        return measured(*values, float(generator.random()))

    teams = ["a", "b", "c"]
    return CompetitionResults(
        {model: {team: TeamResults({each: letter() for each in letters}) for team in teams} for model in ["m1", "m2"]}
    )


def test_the_intervals_of_a_slow_bootstrap():
    """Resample entries, score them with the exact formulas and take the percentiles: the same draws, the same ends."""
    results = results_of(np.random.default_rng(3))
    resamples = 40
    generator = np.random.default_rng(7)
    chosen = {model: generator.integers(3, size=(resamples, 3, 2, 3)) for model in ["m1", "m2"]}
    normalised = []
    for sample in range(resamples):
        models = {
            model: {
                team: TeamResults(
                    {
                        letter: redrawn(each.letters[letter], chosen[model][sample, place, position])
                        for position, letter in enumerate("AB")
                    }
                )
                for place, (team, each) in enumerate(teams.items())
            }
            for model, teams in results.models.items()
        }
        totals = score_competition(CompetitionResults(models), RULES).totals
        normalised.append([float(total.normalised) for total in totals])
    low, high = np.quantile(normalised, [0.05, 0.95], axis=0)
    found = bootstrap(results, RULES, resamples, 7)
    assert [each.low for each in found.values()] == pytest.approx(low, abs=1e-4)
    assert [each.high for each in found.values()] == pytest.approx(high, abs=1e-4)


def redrawn(letter, chosen):
    stability = {place: float(letter.stability[each].value) for place, each in enumerate(chosen, start=1)}
    similarity = {place: float(letter.similarity[each].value) for place, each in enumerate(chosen, start=1)}
    return measured(stability, similarity, float(letter.diversity))


@settings(deadline=None, max_examples=30)
@given(competitions())
def test_seeded_and_of_no_order(results):
    turned = CompetitionResults(
        {model: dict(reversed(teams.items())) for model, teams in reversed(list(results.models.items()))}
    )
    assert bootstrap(results, RULES, 20, 1) == bootstrap(turned, RULES, 20, 1)


@settings(deadline=None, max_examples=30)
@given(competitions())
def test_intervals_are_ordered_and_within_0_and_100(results):
    for each in bootstrap(results, RULES, 20, 1).values():
        assert 0 <= each.low <= each.high <= 100 + 1e-9


def test_equal_trials_leave_no_uncertainty():
    results = CompetitionResults({"m": {"a": uniform(0.5, 0.5, 0.5), "b": uniform(0.5, 0.5, 0.25)}})
    found = bootstrap(results, ScoringRules("A", 3), 50, 0)
    assert found == {"a": ScoreInterval(66.6667, 66.6667), "b": ScoreInterval(33.3333, 33.3333)}


def test_a_letter_that_lacks_a_file_scores_nothing_in_any_resample():
    lacking = measured({1: 0.5, 2: 0.5, 3: 0.5}, None, 0.5)
    present = TeamResults({"A": LetterResults(lacking.stability, lacking.stability, lacking.diversity)})
    without_diversity = TeamResults({"A": LetterResults(lacking.stability, lacking.stability, None)})
    results = CompetitionResults({"m": {"a": present, "b": TeamResults({"A": lacking}), "c": without_diversity}})
    found = bootstrap(results, ScoringRules("A", 3), 10, 0)
    assert found == {"a": ScoreInterval(100, 100), "b": ScoreInterval(0, 0), "c": ScoreInterval(0, 0)}


def test_more_different_trials_are_less_certain():
    def spread(width):
        values = {1: 0.5 - width, 2: 0.5, 3: 0.5 + width}
        letter = measured(values, values, 0.5)
        results = CompetitionResults({"m": {"a": TeamResults({"A": letter}), "b": uniform(0.5, 0.5, 0.5)}})
        found = bootstrap(results, ScoringRules("A", 3), 500, 0)["a"]
        return found.high - found.low

    assert spread(0.4) > spread(0.1) > 0


def test_the_seed_changes_the_draws():
    results = results_of(np.random.default_rng(3))
    assert bootstrap(results, RULES, 50, 1) != bootstrap(results, RULES, 50, 2)


def test_no_resamples_give_no_intervals():
    assert bootstrap(results_of(np.random.default_rng(3)), RULES, 0, 1) == {}


def test_all_zero_totals_are_0():
    results = CompetitionResults({"m": {"a": TeamResults({})}})
    assert bootstrap(results, RULES, 10, 1) == {"a": ScoreInterval(0.0, 0.0)}


def test_memory_is_bounded_by_drawing_in_chunks(monkeypatch):
    monkeypatch.setattr(uncertainty, "_DRAWS_AT_ONCE", 1)
    found = bootstrap(results_of(np.random.default_rng(3)), RULES, 5, 1)
    assert set(found) == {"a", "b", "c"}
