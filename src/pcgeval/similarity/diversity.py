"""The diversity of a letter: the mean cosine distance of the classifier's vectors of its levels.

Diversity of a letter = sum over all pairs of trials of their cosine distance / (T (T + 1) / 2 - T), the number of
pairs of T trials. T is the configured number: a failed trial has no vector, so its pairs count as 0. A single trial has
no pair to compare: its diversity is 1 by definition, so that it leaves the score as it is.
Source: the diversity checking script of ChatGPT4PCG 2024 and LLMs4PCG 2025.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import rewritten_folder, write_json
from pcgeval.formats.layout import DATA, letter_file, stage_dir
from pcgeval.formats.params import Params
from pcgeval.formats.stages import SimilarityFile

# Distances of rounded probabilities carry no more, and the last bits of a dot product depend on the processor.
_DIGITS = 7

Floats = NDArray[np.float64]


class DiversityError(PcgevalError):
    """The diversity of these vectors is not defined."""


def diversity(vectors: ArrayLike, trials: int) -> float:
    """Return the diversity of one letter, 0 (all alike) to about 1; of a single trial 1.

    Args:
        vectors: One vector per trial that did not fail, shape (n, d).
        trials: The configured number of trials T, at least 1; n may be less.

    Raises:
        DiversityError: T is below 1 or n, or the vectors are ragged or not finite.
    """
    rows = _rows(vectors)
    if trials < max(1, len(rows)):
        raise DiversityError(f"{trials} trials are too few for {len(rows)} vectors. Correct competition.trials.")
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


def diversity_stage(params: Params, root: Path = Path()) -> None:
    """Write the official `data/diversity/<model>/<team>/<C>.json` of every letter from the similarity files.

    Distances and rates have 7 decimals, the same on every processor. `diversity.vectors` in params.yaml names the
    vectors: `softmax`, the 26 probabilities (the rules), or `cls`, the embeddings (the 2025 script).
    """
    rules, similarity = params.competition, root / DATA / "similarity"
    with rewritten_folder(root / DATA / "diversity", keep=similarity):
        for model, team, letter in itertools.product(params.models, params.teams, rules.characters):
            path = letter_file(root / stage_dir("similarity", model, team), letter)
            vectors = _read_vectors(path, params.diversity.vectors)
            try:
                values = _official_values(vectors, rules.trials)
            except DiversityError as error:
                raise DiversityError(f"{path}: team {team}, letter {letter}: {error}") from error
            write_json(letter_file(root / stage_dir("diversity", model, team), letter), values, indent=None)


def _official_values(vectors: Sequence[tuple[str, Sequence[float]]], trials: int) -> dict[str, Any]:
    """Return the content of the official file from the vector of each trial, by its name."""
    names, rows = [name for name, _ in vectors], [row for _, row in vectors]
    pairs = zip(itertools.combinations(names, 2), pair_distances(rows), strict=True)
    return {
        "count": len(rows),
        "diversityRate": round(diversity(rows, trials), _DIGITS),
        "trials": [{"trial": name, "vector": row} for name, row in vectors],
        "diversities": [
            {"pair": {"trial1": one, "trial2": other}, "distance": round(float(distance), _DIGITS)}
            for (one, other), distance in pairs
        ],
    }


def _read_vectors(path: Path, vectors: Literal["softmax", "cls"]) -> list[tuple[str, tuple[float, ...]]]:
    """Read the first `count` vectors of a similarity file, as the official script does; softmax ones by label."""
    content = SimilarityFile.read(path)
    if content.count is None or not 0 <= content.count <= len(content.predictions):
        raise FileError(f"{path}: count is {content.count} of {len(content.predictions)} trials. Classify again.")
    labels, rows = set(), []
    for prediction in content.predictions[: content.count]:
        ordered = sorted(prediction.probabilities, key=lambda probability: probability.label)
        labels.add(tuple(probability.label for probability in ordered))
        softmax = tuple(probability.probability for probability in ordered)
        vector = softmax if vectors == "softmax" else prediction.embedding
        if not vector:
            fault = f"{prediction.name[:100]!r} has no {vectors} vector. Classify again, or set diversity.vectors"
            raise FileError(f"{path}: {fault} to what the file has.")
        rows.append((prediction.name.split(".", 1)[0], vector))
    if vectors == "softmax" and len(labels) > 1:
        raise FileError(f"{path}: trials have different labels. Classify all trials with the same classifier.")
    return rows
