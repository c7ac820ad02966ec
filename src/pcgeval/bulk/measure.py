"""Measure a batch of levels: simulate each, draw them, and classify the pictures together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from pcgeval.core.level_table import LevelRow
from pcgeval.core.parallel import received_folder
from pcgeval.core.params import PhysicsParams, Similarity
from pcgeval.evaluator.image import render
from pcgeval.evaluator.walk import end_of
from pcgeval.similarity.classifier import loaded_classifier


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

    def __call__(self, levels: Sequence[str]) -> list[LevelRow]:
        """Return what each level in XML gives, whichever letter was asked for."""
        measured: list[LevelRow] = []
        pictures: dict[int, Image.Image] = {}
        for number, xml in enumerate(levels):
            end = end_of(xml, self.physics, paths=False)
            if isinstance(end, str):
                measured.append(LevelRow(failed_stage="simulate", reason=end))
                continue
            measured.append(
                LevelRow(blocks=end.total_blocks, moved=end.moving_blocks, stability=end.score, starts=end.starts)
            )
            pictures[number] = render(end)
        if self.classifier is None or not pictures:
            return measured
        folder = received_folder(self.classifier, self.classifier_sha256)
        classifier = loaded_classifier(folder, device=self.similarity.device, precision=self.similarity.precision)
        found = classifier.predict(list(pictures.values()))
        for row, number in enumerate(pictures):
            embedding = found.embeddings[row].astype(np.float32) if self.embeddings else None
            probabilities = tuple(found.probabilities[row].tolist())
            measured[number] = replace(measured[number], probabilities=probabilities, embedding=embedding)
        return measured
