"""The letter classifier: a vision transformer through transformers' Auto classes.

The forward pass runs in double precision. Results are rounded to 7 and 5 decimals; in single precision their noise
reaches the last of these digits, so another batch size or number of threads would write other bytes.

torch and transformers take seconds to import; only loading a classifier does so.
"""

import functools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcgeval.core.packages import packages_for
from pcgeval.similarity.source import LABELS, ClassifierError, Source, letter_columns, resolve_source

PROBABILITY_DECIMALS = 7
EMBEDDING_DECIMALS = 5


@dataclass(frozen=True, eq=False)
class Predictions:
    """The classifier's answers about n pictures.

    Attributes:
        probabilities: Shape (n, 26), float64, softmax in the order A to Z, rounded to 7 decimals.
        embeddings: Shape (n, d), float64, the CLS token of the last layer, rounded to 5 decimals.
    """

    probabilities: NDArray[np.float64]
    embeddings: NDArray[np.float64]


class Classifier:
    """One loaded classifier; `labels` are the letters in the order of the probabilities' columns."""

    labels = LABELS

    def __init__(self, source: Source, processor: Any, model: Any, device: str) -> None:
        """Take what `load` has loaded."""
        self.name = source.name
        self.sha256 = source.sha256
        self.device = device
        self._columns = letter_columns(source.folder)
        self._processor = processor
        self._model = model

    @classmethod
    def load(cls, source: str | Path | None = None, revision: str | None = None, device: str = "auto") -> "Classifier":
        """Load a classifier.

        Args:
            source: A folder with config.json, model.safetensors and preprocessor_config.json, or a hub id; by default
                pcgeval's own classifier, which the package contains.
            revision: The commit of a hub id; required there, since a name alone does not pin the bytes.
            device: `cpu`, `cuda`, ... or `auto`: a GPU if there is one.

        Raises:
            ClassifierError: The classifier cannot be fetched, is broken or has other labels than A to Z, or there is no
                such device.
            MissingPackageError: The extra `classifier` is not installed.
        """
        files = resolve_source(source, revision)  # before the imports: what is wrong is said at once
        with packages_for("the classifier"):
            import torch  # noqa: PLC0415
            from safetensors import SafetensorError  # noqa: PLC0415
            from transformers import AutoImageProcessor, AutoModelForImageClassification  # noqa: PLC0415
            from transformers.utils import logging  # noqa: PLC0415

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        chosen = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        try:
            torch.empty(0, device=chosen)
        except (RuntimeError, AssertionError) as error:  # the latter from a build without CUDA
            reason = str(error).strip().split("\n")[0]
            raise ClassifierError(
                f"similarity.device: {chosen!r} cannot be used here ({reason}). Set it to cpu."
            ) from error
        try:
            processor = AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]
                files.folder, local_files_only=True, trust_remote_code=False
            )
            model, loading = AutoModelForImageClassification.from_pretrained(
                files.folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float64,
                output_loading_info=True,
            )
            model = model.to(chosen).eval()
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            reason = str(error).strip().split("\n")[0]
            raise ClassifierError(
                f"{files.folder}: is no image classifier that transformers can load ({reason}). "
                "Restore its files, or name another classifier in similarity.model."
            ) from error
        if loading["missing_keys"]:  # transformers would go on with random numbers in their place
            raise ClassifierError(
                f"{files.folder / 'model.safetensors'}: lacks {len(loading['missing_keys'])} weights "
                f"({min(loading['missing_keys'])}, ...). Save the whole model with `save_pretrained`."
            )
        return cls(files, processor, model, chosen)

    def predict(self, images: Sequence[Image.Image]) -> Predictions:
        """Classify pictures of any mode and size; one picture's result does not depend on the others.

        Raises:
            ClassifierError: The network answers with something else than numbers, or has no CLS token.
        """
        import torch  # noqa: PLC0415

        if not images:
            width = int(self._model.config.hidden_size)
            return Predictions(np.zeros((0, len(LABELS))), np.zeros((0, width)))
        pixels = self._processor(images=[image.convert("RGB") for image in images], return_tensors="np")["pixel_values"]
        with torch.inference_mode():
            values = torch.from_numpy(np.asarray(pixels)).to(self.device, torch.float64)
            output = self._model(pixel_values=values, output_hidden_states=True)
            probabilities = torch.softmax(output.logits, dim=-1)[:, self._columns]
            embeddings = output.hidden_states[-1][:, 0]  # before the final normalisation, as the official script does
        if embeddings.ndim != 2 or not (torch.isfinite(probabilities).all() and torch.isfinite(embeddings).all()):
            raise ClassifierError(
                f"classifier {self.name}: its answers are not finite numbers, or it is no vision transformer with a "
                "CLS token. Restore its weights, or name another classifier in similarity.model."
            )
        return Predictions(
            np.round(probabilities.cpu().numpy(), PROBABILITY_DECIMALS),
            # adding zero turns -0.0, whose sign depends on noise, into 0.0
            np.round(embeddings.cpu().numpy(), EMBEDDING_DECIMALS) + 0.0,
        )


_loading = threading.Lock()


def loaded_classifier(
    source: str | Path | None = None, revision: str | None = None, device: str = "auto"
) -> Classifier:
    """Return what `Classifier.load` does, loaded once in a process and shared by its threads.

    Raises:
        ClassifierError: It cannot be loaded.
        MissingPackageError: The extra `classifier` is not installed.
    """
    with _loading:
        return _loaded(None if source is None else str(source), revision, device)


@functools.cache
def _loaded(source: str | None, revision: str | None, device: str) -> Classifier:
    return Classifier.load(source, revision, device)
