"""Predictions kept by the hashes of classifier and picture, so that no picture is inferred twice for the same model.

The folder lies outside the pipeline's outputs: several teams, models and runs share it, and it can be deleted any time.
"""

from dataclasses import dataclass
from pathlib import Path

from pcgeval.core.files import FileError, read_json, write_json
from pcgeval.similarity.source import LABELS

CACHE = Path(".cache") / "predictions"


@dataclass(frozen=True)
class Prediction:
    """One picture's probabilities in the order A to Z, and its embedding."""

    probabilities: tuple[float, ...]
    embedding: tuple[float, ...]


class PredictionCache:
    """The predictions of one classifier."""

    def __init__(self, classifier_sha256: str, root: Path = CACHE) -> None:
        """Use the folder of a classifier below `root`."""
        self._folder = root / classifier_sha256

    def get(self, picture_sha256: str) -> Prediction | None:
        """Return a picture's prediction, or None if it has none or its file is damaged."""
        try:
            values = read_json(self._path(picture_sha256))
        except FileError:
            return None
        try:
            found = Prediction(
                tuple(map(float, values["probabilities"])),
                tuple(map(float, values["embedding"])),
            )
        except (KeyError, TypeError, ValueError):
            return None
        return found if len(found.probabilities) == len(LABELS) and found.embedding else None

    def put(self, picture_sha256: str, prediction: Prediction) -> None:
        """Keep a picture's prediction."""
        values = {"probabilities": prediction.probabilities, "embedding": prediction.embedding}
        write_json(self._path(picture_sha256), values, indent=None)

    def _path(self, picture_sha256: str) -> Path:
        return self._folder / picture_sha256[:2] / f"{picture_sha256}.json"
