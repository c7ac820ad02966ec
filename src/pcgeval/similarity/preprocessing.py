"""The input of a vision transformer from pictures, as its preprocessor_config.json says.

The numbers are those of transformers' image processors of ViT and DeiT with pillow: resize, crop the centre, rescale,
normalise. Where torchvision is installed, transformers would resize to other numbers. A grey picture is resized from
its runs of equal rows, of which the picture of a level has some 60 in 1024 rows: pillow resizes each row before each
column of a square picture, so the numbers are the same.
"""

import io
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcgeval.similarity.source import CHANNELS, ClassifierError, Preprocessing

_UP = 2  # the filter of a row of a PNG
_PNG_FRAME = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\1\0\0\0\0" + b"IDAT" + b"\0\0\0\0IEND\xaeB`\x82"
_MAX_PNG = 2**24  # bytes of its pixels


class RowRuns(NamedTuple):
    """A grey picture as runs of equal rows."""

    rows: NDArray[np.uint8]  # one of each run, shape (runs, width)
    lengths: NDArray[np.intp]  # how often each is repeated

    @classmethod
    def of_pixels(cls, pixels: NDArray[np.uint8] | NDArray[np.bool_]) -> "RowRuns":
        """Return a picture from its pixels, shape (height, width): 0 or False is black, 255 or True white."""
        starts = np.flatnonzero(np.append(True, (pixels[1:] != pixels[:-1]).any(axis=1)))
        return cls.of_runs(pixels[starts], np.diff(starts, append=len(pixels)))

    @classmethod
    def of_runs(cls, rows: NDArray[np.uint8] | NDArray[np.bool_], lengths: NDArray[np.intp]) -> "RowRuns":
        """Return a picture from one row of each run, grey as `of_pixels` takes them, and the lengths of the runs."""
        return cls(rows * np.uint8(255 if rows.dtype == np.bool_ else 1), lengths)

    @classmethod
    def of_png(cls, content: bytes) -> "RowRuns | None":
        """Read a PNG in the form of stage simulate, in a quarter of pillow's time; return None for any other form.

        That form has one bit a pixel, one chunk of pixels, and rows as differences to the row above.
        """
        width, height, length = (int.from_bytes(content[start : start + 4], "big") for start in (16, 20, 33))
        size, end = height * (1 + (width + 7) // 8), 41 + length
        frame = content[:16] + content[24:29] + content[37:41] + content[end + 4 :]
        if frame != _PNG_FRAME or not 0 < size <= _MAX_PNG:
            return None
        try:
            pixels = zlib.decompressobj().decompress(content[41:end], size)
        except zlib.error:
            return None
        if len(pixels) != size:
            return None
        filtered = np.frombuffer(pixels, np.uint8).reshape(height, -1)
        if (filtered[:, 0] != _UP).any():
            return None
        starts = np.flatnonzero(np.append(True, filtered[1:, 1:].any(axis=1)))
        packed = np.add.accumulate(filtered[starts, 1:], axis=0, dtype=np.uint8)
        return cls.of_runs(np.unpackbits(packed, axis=1, count=width).view(np.bool_), np.diff(starts, append=height))

    def image(self) -> Image.Image:
        """Return the picture as pillow's."""
        return Image.fromarray(np.repeat(self.rows, self.lengths, axis=0))

    def resized(self, width: int, height: int, resampling: Image.Resampling) -> NDArray[np.uint8]:
        """Return the pixels that `image().resize` gives, which begins with the rows if both sides shrink alike."""
        if self.rows.shape[1] * height != self.lengths.sum() * width:
            return np.asarray(self.image().resize((width, height), resampling))
        narrow = Image.fromarray(self.rows).resize((width, len(self.rows)), resampling)
        return np.asarray(RowRuns(np.asarray(narrow), self.lengths).image().resize((width, height), resampling))


def read_png(picture: bytes) -> Image.Image | RowRuns:
    """Read a file of `data/images`; raise ClassifierError if it is no PNG."""
    if runs := RowRuns.of_png(picture):
        return runs
    try:
        image = Image.open(io.BytesIO(picture), formats=["PNG"])
        image.load()
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        remedy = "Make them again with `dvc repro --force --single-item simulate`."
        raise ClassifierError(f"data/images: a picture is no PNG, or a broken one ({error}). {remedy}") from error
    return image


def pixels_of(images: Sequence[Image.Image | RowRuns], settings: Preprocessing) -> NDArray[np.float32]:
    """Return pictures of any mode and size as numbers of the shape (n, 3, height, width)."""
    return np.stack([_pixels(image, settings) for image in images])


def _pixels(image: Image.Image | RowRuns, settings: Preprocessing) -> NDArray[np.float32]:
    size, crop, resampling = settings.size, settings.crop_size, Image.Resampling(settings.resample)
    if isinstance(image, Image.Image) and image.mode not in {"1", "L"}:
        resized = np.asarray(image.convert("RGB").resize((size.width, size.height), resampling))
    else:
        runs = image if isinstance(image, RowRuns) else RowRuns.of_pixels(np.asarray(image))
        resized = runs.resized(size.width, size.height, resampling)
    if settings.do_center_crop:
        left, top = (size.width - crop.width) // 2, (size.height - crop.height) // 2
        resized = resized[top : top + crop.height, left : left + crop.width]
    values = (resized.astype(np.float64) * settings.rescale_factor).astype(np.float32)
    channels = np.broadcast_to(values[..., None] if values.ndim == 2 else values, (*values.shape[:2], CHANNELS))
    mean, std = np.array(settings.image_mean, np.float32), np.array(settings.image_std, np.float32)
    return np.moveaxis((channels - mean) / std, -1, 0)
