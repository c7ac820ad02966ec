"""The letter classifier: a vision transformer, the small default one in numpy, any other through torch.

Results are rounded to 7 and 5 decimals. In double precision, other batches and threads give the same bytes; the noise
of single precision reaches the last of these digits.

The import of torch takes longer than the classification of a team's pictures, so `NumpyVit` computes a small network.
Its arithmetic is that of transformers' `ViTForImageClassification` in double precision, to about 1e-13, which the
rounding covers. The last layer is computed for the CLS token alone.
"""

import math
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from safetensors import SafetensorError, deserialize
from threadpoolctl import ThreadpoolController

from pcgeval.core.text import printable_line
from pcgeval.formats.layout import LETTERS
from pcgeval.similarity.preprocessing import RowRuns, pixels_of
from pcgeval.similarity.source import (
    CHANNELS,
    ClassifierError,
    Precision,
    Preprocessing,
    Source,
    VitConfig,
    lacking_weights,
    letter_columns,
    numpy_settings,
    resolve_source,
    unloadable,
)

if TYPE_CHECKING:
    from pcgeval.similarity.torch_network import TorchNetwork

Floats = NDArray[np.float64]

PROBABILITY_DECIMALS = 7
EMBEDDING_DECIMALS = 5


@dataclass(frozen=True, eq=False)
class Predictions:
    """The classifier's results for n pictures."""

    probabilities: Floats  # shape (n, 26): softmax in the order A to Z, with 7 decimals
    embeddings: Floats  # shape (n, d): the CLS token of the last layer, with 5 decimals


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
        if precision not in get_args(Precision):
            raise ClassifierError(f"precision {precision!r} must be {', '.join(get_args(Precision))}")
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


_loaded = cache(Classifier.load)


class NumpyVit:
    """The network with its preprocessing; its weights have the names that `save_pretrained` gives them."""

    device = "cpu"

    def __init__(self, folder: Path, config: VitConfig, preprocessing: Preprocessing) -> None:
        """Load a small classifier; raise ClassifierError if its weights are missing or of other shapes."""
        self.config, self.width, self._preprocessing = config, config.hidden_size, preprocessing
        try:
            self._weights = {name: _ready(value) for name, value in _read_weights(folder).items()}
            probabilities, _ = self(np.zeros((1, CHANNELS, config.image_size, config.image_size)))
        except KeyError as error:
            raise lacking_weights(folder, error.args) from error
        except (OSError, TypeError, ValueError, IndexError, SafetensorError) as error:
            raise unloadable(folder, error) from error
        if probabilities.shape != (1, len(LETTERS)):
            raise unloadable(folder, ValueError(f"it has {probabilities.shape[-1]} outputs for {len(LETTERS)} letters"))

    def pixels(self, images: Sequence[Image.Image | RowRuns]) -> NDArray[np.float32]:
        """Return the network's input, shape (n, 3, side, side)."""
        return pixels_of(images, self._preprocessing)

    def __call__(self, pixels: NDArray[np.floating]) -> tuple[Floats, Floats]:
        """Return the softmax, shape (n, labels), and the last layer's CLS tokens for pixels (n, 3, side, side)."""
        with _one_thread:
            tokens = self._embedded(pixels.astype(np.float64))
            for number in range(1, self.config.num_hidden_layers + 1):
                layer = f"vit.encoder.layer.{number - 1}"
                wanted = 1 if number == self.config.num_hidden_layers else tokens.shape[1]
                tokens = self._attended(layer, tokens, wanted)
                normed = self._normed(f"{layer}.layernorm_after", tokens)
                inner = _gelu(self._linear(f"{layer}.intermediate.dense", normed))
                tokens += self._linear(f"{layer}.output.dense", inner)
            last = tokens[:, 0]
            return _softmax(self._linear("classifier", self._normed("vit.layernorm", last))), last

    def _embedded(self, pixels: Floats) -> Floats:
        """Return the tokens of pictures, shape (n, 1 + patches, hidden size): CLS, then the patches row by row."""
        side, count = self.config.patch_size, self.config.image_size // self.config.patch_size
        blocks = pixels.reshape(len(pixels), CHANNELS, count, side, count, side)
        patches = blocks.transpose(0, 2, 4, 1, 3, 5).reshape(len(pixels), count**2, -1)
        cls = np.broadcast_to(self._weights["vit.embeddings.cls_token"], (len(pixels), 1, self.config.hidden_size))
        tokens = np.concatenate([cls, self._linear("vit.embeddings.patch_embeddings.projection", patches)], axis=1)
        return tokens + self._weights["vit.embeddings.position_embeddings"]

    def _attended(self, layer: str, tokens: Floats, wanted: int) -> Floats:
        """Return the first `wanted` tokens after their attention to all tokens."""
        heads, width = self.config.num_attention_heads, self.config.hidden_size // self.config.num_attention_heads
        normed = self._normed(f"{layer}.layernorm_before", tokens)

        def parted(name: str, values: Floats) -> Floats:
            shape = (len(values), values.shape[1], heads, width)
            return self._linear(f"{layer}.attention.attention.{name}", values).reshape(shape).transpose(0, 2, 1, 3)

        query, key, value = parted("query", normed[:, :wanted]), parted("key", normed), parted("value", normed)
        query *= 1 / math.sqrt(width)
        scores = query @ key.transpose(0, 1, 3, 2)
        mixed = (_softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(len(tokens), wanted, heads * width)
        return tokens[:, :wanted] + self._linear(f"{layer}.attention.output.dense", mixed)

    def _normed(self, name: str, values: Floats) -> Floats:
        normed: Floats = values - values.mean(axis=-1, keepdims=True)
        variance = np.einsum("...i,...i", normed, normed) / values.shape[-1]
        normed /= np.sqrt(variance + self.config.layer_norm_eps)[..., None]
        normed *= self._weights[f"{name}.weight"]
        normed += self._weights[f"{name}.bias"]
        return normed

    def _linear(self, name: str, values: Floats) -> Floats:
        # one large product is faster than many small ones
        rows = values.reshape(-1, values.shape[-1]) @ self._weights[f"{name}.weight"]
        rows += self._weights[f"{name}.bias"]
        return rows.reshape(*values.shape[:-1], -1)


def _read_weights(folder: Path) -> dict[str, NDArray[np.floating]]:
    """Read the weights; those in bfloat16, which numpy has not, are the upper halves of single-precision numbers."""
    weights: dict[str, NDArray[np.floating]] = {}
    for name, tensor in deserialize((folder / "model.safetensors").read_bytes()):  # type: ignore[no-untyped-call]
        kind, content = tensor["dtype"], tensor["data"]
        if kind == "BF16":
            values = (np.frombuffer(content, "<u2").astype(np.uint32) << 16).view(np.float32)
        elif kind in {"F16", "F32", "F64"}:
            values = np.frombuffer(content, f"<f{int(kind[1:]) // 8}")
        else:
            raise ValueError(f"its weight {name} is of type {kind}")
        weights[name] = values.reshape(tensor["shape"])
    return weights


def _ready(weight: NDArray[np.floating]) -> Floats:
    """Return a weight in double precision, that of a linear layer or of the patches as a matrix (inputs, outputs)."""
    exact: Floats = weight.astype(np.float64)
    return np.ascontiguousarray(exact.reshape(len(exact), -1).T) if exact.ndim in {2, 4} else exact


class _OneThread:
    """Keeps linear algebra on one thread while any thread is inside; for products this small, more only cost time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limits = ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._limits.enter_context(_LIBRARIES.limit(limits=1, user_api="blas"))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._limits.close()


_LIBRARIES = ThreadpoolController()  # those of numpy, which is imported by now
_one_thread = _OneThread()


def _softmax(scores: Floats) -> Floats:
    """Return the softmax over the last axis, in place."""
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


# The normal distribution function around each of many nodes, as a Taylor series: exact to 1e-14, and fast where numpy
# has no error function.
_PER_UNIT, _REACH = 1024, 9
_BLOCK = 32_768  # values at once, so that they stay in the processor's cache


def _series() -> Floats:
    """Return the coefficients for distances in nodes, shape (4, nodes): derivatives by factorials."""
    x = np.arange(-_REACH * _PER_UNIT, _REACH * _PER_UNIT + 1) / _PER_UNIT
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) / _PER_UNIT
    whole = np.array([math.erfc(-node / math.sqrt(2)) / 2 for node in x])
    return np.array([whole, density, -x * density / (2 * _PER_UNIT), (x**2 - 1) * density / (6 * _PER_UNIT**2)])


_SERIES = _series()


def _gelu(values: Floats) -> Floats:
    """Multiply values in place by the share of a normal distribution below them."""
    flat = values.reshape(-1)
    for start in range(0, len(flat), _BLOCK):
        x = flat[start : start + _BLOCK]
        rest = np.clip(x * _PER_UNIT, -_REACH * _PER_UNIT, _REACH * _PER_UNIT)
        node = np.rint(rest)
        rest -= node
        place = node.astype(np.intp)
        place += _REACH * _PER_UNIT
        share = _SERIES[-1].take(place)
        for coefficients in _SERIES[-2::-1]:
            share *= rest
            share += coefficients.take(place)
        x *= share
    return values
