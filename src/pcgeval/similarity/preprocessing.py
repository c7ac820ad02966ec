"""The input of a vision transformer from pictures, as its preprocessor_config.json says.

The numbers are those of transformers' image processors of ViT and DeiT with pillow: resize, crop the centre, rescale,
normalise. Where torchvision is installed, transformers would resize to other numbers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pcgeval.core.errors import FileError
from pcgeval.core.untrusted import read_json

CHANNELS = 3
_Side = Annotated[int, Field(ge=1, le=4096)]
_PerChannel = Annotated[tuple[float, ...], Field(min_length=CHANNELS, max_length=CHANNELS)]
_DEFAULTS: dict[str, dict[str, Any]] = {  # of transformers, by the kind of image processor
    "ViT": {"size": {"height": 224, "width": 224}, "resample": 2, "do_center_crop": False},
    "DeiT": {"size": {"height": 256, "width": 256}, "resample": 3, "do_center_crop": True},
}


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

    def pixels(self, images: Sequence[Image.Image]) -> NDArray[np.float32]:
        """Return pictures of any mode and size as numbers of the shape (n, 3, height, width)."""
        return np.stack([self._pixels(image) for image in images])

    def _pixels(self, image: Image.Image) -> NDArray[np.float32]:
        mode = "L" if image.mode in {"1", "L"} else "RGB"
        resized = image.convert(mode).resize((self.size.width, self.size.height), Image.Resampling(self.resample))
        if self.do_center_crop:
            left, top = (resized.width - self.crop_size.width) // 2, (resized.height - self.crop_size.height) // 2
            resized = resized.crop((left, top, left + self.crop_size.width, top + self.crop_size.height))
        values = (np.asarray(resized).astype(np.float64) * self.rescale_factor).astype(np.float32)
        channels = np.broadcast_to(values[..., None] if values.ndim == 2 else values, (*values.shape[:2], CHANNELS))
        mean, std = np.array(self.image_mean, np.float32), np.array(self.image_std, np.float32)
        return np.moveaxis((channels - mean) / std, -1, 0)
