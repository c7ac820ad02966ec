"""Uncertainty of the normalised totals: a bootstrap over the trials.

Each resample draws T of the T trials of every model, team and letter with replacement, and computes weights, scores and
normalised totals from them by the rules. The 5th and 95th percentile of a team's normalised totals are its 90 %
interval. Diversity stays as measured, because a trial that is drawn twice would lower it. The interval shows the chance
in the trials, not that in the choice of letters, models or classifier.
"""

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.stage_files import ScoreInterval
from pcgeval.scoring.formulas import CompetitionScores, ModelScores

LEVEL = 0.90
_DIGITS = 4  # of a percentage: far above what the order of float sums can change
_DRAWS_AT_ONCE = 2_000_000  # bounds the memory at some 100 MB

Floats = NDArray[np.float64]


def bootstrap(scores: CompetitionScores, resamples: int, seed: int) -> dict[str, ScoreInterval]:
    """Return the 90 % interval of every team's normalised total; none for 0 resamples.

    The same seed gives the same intervals; 1 000 resamples steady their ends to about a tenth of their width.
    """
    if not resamples:
        return {}
    models = [_measurements(model) for model in scores.models]
    generator = np.random.default_rng(seed)
    chunk = max(1, _DRAWS_AT_ONCE // models[0][0].size)
    counts = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
    totals = np.concatenate(
        [np.sum([_resample(*model, count, generator) for model in models], axis=0) for count in counts]
    )
    whole = totals.sum(axis=-1, keepdims=True)
    normalised = 100 * totals / np.where(whole > 0, whole, 1)  # 0 of 0 is 0
    lows, highs = np.quantile(normalised, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0).tolist()
    return {
        total.team: ScoreInterval(round(low, _DIGITS), round(high, _DIGITS))
        for total, low, high in zip(scores.totals, lows, highs, strict=True)
    }


def _measurements(model: ModelScores) -> tuple[Floats, Floats, Floats]:
    """Return the stability and the similarity, shape (P, C, T), and the diversity, shape (P, C), of a model."""
    diversity = np.array([[letter.diversity for letter in prompt.letters] for prompt in model.prompts], np.float64)
    trials = [trial for prompt in model.prompts for trial in prompt.trials]
    stability = np.array([trial.stability for trial in trials], np.float64).reshape(*diversity.shape, -1)
    similarity = np.array([trial.similarity for trial in trials], np.float64).reshape(*diversity.shape, -1)
    return stability, similarity, diversity


def _resample(
    stability: Floats, similarity: Floats, diversity: Floats, count: int, generator: np.random.Generator
) -> Floats:
    """Return the prompt scores (count, P) of one model in `count` resamples."""
    shape = (count, *stability.shape)
    drawn = generator.integers(shape[-1], size=shape)
    stability = np.take_along_axis(np.broadcast_to(stability, shape), drawn, axis=-1)
    similarity = np.take_along_axis(np.broadcast_to(similarity, shape), drawn, axis=-1)
    diversity = np.broadcast_to(diversity, shape[:-1])
    weight = _weight(stability.mean(axis=(1, 3))) * _weight(similarity.mean(axis=(1, 3)))
    weight *= _weight(diversity.mean(axis=1))
    letters = (stability * similarity).mean(axis=-1) * diversity * weight[:, None, :]
    scores: Floats = letters.mean(axis=-1)
    return scores


def _weight(mean: Floats) -> Floats:
    weights: Floats = np.maximum(1 - mean, 1 / mean.shape[-1])
    return weights
