"""The letter classifier: a vision transformer, the small default one in numpy, any other through torch.

The forward pass runs in double precision. Results are rounded to 7 and 5 decimals; in single precision their noise
reaches the last of these digits, so another batch size or number of threads would write other bytes.

torch and transformers take seconds to import; only loading a classifier that needs them does so.
"""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcgeval.core.untrusted import printable_line
from pcgeval.similarity.numpy_vit import NumpyVit, VitConfig
from pcgeval.similarity.preprocessing import Preprocessing
from pcgeval.similarity.source import LABELS, ClassifierError, Source, letter_columns, resolve_source

PROBABILITY_DECIMALS = 7
EMBEDDING_DECIMALS = 5
Precision = Literal["float64", "float32", "bfloat16"]
_Pixels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Predictions:
    """The classifier's answers about n pictures.

    Attributes:
        probabilities: Shape (n, 26), float64, softmax in the order A to Z, rounded to 7 decimals.
        embeddings: Shape (n, d), float64, the CLS token of the last layer, rounded to 5 decimals.
    """

    probabilities: NDArray[np.float64]
    embeddings: NDArray[np.float64]


class Network(Protocol):
    """A loaded network with the preprocessing of its pictures; several threads may use it at once."""

    device: str
    width: int  # of an embedding

    def pixels(self, images: Sequence[Image.Image]) -> _Pixels:
        """Return pictures as the network reads them, shape (n, 3, height, width)."""

    def __call__(self, pixels: _Pixels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return softmax, shape (n, 26), in the order of the network's outputs, and the CLS token of the last layer."""


class Classifier:
    """One loaded classifier; `labels` are the letters in the order of the probabilities' columns."""

    labels = LABELS

    def __init__(self, source: Source, network: Network) -> None:
        """Take what `load` has loaded."""
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
            source: A folder with config.json, model.safetensors and preprocessor_config.json, or a hub id; by default
                pcgeval's own classifier, which the package contains.
            revision: The commit of a hub id; required there, since a name alone does not pin the bytes.
            device: `cpu`, `cuda`, ... or `auto`: a GPU if there is one and the network is not a small one.
            precision: Of the arithmetic. Only float64 gives the same bytes whatever the machine and the batches;
                bfloat16 is for GPUs, and for processors with instructions for it.

        Raises:
            ClassifierError: The classifier cannot be fetched, is broken or has other labels than A to Z, or there is no
                such device.
            MissingPackageError: It needs torch, and the extra `classifier` is not installed.
        """
        files = resolve_source(source, revision)  # before the imports: what is wrong is said at once
        if runs_in_numpy(files.folder, device, precision):
            return cls(files, NumpyVit(files.folder))
        from pcgeval.similarity.torch_network import TorchNetwork  # noqa: PLC0415

        return cls(files, TorchNetwork(files.folder, device, precision))

    def predict(self, images: Sequence[Image.Image]) -> Predictions:
        """Classify pictures of any mode and size; one picture's result does not depend on the others.

        Raises:
            ClassifierError: The network takes pictures of another size, answers with something else than numbers, or
                has no CLS token.
        """
        if not images:
            return Predictions(np.zeros((0, len(LABELS))), np.zeros((0, self._network.width)))
        try:
            probabilities, embeddings = self._network(self._network.pixels(images))
        except ValueError as error:
            raise ClassifierError(
                f"classifier {self.name}: takes no pictures as its preprocessor_config.json prepares them "
                f"({printable_line(str(error))}). Save model and image processor with one size of pictures."
            ) from error
        if embeddings.ndim != 2 or not (np.isfinite(probabilities).all() and np.isfinite(embeddings).all()):
            raise ClassifierError(
                f"classifier {self.name}: its answers are not finite numbers, or it is no vision transformer with a "
                "CLS token. Restore its weights, or name another classifier in similarity.model."
            )
        return Predictions(
            np.round(probabilities[:, self._columns], PROBABILITY_DECIMALS),
            # adding zero turns -0.0, whose sign depends on noise, into 0.0
            np.round(embeddings, EMBEDDING_DECIMALS) + 0.0,
        )


def runs_in_numpy(folder: Path, device: str, precision: Precision) -> bool:
    """Tell whether a classifier is a small ViT, which numpy computes; its results are then torch's, byte for byte."""
    if device not in {"auto", "cpu"} or precision != "float64":
        return False
    return VitConfig.of_folder(folder) is not None and Preprocessing.of_folder(folder) is not None


_loading = threading.Lock()


def loaded_classifier(
    source: str | Path | None = None,
    revision: str | None = None,
    device: str = "auto",
    precision: Precision = "float64",
) -> Classifier:
    """Return what `Classifier.load` does, loaded once in a process and shared by its threads."""
    with _loading:
        return _loaded(source, revision, device, precision)


_loaded = functools.cache(Classifier.load)
