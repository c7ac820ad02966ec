"""The bootstrap: deterministic, and equal to a slow version that resamples trial by trial."""

import numpy as np
import pytest
from scoring_examples import RULES, measured

from pcgeval import CompetitionResults, ScoreInterval, TeamResults, score_competition
from pcgeval.scoring import uncertainty
from pcgeval.scoring.uncertainty import bootstrap


def random_results():
    values = np.random.default_rng(3).random((2, 3, 2, 7)).tolist()

    def letter(numbers):
        stability, similarity = (dict(enumerate(half, start=1)) for half in (numbers[:3], numbers[3:6]))
        return measured(stability, similarity, numbers[6])

    return CompetitionResults(
        {
            model: {
                team: TeamResults({c: letter(of_letter) for c, of_letter in zip("AB", of_team, strict=True)})
                for team, of_team in zip("abc", of_model, strict=True)
            }
            for model, of_model in zip("mn", values, strict=True)
        }
    )


def intervals(results, resamples=50, seed=1, rules=RULES):
    return bootstrap(score_competition(results, rules), resamples, seed)


def test_the_intervals_of_a_slow_bootstrap():
    """Resample entries, score them with the exact formulas and take the percentiles: the same draws, the same ends."""
    results, resamples, generator = random_results(), 40, np.random.default_rng(7)
    drawn = {model: generator.integers(3, size=(resamples, 3, 2, 3)) for model in results.models}
    normalised = []
    for sample in range(resamples):
        models = {
            model: {
                team: TeamResults(
                    {
                        letter: redrawn(of_team.letters[letter], drawn[model][sample, place, position])
                        for position, letter in enumerate("AB")
                    }
                )
                for place, (team, of_team) in enumerate(teams.items())
            }
            for model, teams in results.models.items()
        }
        totals = score_competition(CompetitionResults(models), RULES).totals
        normalised.append([float(total.normalised) for total in totals])
    low, high = np.quantile(normalised, [0.05, 0.95], axis=0)
    ours = intervals(results, resamples, 7).values()
    assert [interval.low for interval in ours] == pytest.approx(low, abs=1e-4)
    assert [interval.high for interval in ours] == pytest.approx(high, abs=1e-4)


def redrawn(letter, drawn):
    stability = {place: float(letter.stability[index].value) for place, index in enumerate(drawn, start=1)}
    similarity = {place: float(letter.similarity[index].value) for place, index in enumerate(drawn, start=1)}
    return measured(stability, similarity, float(letter.diversity))


def test_the_seed_decides_the_draws(monkeypatch):
    results = random_results()
    assert intervals(results, seed=1) == intervals(results, seed=1) != intervals(results, seed=2)
    assert intervals(results, resamples=0) == {}
    assert intervals(CompetitionResults({"m": {"c": TeamResults({})}})) == {"c": ScoreInterval(0, 0)}
    monkeypatch.setattr(uncertainty, "_DRAWS_AT_ONCE", 1)  # memory is bounded by drawing in chunks
    assert set(intervals(results, resamples=5)) == {"a", "b", "c"}
