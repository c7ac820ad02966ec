"""Predictions kept by the hashes of classifier and picture, so that no picture is inferred twice for the same model.

The folder lies outside the pipeline's outputs: several teams, models and runs share it, and it can be deleted any time.
"""

from pathlib import Path

from pydantic import Field

from pcgeval.core.errors import FileError
from pcgeval.core.stage_files import StageFile
from pcgeval.similarity.source import LABELS

CACHE = Path(".cache") / "predictions"


class Prediction(StageFile):
    """One picture's probabilities in the order A to Z, and its embedding."""

    probabilities: tuple[float, ...] = Field(min_length=len(LABELS), max_length=len(LABELS))
    embedding: tuple[float, ...] = Field(min_length=1)


class PredictionCache:
    """The predictions of one classifier."""

    def __init__(self, classifier_sha256: str, root: Path = CACHE) -> None:
        """Use the folder of a classifier below `root`."""
        self._folder = root / classifier_sha256

    def get(self, picture_sha256: str) -> Prediction | None:
        """Return a picture's prediction, or None if it has none or its file is damaged."""
        try:
            return Prediction.read(self._path(picture_sha256))
        except FileError:
            return None

    def put(self, picture_sha256: str, prediction: Prediction) -> None:
        """Keep a picture's prediction."""
        prediction.write(self._path(picture_sha256))

    def _path(self, picture_sha256: str) -> Path:
        return self._folder / picture_sha256[:2] / f"{picture_sha256}.json"
