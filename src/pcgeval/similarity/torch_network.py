"""Any image classifier that transformers loads, on any device of torch."""

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError

from pcgeval.core.packages import packages_for
from pcgeval.similarity.preprocessing import RowRuns, pixels_of
from pcgeval.similarity.source import ClassifierError, Precision, Preprocessing, first_line, lacking_weights, unloadable

# what transformers raises for a faulty configuration; ImportError: the network needs another package
_UNLOADABLE = (
    *(OSError, ValueError, RuntimeError, LookupError, TypeError, AttributeError, ArithmeticError, ImportError),
    *(AssertionError, MemoryError, SafetensorError),
)


class TorchNetwork:
    """One loaded network with the preprocessing of its pictures."""

    def __init__(self, folder: Path, device: str, precision: Precision) -> None:
        """Load the network; arguments and errors are those of `Classifier.load`."""
        with packages_for("this classifier"):
            import torch  # noqa: PLC0415
            from huggingface_hub.errors import StrictDataclassError  # noqa: PLC0415
            from transformers import AutoImageProcessor, AutoModelForImageClassification  # noqa: PLC0415
            from transformers.utils import logging  # noqa: PLC0415

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self.device = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
        self._dtype: torch.dtype = getattr(torch, precision)
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:  # the latter from a build without CUDA
            fault = f"{self.device!r} cannot be used here ({first_line(error)}). Set it to cpu."
            raise ClassifierError(f"similarity.device: {fault}") from error
        self._preprocessing = Preprocessing.of_folder(folder)
        self._processor: Any = None
        self._computing = threading.Lock()  # one batch uses all cores, or the GPU; others are prepared meanwhile
        try:
            if self._preprocessing is None:
                self._processor = AutoImageProcessor.from_pretrained(  # type: ignore[no-untyped-call]
                    folder, local_files_only=True, trust_remote_code=False
                )
            model, loading = AutoModelForImageClassification.from_pretrained(
                folder,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=self._dtype,
                output_loading_info=True,
            )
            self._model: Any = model.to(self.device).eval()
        except (*_UNLOADABLE, StrictDataclassError) as error:
            raise unloadable(folder, error) from error
        if loading["missing_keys"]:  # transformers would continue with random weights
            raise lacking_weights(folder, loading["missing_keys"])
        self.width = int(self._model.config.hidden_size)

    def pixels(self, images: Sequence[Image.Image | RowRuns]) -> NDArray[np.float32]:
        """Return the network's input, shape (n, 3, height, width)."""
        if self._preprocessing is not None:
            return pixels_of(images, self._preprocessing)
        whole = [image.image() if isinstance(image, RowRuns) else image for image in images]
        converted = [image.convert("RGB") for image in whole]
        return np.asarray(self._processor(images=converted, return_tensors="np")["pixel_values"])

    def __call__(self, pixels: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return softmax and the CLS token of the last layer, before the final normalisation, as officially."""
        import torch  # noqa: PLC0415

        # else a GPU rounds the patches of single precision to the 10 bits of TF32
        exact_patches = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
        with self._computing, torch.inference_mode(), exact_patches:
            output = self._model(
                pixel_values=torch.from_numpy(pixels).to(self.device, self._dtype), output_hidden_states=True
            )
            probabilities = torch.softmax(output.logits.double(), dim=-1)
            embeddings = output.hidden_states[-1][:, 0].double()
        return probabilities.cpu().numpy(), embeddings.cpu().numpy()
