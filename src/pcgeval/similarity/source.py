"""The files of a classifier: a folder, or a hub id with the revision that pins its bytes; checked before loading.

The settings in its files tell whether numpy computes it. This module loads no numpy.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import tree_sha256
from pcgeval.core.packages import packages_for
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import LETTERS, PACKAGED_DATA
from pcgeval.formats.params import COMMIT, HUB_ID

Precision = Literal["float64", "float32", "bfloat16"]

FILES = ("config.json", "model.safetensors", "preprocessor_config.json")  # that decide a prediction
SHIPPED_SHA256 = "ecddf687e9ea29a195f3d9e563757094e22ec1b98a3908ca1bd3f28fd2e7626a"  # of data/classifier

CHANNELS = 3
MAX_BYTES = 64_000_000  # of weights; above, torch's faster arithmetic is worth its import
_Side = Annotated[int, Field(ge=1, le=4096)]
_PerChannel = Annotated[tuple[float, ...], Field(min_length=CHANNELS, max_length=CHANNELS)]
_DEFAULTS: dict[str, dict[str, Any]] = {  # of transformers, by the kind of image processor
    "ViT": {"size": {"height": 224, "width": 224}, "resample": 2, "do_center_crop": False},
    "DeiT": {"size": {"height": 256, "width": 256}, "resample": 3, "do_center_crop": True},
}


class ClassifierError(PcgevalError):
    """A classifier is missing, incomplete, not pinned, or does not tell the 26 letters apart."""


@dataclass(frozen=True)
class Source:
    """A classifier's files in a local folder, with the name for the results."""

    name: str
    revision: str | None
    folder: Path

    @cached_property
    def sha256(self) -> str:
        """One hash over weights, configuration and preprocessing."""
        return tree_sha256(self.folder, FILES)


def check_source(source: str | Path, revision: str | None, root: Path = Path()) -> None:
    """Check a folder's files and labels or a hub id's revision, without the network; raise ClassifierError."""
    if _is_folder(source, root):
        _check_folder(root / source)
    elif not COMMIT.fullmatch(revision or ""):
        raise ClassifierError(
            f"classifier {source}: revision {revision!r} does not pin its bytes. "
            "Set similarity.revision to the 40-digit commit that the model's page shows under 'Files and versions'."
        )


def resolve_source(source: str | Path | None, revision: str | None, root: Path = Path()) -> Source:
    """Return a classifier's files, of a folder, of the hub, or of the package for None; raise ClassifierError."""
    source = PACKAGED_DATA / "classifier" if source is None else source
    check_source(source, revision, root)
    if _is_folder(source, root):
        return Source(str(source), revision, root / source)
    folder = _fetch(str(source), str(revision))
    _check_folder(folder)
    return Source(str(source), revision, folder)


def _is_folder(source: str | Path, root: Path) -> bool:
    return isinstance(source, Path) or (root / source).is_dir() or not HUB_ID.fullmatch(source)


def _check_folder(folder: Path) -> None:
    for name in FILES:
        if not (folder / name).is_file():
            raise ClassifierError(
                f"{folder / name}: is missing. A classifier folder holds {', '.join(FILES)}, as `save_pretrained` of "
                "model and image processor write them; `git restore data/classifier` brings ours back."
            )
    letter_columns(folder)


def letter_columns(folder: Path) -> list[int]:
    """Return the numbers of the model's outputs for A to Z; raise ClassifierError if it has other labels."""
    try:
        config: Any = read_json(folder / "config.json")
    except FileError as error:
        raise ClassifierError(str(error)) from error
    names = config.get("id2label") if isinstance(config, dict) else None
    columns = {str(label): str(column) for column, label in names.items()} if isinstance(names, dict) else {}
    if set(columns) != set(LETTERS) or sorted(columns.values()) != sorted(map(str, range(len(LETTERS)))):
        labels = f"{len(columns)} different labels ({', '.join(sorted(columns))[:80]})"
        raise ClassifierError(
            f"{folder / 'config.json'}: id2label has {labels}, not the letters A to Z. Choose another classifier."
        )
    return [int(columns[label]) for label in LETTERS]


class VitConfig(BaseModel):
    """The fields of a vision transformer's config.json."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    model_type: Literal["vit"]
    hidden_act: Literal["gelu"] = "gelu"
    qkv_bias: Literal[True] = True
    num_channels: Literal[3] = 3
    image_size: int = Field(224, ge=1, le=1024)
    patch_size: int = Field(16, ge=1)
    hidden_size: int = Field(768, ge=1)
    num_hidden_layers: int = Field(12, ge=1)
    num_attention_heads: int = Field(12, ge=1)
    layer_norm_eps: float = Field(1e-12, gt=0)

    @classmethod
    def of_folder(cls, folder: Path) -> "VitConfig | None":
        """Read a classifier's configuration; None if it is another kind of network, or a large one."""
        try:
            if (folder / "model.safetensors").stat().st_size > MAX_BYTES:
                return None
            config = cls.model_validate(read_json(folder / "config.json"))
        except (FileError, OSError, ValidationError):
            return None
        fits = config.image_size % config.patch_size == 0 and config.hidden_size % config.num_attention_heads == 0
        return config if fits else None


class _Size(BaseModel):
    model_config = ConfigDict(extra="forbid")

    height: _Side
    width: _Side


class Preprocessing(BaseModel):
    """The settings of a preprocessor_config.json."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    do_resize: Literal[True] = True
    do_rescale: Literal[True] = True
    do_normalize: Literal[True] = True
    do_center_crop: bool
    size: _Size
    crop_size: _Size = _Size(height=224, width=224)
    resample: Literal[0, 1, 2, 3, 4, 5]
    rescale_factor: float = 1 / 255
    image_mean: _PerChannel = (0.5, 0.5, 0.5)
    image_std: _PerChannel = (0.5, 0.5, 0.5)

    @classmethod
    def of_folder(cls, folder: Path) -> "Preprocessing | None":
        """Read a classifier's settings; None if they are of another kind, which transformers applies."""
        try:
            values = read_json(folder / "preprocessor_config.json")
            kind = str(values.get("image_processor_type", "")).partition("ImageProcessor")[0]
            settings = cls.model_validate({**_DEFAULTS[kind], **values})
        except (FileError, AttributeError, KeyError, ValidationError):
            return None
        crop, size = settings.crop_size, settings.size
        is_padded = settings.do_center_crop and (crop.height > size.height or crop.width > size.width)
        return None if is_padded or 0 in settings.image_std else settings


def numpy_settings(folder: Path, device: str, precision: Precision) -> tuple[VitConfig, Preprocessing] | None:
    """Return the settings of a small ViT, which numpy computes with the same bytes as torch; None for any other."""
    config, preprocessing = VitConfig.of_folder(folder), Preprocessing.of_folder(folder)
    if device not in {"auto", "cpu"} or precision != "float64" or config is None or preprocessing is None:
        return None
    return config, preprocessing


def unloadable(folder: Path, error: Exception) -> ClassifierError:
    """Return the error about a classifier that cannot be loaded."""
    return ClassifierError(f"{folder}: is not a readable image classifier ({first_line(error)}). Restore its files.")


def lacking_weights(folder: Path, names: Collection[str]) -> ClassifierError:
    """Return the error about a classifier without some weights."""
    lacking = f"{min(names)}{', ...' if len(names) > 1 else ''}"
    return ClassifierError(f"{folder / 'model.safetensors'}: lacks {lacking}. Save the model with `save_pretrained`.")


def first_line(error: Exception) -> str:
    """Return the first line of another package's error."""
    return str(error).strip().split("\n")[0]


def _fetch(hub_id: str, revision: str) -> Path:
    with packages_for("a classifier of the hub"):
        from huggingface_hub import snapshot_download  # noqa: PLC0415 - slow to import, and only hub ids need it
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError  # noqa: PLC0415

    try:
        return Path(snapshot_download(hub_id, revision=revision, allow_patterns=list(FILES)))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise ClassifierError(
            f"classifier {hub_id} at {revision}: cannot be fetched from the hub ({first_line(error)}). Check the name, "
            "the revision and the network; or put the three files into a folder, a competition's into data/classifier."
        ) from error
