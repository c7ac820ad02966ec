"""The bootstrap: deterministic, and equal to a slow version that resamples trial by trial."""

import numpy as np
import pytest
from scoring_examples import RULES, measured

from pcgeval import CompetitionResults, ScoreInterval, TeamResults, score_competition
from pcgeval.scoring.ranking import bootstrap

MODELS, TEAMS = "mn", "abc"


def competition(letter_of):
    """Return results with letters A and B, each from its place in lists by model, team and letter."""
    return CompetitionResults(
        {
            model: {
                team: TeamResults({letter: letter_of(number, place, at) for at, letter in enumerate("AB")})
                for place, team in enumerate(TEAMS)
            }
            for number, model in enumerate(MODELS)
        }
    )


def three_trials(stability, similarity, diversity):
    return measured(dict(enumerate(stability, start=1)), dict(enumerate(similarity, start=1)), diversity)


VALUES = np.random.default_rng(3).random((2, 3, 2, 7))
RESULTS = competition(lambda *at: three_trials(*VALUES[at][:6].reshape(2, 3), VALUES[at][6]))


def intervals(results, resamples=50, seed=1):
    return bootstrap(score_competition(results, RULES), resamples, seed)


def test_the_intervals_of_a_slow_bootstrap():
    """Resample entries, score them with the exact formulas and take the percentiles: the same draws, the same ends."""
    generator = np.random.default_rng(7)
    drawn = [generator.integers(3, size=(40, 3, 2, 3)) for _ in MODELS]

    def resampled(sample):
        def letter(model, team, at):
            values, trials = VALUES[model, team, at], drawn[model][sample, team, at]
            return three_trials(values[:3][trials], values[3:6][trials], values[6])

        return competition(letter)

    totals = [score_competition(resampled(sample), RULES).totals for sample in range(40)]
    normalised = [[float(total.normalised) for total in of_sample] for of_sample in totals]
    low, high = np.quantile(normalised, [0.05, 0.95], axis=0)
    ours = intervals(RESULTS, 40, 7).values()
    assert [interval.low for interval in ours] == pytest.approx(low, abs=1e-4)
    assert [interval.high for interval in ours] == pytest.approx(high, abs=1e-4)


def test_the_seed_decides_the_draws_and_without_resamples_or_scores_there_is_nothing_to_draw():
    assert intervals(RESULTS, seed=1) == intervals(RESULTS, seed=1) != intervals(RESULTS, seed=2)
    assert intervals(RESULTS, resamples=0) == {}
    assert intervals(CompetitionResults({"m": {"c": TeamResults({})}})) == {"c": ScoreInterval(0, 0)}
