"""Uncertainty of the normalised totals: a bootstrap over the trials.

Each resample draws, for every model, team and letter on its own, T of its T trials with replacement (stability and
similarity of a trial stay together), and computes weights, scores and normalised totals from them by the rules. The
5th and 95th percentile of a team's normalised totals are its 90 % interval. Diversity is kept as measured: it is one
number for all trials of a letter, and drawing a trial twice would lower it for no reason but the drawing. So the
interval shows the chance in the trials, not that in the choice of letters, models or classifier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from pcgeval.core.stage_files import ScoreInterval
from pcgeval.scoring.decimals import ZERO
from pcgeval.scoring.inputs import (
    CompetitionResults,
    Entry,
    LetterResults,
    ScoringRules,
    byte_order,
    first_by_trial,
)

LEVEL = 0.90
_DIGITS = 4  # of a percentage: far above what the order of float sums can change
_DRAWS_AT_ONCE = 2_000_000  # bounds the memory at some 100 MB

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Measurements:
    """One model as arrays: stability and similarity (P, C, T), diversity (P, C); what is absent is 0."""

    stability: Floats
    similarity: Floats
    diversity: Floats


def bootstrap(results: CompetitionResults, rules: ScoringRules, resamples: int, seed: int) -> dict[str, ScoreInterval]:
    """Return the 90 % interval of every team's normalised total; none for 0 resamples.

    Args:
        results: What `score_competition` takes; the order of models and teams does not matter.
        rules: Letters and trials; quirks of the official script are left out.
        resamples: How often to draw; 1 000 steadies the ends of an interval to about a tenth of its width.
        seed: The same seed gives the same intervals.
    """
    if not resamples:
        return {}
    models = sorted(results.models, key=byte_order)
    teams = sorted(results.models[models[0]], key=byte_order)
    measured = [_measurements([results.models[model][team].letters for team in teams], rules) for model in models]
    generator = np.random.default_rng(seed)
    chunk = max(1, _DRAWS_AT_ONCE // measured[0].stability.size)
    counts = [min(chunk, resamples - start) for start in range(0, resamples, chunk)]
    totals = np.concatenate(
        [np.sum([_resample(each, count, generator) for each in measured], axis=0) for count in counts]
    )
    low, high = np.quantile(_normalised(totals), [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {
        team: ScoreInterval(round(float(low[index]), _DIGITS), round(float(high[index]), _DIGITS))
        for index, team in enumerate(teams)
    }


def _resample(measured: _Measurements, count: int, generator: np.random.Generator) -> Floats:
    """Return the prompt scores (count, P) of one model in `count` resamples."""
    shape = (count, *measured.stability.shape)
    chosen = generator.integers(shape[-1], size=shape)
    stability = np.take_along_axis(np.broadcast_to(measured.stability, shape), chosen, axis=-1)
    similarity = np.take_along_axis(np.broadcast_to(measured.similarity, shape), chosen, axis=-1)
    return _prompt_scores(stability, similarity, np.broadcast_to(measured.diversity, shape[:-1]))


def _measurements(programs: Sequence[Mapping[str, LetterResults]], rules: ScoringRules) -> _Measurements:
    """Return the results of P programs with one model as arrays; quirks of the official script are left out."""
    letters = [[program.get(letter, LetterResults()) for letter in rules.letters] for program in programs]

    def trials(entries: tuple[Entry, ...] | None) -> list[Decimal]:
        values = first_by_trial(entries)
        return [values.get(trial, ZERO) for trial in range(1, rules.trials + 1)]

    return _Measurements(
        np.array([[trials(each.stability) for each in row] for row in letters], dtype=np.float64),
        np.array([[trials(each.similarity) for each in row] for row in letters], dtype=np.float64),
        np.array([[each.diversity or 0 for each in row] for row in letters], dtype=np.float64),
    )


def _prompt_scores(stability: Floats, similarity: Floats, diversity: Floats) -> Floats:
    """Return the prompt scores (N, P) of N competitions with one model.

    Args:
        stability: (N, P, C, T).
        similarity: (N, P, C, T).
        diversity: (N, P, C).
    """
    weight = _weight(stability.mean(axis=(1, 3))) * _weight(similarity.mean(axis=(1, 3)))
    weight *= _weight(diversity.mean(axis=1))
    letters = (stability * similarity).mean(axis=-1) * diversity * weight[:, None, :]
    scores: Floats = letters.mean(axis=-1)
    return scores


def _weight(mean: Floats) -> Floats:
    weights: Floats = np.maximum(1 - mean, 1 / mean.shape[-1])
    return weights


def _normalised(totals: Floats) -> Floats:
    """Return totals (N, P) in percent of their sum; 0 of 0 is 0."""
    whole = totals.sum(axis=-1, keepdims=True)
    percent: Floats = 100 * totals / np.where(whole > 0, whole, 1)
    return percent
