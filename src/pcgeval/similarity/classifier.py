"""The letter classifier: a vision transformer, the small default one in numpy, any other through torch.

Results are rounded to 7 and 5 decimals. In double precision, other batches and threads give the same bytes; the noise
of single precision reaches the last of these digits.
"""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcgeval.core.text import printable_line
from pcgeval.formats.layout import LETTERS
from pcgeval.similarity.numpy_vit import NumpyVit
from pcgeval.similarity.preprocessing import RowRuns
from pcgeval.similarity.source import (
    ClassifierError,
    Precision,
    Source,
    letter_columns,
    numpy_settings,
    resolve_source,
)

if TYPE_CHECKING:
    from pcgeval.similarity.torch_network import TorchNetwork

PROBABILITY_DECIMALS = 7
EMBEDDING_DECIMALS = 5


@dataclass(frozen=True, eq=False)
class Predictions:
    """The classifier's results for n pictures."""

    probabilities: NDArray[np.float64]  # shape (n, 26): softmax in the order A to Z, with 7 decimals
    embeddings: NDArray[np.float64]  # shape (n, d): the CLS token of the last layer, with 5 decimals


class Classifier:
    """A loaded classifier; `labels` are the letters of the probabilities' columns."""

    labels = tuple(LETTERS)

    def __init__(self, source: Source, network: "NumpyVit | TorchNetwork") -> None:
        """Take the files and the network; use `load`."""
        self.name = source.name
        self.sha256 = source.sha256
        self.device = network.device
        self._columns = letter_columns(source.folder)
        self._network = network

    @classmethod
    def load(
        cls,
        source: str | Path | None = None,
        revision: str | None = None,
        device: str = "auto",
        precision: Precision = "float64",
    ) -> "Classifier":
        """Load a classifier.

        Args:
            source: A folder with config.json, model.safetensors and preprocessor_config.json, or a hub id; default:
                pcgeval's own classifier.
            revision: The commit of a hub id, which is required because a name alone does not pin the bytes.
            device: `cpu`, `cuda`, ... or `auto`: a GPU if there is one and the network is large.
            precision: Only float64 gives the same bytes on every machine; bfloat16 is for GPUs and for processors with
                instructions for it.

        Raises:
            ClassifierError: The classifier cannot be fetched, is broken or has other labels than A to Z, or the device
                is missing.
            MissingPackageError: The classifier needs torch, and the extra `classifier` is not installed.
        """
        files = resolve_source(source, revision)  # before the imports, which take seconds
        if settings := numpy_settings(files.folder, device, precision):
            return cls(files, NumpyVit(files.folder, *settings))
        from pcgeval.similarity.torch_network import TorchNetwork  # noqa: PLC0415

        return cls(files, TorchNetwork(files.folder, device, precision))

    def predict(self, images: Sequence[Image.Image | RowRuns]) -> Predictions:
        """Classify pictures of any mode and size, independently of one another.

        Raises:
            ClassifierError: The network takes pictures of another size, has no CLS token, or returns nan.
        """
        if not images:
            return Predictions(np.zeros((0, len(LETTERS))), np.zeros((0, self._network.width)))
        try:
            probabilities, embeddings = self._network(self._network.pixels(images))
        except (ValueError, MemoryError) as error:
            fault = f"takes no pictures as its preprocessor_config.json prepares them ({printable_line(str(error))})"
            raise ClassifierError(f"classifier {self.name}: {fault}. Save both with one size of pictures.") from error
        if embeddings.ndim != 2 or not (np.isfinite(probabilities).all() and np.isfinite(embeddings).all()):
            fault = "its answers are not finite numbers, or it is no vision transformer with a CLS token"
            raise ClassifierError(f"classifier {self.name}: {fault}. Name another one in similarity.model.")
        return Predictions(
            np.round(probabilities[:, self._columns], PROBABILITY_DECIMALS),
            # adding zero turns -0.0, whose sign depends on noise, into 0.0
            np.round(embeddings, EMBEDDING_DECIMALS) + 0.0,
        )


_loading = threading.Lock()


def loaded_classifier(
    source: str | Path | None = None,
    revision: str | None = None,
    device: str = "auto",
    precision: Precision = "float64",
) -> Classifier:
    """Load a classifier once in a process, for all its threads; see `Classifier.load`."""
    with _loading:
        return _loaded(source, revision, device, precision)


_loaded = functools.cache(Classifier.load)
