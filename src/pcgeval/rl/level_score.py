"""The score of one reply as a level of a letter: the competition's stages from text to similarity, in memory."""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from pcgeval.core.params import PhysicsParams, Similarity
from pcgeval.evaluator.image import render
from pcgeval.evaluator.physics import SimulationError, simulate
from pcgeval.levels.errors import LevelError
from pcgeval.levels.extraction import extract_code, no_code_reason
from pcgeval.levels.xml import level_xml
from pcgeval.similarity.classifier import Classifier
from pcgeval.similarity.diversity import pair_distances
from pcgeval.similarity.source import LABELS

_loading = threading.Lock()


@dataclass(frozen=True)
class LevelScore:
    """The scores of one reply; without a level all are 0, as the rules say, and `reason` is given."""

    stability: float  # share of blocks that stayed
    similarity: float  # probability of the letter
    blocks: int
    probabilities: tuple[float, ...]  # of A to Z; empty without a level
    reason: str | None = None

    @property
    def score(self) -> float:
        """Stability times similarity: a trial's score before the letter's weight."""
        return self.stability * self.similarity


def score_reply(reply: str, letter: str, classifier: Classifier, physics: PhysicsParams) -> LevelScore:
    """Score a model's reply: extract, convert, simulate, render, classify."""
    code = extract_code(reply)
    if code is None:
        return LevelScore(0.0, 0.0, 0, (), no_code_reason(reply))
    try:
        stability = simulate(level_xml(code), physics)
    except (LevelError, SimulationError) as error:
        return LevelScore(0.0, 0.0, 0, (), error.reason if isinstance(error, LevelError) else str(error))
    probabilities = classifier.predict([render(stability)]).probabilities[0]
    similarity = float(probabilities[LABELS.index(letter)])
    return LevelScore(stability.score, similarity, stability.total_blocks, tuple(probabilities.tolist()))


def loaded_classifier(settings: Similarity) -> Classifier:
    """Return the classifier, loaded once per process.

    Raises:
        ClassifierError: It cannot be loaded.
    """
    with _loading:
        return _loaded(settings.model, settings.revision, settings.device)


def mean_distances(vectors: Sequence[Sequence[float]], attempts: int) -> tuple[float, ...]:
    """Return each level's mean cosine distance to the other attempts; the mean of all of them is the diversity.

    Args:
        vectors: The probabilities of each attempt; an empty one stands for an attempt without a level, which makes
            no pair, as in the competition's diversity, and so has the distance 0.
        attempts: The number of attempts, at least 2.
    """
    present = [place for place, vector in enumerate(vectors) if vector]
    sums = [0.0] * len(vectors)
    pairs = [(one, other) for index, one in enumerate(present) for other in present[index + 1 :]]
    for (one, other), distance in zip(pairs, pair_distances([vectors[place] for place in present]), strict=True):
        sums[one] += float(distance)
        sums[other] += float(distance)
    return tuple(each / (attempts - 1) for each in sums)


@functools.cache
def _loaded(model: str, revision: str | None, device: str) -> Classifier:
    return Classifier.load(model, revision, device)
