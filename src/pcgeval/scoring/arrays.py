"""The formulas of `formulas.py` once more in floats, for what is computed many times: resamples and what-ifs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from pcgeval.scoring.decimals import ZERO
from pcgeval.scoring.inputs import Entry, LetterResults, ScoringRules, first_by_trial

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Measurements:
    """One model as arrays: stability and similarity (P, C, T), diversity (P, C); what is absent is 0."""

    stability: Floats
    similarity: Floats
    diversity: Floats


def measurements(programs: Sequence[Mapping[str, LetterResults]], rules: ScoringRules) -> Measurements:
    """Return the results of P programs with one model as arrays; quirks of the official script are left out."""
    letters = [[program.get(letter, LetterResults()) for letter in rules.letters] for program in programs]

    def trials(entries: tuple[Entry, ...] | None) -> list[Decimal]:
        values = first_by_trial(entries)
        return [values.get(trial, ZERO) for trial in range(1, rules.trials + 1)]

    return Measurements(
        np.array([[trials(each.stability) for each in row] for row in letters], dtype=np.float64),
        np.array([[trials(each.similarity) for each in row] for row in letters], dtype=np.float64),
        np.array([[each.diversity or 0 for each in row] for row in letters], dtype=np.float64),
    )


def prompt_scores(stability: Floats, similarity: Floats, diversity: Floats, *, weighted: bool = True) -> Floats:
    """Return the prompt scores (N, P) of N competitions with one model.

    Args:
        stability: (N, P, C, T).
        similarity: (N, P, C, T).
        diversity: (N, P, C).
        weighted: False gives each letter the weight 1.
    """
    letters = (stability * similarity).mean(axis=-1) * diversity
    if weighted:
        weight = _weight(stability.mean(axis=(1, 3))) * _weight(similarity.mean(axis=(1, 3)))
        weight *= _weight(diversity.mean(axis=1))
        letters *= weight[:, None, :]
    scores: Floats = letters.mean(axis=-1)
    return scores


def _weight(mean: Floats) -> Floats:
    weights: Floats = np.maximum(1 - mean, 1 / mean.shape[-1])
    return weights


def normalised(totals: Floats) -> Floats:
    """Return totals (N, P) in percent of their sum; 0 of 0 is 0."""
    whole = totals.sum(axis=-1, keepdims=True)
    percent: Floats = 100 * totals / np.where(whole > 0, whole, 1)
    return percent
