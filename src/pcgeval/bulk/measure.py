"""Measure a batch of levels: simulate each, draw them, and classify the pictures together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcgeval.core.parallel import received_folder
from pcgeval.core.params import PhysicsParams, Similarity
from pcgeval.core.stage_files import StageName
from pcgeval.evaluator.image import render
from pcgeval.evaluator.walk import end_of
from pcgeval.similarity.classifier import loaded_classifier


@dataclass(frozen=True, slots=True)
class MeasuredLevel:
    """The measurements of a level, whichever letter was asked for; None for what it did not reach."""

    failed_stage: StageName | None = None
    reason: str | None = None
    blocks: int | None = None
    moved: int | None = None
    stability: float | None = None
    starts: tuple[float, ...] | None = None
    probabilities: tuple[float, ...] | None = None
    embedding: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class LevelMeasurer:
    """Measures levels with these settings; called with a batch of them, in this process or another.

    Attributes:
        physics: The settings of the simulation.
        classifier: The folder of the classifier; None measures stability alone.
        classifier_sha256: The hash of its files.
        similarity: Where and with what precision the classifier computes.
        embeddings: Whether to keep the classifier's embeddings.
    """

    physics: PhysicsParams
    classifier: Path | None
    classifier_sha256: str
    similarity: Similarity
    embeddings: bool

    def __call__(self, levels: Sequence[str]) -> list[MeasuredLevel]:
        """Return what each level in XML gives."""
        measured: list[MeasuredLevel] = []
        pictures: dict[int, Image.Image] = {}
        for number, xml in enumerate(levels):
            end = end_of(xml, self.physics, paths=False)
            if isinstance(end, str):
                measured.append(MeasuredLevel("simulate", end))
                continue
            pictures[number] = render(end)
            measured.append(MeasuredLevel(None, None, end.total_blocks, end.moving_blocks, end.score, end.starts))
        if self.classifier is not None and pictures:
            folder = received_folder(self.classifier, self.classifier_sha256)
            settings = self.similarity
            classifier = loaded_classifier(folder, device=settings.device, precision=settings.precision)
            found = classifier.predict(list(pictures.values()))
            embeddings = found.embeddings.astype(np.float32)
            rows = zip(pictures, found.probabilities.tolist(), embeddings, strict=True)
            for number, probabilities, embedding in rows:
                kept = embedding.copy() if self.embeddings else None
                measured[number] = replace(measured[number], probabilities=tuple(probabilities), embedding=kept)
        return measured
