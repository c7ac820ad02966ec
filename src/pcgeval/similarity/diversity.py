"""The diversity of a letter: the mean cosine distance of the classifier's vectors of its levels.

Diversity of a letter = sum over all pairs of trials of their cosine distance / (T (T + 1) / 2 - T), the number of
pairs of T trials. T is the configured number: a failed trial has no vector, so its pairs count as 0. A single trial has
no pair to compare: its diversity is 1 by definition, so that it leaves the score as it is.
Source: the diversity checking script of ChatGPT4PCG 2024 and LLMs4PCG 2025.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcgeval.core.errors import PcgevalError

Floats = NDArray[np.float64]


class DiversityError(PcgevalError):
    """The diversity of these vectors is not defined."""


def diversity(vectors: ArrayLike, trials: int) -> float:
    """Return the diversity of one letter, 0 (all alike) to about 1; of a single trial 1.

    Args:
        vectors: One vector per trial that did not fail, shape (n, d).
        trials: The configured number of trials T, at least 1; n may be less.

    Raises:
        DiversityError: T is no whole number of at least 1 and n, or the vectors are ragged or not finite.
    """
    rows = _rows(vectors)
    if not trials >= max(1, len(rows)) or trials % 1:
        few = f"{trials} is no number of trials, or too few for {len(rows)} vectors"
        raise DiversityError(f"{few}. Correct competition.trials.")
    distances = pair_distances(rows)
    return float(np.sum(distances) / (trials * (trials + 1) / 2 - trials)) if trials > 1 else 1.0


def mean_distances(vectors: Sequence[Sequence[float]], attempts: int) -> tuple[float, ...]:
    """Return each level's mean cosine distance to the other of at least two attempts; their mean is the diversity.

    An attempt without a level has an empty vector and the distance 0.
    """
    present = [place for place, vector in enumerate(vectors) if vector]
    sums = [0.0] * len(vectors)
    distances = pair_distances([vectors[place] for place in present])
    for (one, other), distance in zip(itertools.combinations(present, 2), distances, strict=True):
        sums[one] += float(distance)
        sums[other] += float(distance)
    return tuple(distance / (attempts - 1) for distance in sums)


def pair_distances(vectors: ArrayLike) -> Floats:
    """Return the cosine distances, 0 to 2, of all pairs i < j of (n, d) vectors: (0, 1), (0, 2) ... (1, 2) ...

    As in the official script, a vector of zeros has the distance 0 to any other.
    """
    rows = _rows(vectors)
    first, second = np.triu_indices(len(rows), k=1)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0)
    scaled = rows / np.where(largest > 0, largest, 1)  # squares of huge or tiny numbers would leave the range of floats
    squares = (scaled**2).sum(axis=1)
    lengths = np.sqrt(squares[first] * squares[second])
    products = (scaled @ scaled.T)[first, second]
    cosine = np.divide(products, lengths, out=np.ones_like(lengths), where=lengths > 0)
    distances: Floats = np.clip(1 - cosine, 0, 2)
    return distances


def _rows(vectors: ArrayLike) -> Floats:
    try:
        rows = np.asarray(vectors, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise DiversityError(f"the vectors are not numbers of one length each ({error}). Classify again.") from error
    if rows.size == 0:
        return rows.reshape(len(rows), 0)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise DiversityError(f"the vectors of shape {rows.shape} are not (trials, finite numbers). Classify again.")
    return rows
