"""The picture of a level after its simulation, as the Science Birds Evaluator takes it."""

import struct
import zlib
from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcgeval.evaluator.world import SPRITES, Stability, corners, square_around
from pcgeval.levels.blocks import BlockType

SIZE, MARGIN = 1024, 100  # pixels
WHITE = 255  # black is 0
PNG_FILTER_UP = 2
SUBPIXELS = 256  # corners are rounded to this fraction of a pixel; from there on all arithmetic is on integers


def render(stability: Stability, size: int = SIZE, margin: int = MARGIN, also: Stability | None = None) -> Image.Image:
    """Draw the living blocks black (0) on white (255) as a grey image (mode `L`) of `size` x `size` pixels.

    A square camera on the middle of the bounding box of all living colliders, as wide as the longer side of that box,
    fills the square inside the margin; sprites are a little larger than colliders and are cut off at that square. A
    pixel is black when its centre lies in a block, or on its left or upper edge. Without a living block all is white.
    With `also`, the camera would show the blocks of that state too, so that pictures of both have one scale.
    """
    return Image.fromarray((~_blackened(stability, size, margin, also)).view(np.uint8) * np.uint8(WHITE))


def level_png(stability: Stability) -> bytes:
    """Return the picture of `render` as PNG, as `png_bytes` writes it but faster."""
    black = _blackened(stability, SIZE, MARGIN)
    return _png(~np.packbits(black, axis=1), black.shape, bits=1)


def _blackened(stability: Stability, size: int, margin: int, also: Stability | None = None) -> NDArray[np.bool_]:
    """Return whether each pixel is black."""
    view = size - 2 * margin
    if margin < 0 or view < 1:
        raise ValueError(f"size {size} does not exceed twice the margin of {margin}")
    canvas = np.zeros((size, size), dtype=np.bool_)
    if living := _living(stability):
        corner, side = square_around([*living, *(_living(also) if also else ())])
        scale = view * SUBPIXELS / side
        inner = canvas[margin : margin + view, margin : margin + view]
        for kind, place in living:
            outline = corners(SPRITES[kind], *place)
            _fill_polygon(inner, [(round((p.x - corner.x) * scale), round((corner.y - p.y) * scale)) for p in outline])
    return canvas


def _living(stability: Stability) -> list[tuple[BlockType, list[float]]]:
    """Return the type and the place of each block that is not dead."""
    blocks = zip(stability.types, stability.positions.tolist(), stability.dead, strict=True)
    return [(kind, place) for kind, place, dead in blocks if not dead]


def png_bytes(image: Image.Image) -> bytes:
    """Encode a grey image (mode `L`) as PNG, with one bit a pixel if it is black and white.

    The same image gives the same bytes everywhere: rows are differences to the row above, and only runs are compressed,
    which leaves a compressor no choice.

    Raises:
        ValueError: The image has another mode.
    """
    if image.mode != "L":
        raise ValueError(f"image mode {image.mode!r}: only 'L' is written; convert the image first")
    grey = np.asarray(image)
    two_valued = int((grey + np.uint8(1)).max()) <= 1  # 255 + 1 is 0 in eight bits
    rows = np.packbits(grey, axis=1) if two_valued else grey
    return _png(rows, grey.shape, bits=1 if two_valued else 8)


def _png(rows: NDArray[np.uint8], shape: tuple[int, ...], *, bits: int) -> bytes:
    filtered = np.full((rows.shape[0], rows.shape[1] + 1), PNG_FILTER_UP, dtype=np.uint8)
    filtered[:, 1:] = np.diff(rows, axis=0, prepend=np.uint8(0))
    compressor = zlib.compressobj(strategy=zlib.Z_RLE)
    pixels = compressor.compress(filtered.tobytes()) + compressor.flush()
    height, width = shape
    header = struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _fill_polygon(view: NDArray[np.bool_], ring: Sequence[tuple[int, int]]) -> None:
    """Blacken a convex polygon, given by its corners in subpixels of the view, row by row between its edges."""
    height, width = view.shape
    top = max(_first_pixel(min(y for _, y in ring)), 0)
    bottom = min(_first_pixel(max(y for _, y in ring)), height)
    if top >= bottom:
        return
    starts = np.full(bottom - top, width, dtype=np.int64)  # of each row: the first black pixel ...
    ends = np.zeros(bottom - top, dtype=np.int64)  # ... and the first after it that is not
    for corner, following in zip(ring, [*ring[1:], ring[0]], strict=True):
        (upper_x, upper_y), (lower_x, lower_y) = sorted((corner, following), key=itemgetter(1))
        first, last = max(_first_pixel(upper_y), top), min(_first_pixel(lower_y), bottom)
        if first < last:
            rise = lower_y - upper_y
            centres = np.arange(first, last, dtype=np.int64) * SUBPIXELS + SUBPIXELS // 2
            crossings = upper_x * rise + (centres - upper_y) * (lower_x - upper_x)  # in subpixels times rise
            pixels = -((SUBPIXELS // 2 * rise - crossings) // (SUBPIXELS * rise))
            rows = slice(first - top, last - top)
            starts[rows] = np.minimum(starts[rows], pixels)
            ends[rows] = np.maximum(ends[rows], pixels)
    left, right = max(int(starts.min()), 0), min(int(ends.max()), width)
    if left < right:
        columns = np.arange(left, right, dtype=np.int32)
        inside = columns >= starts.astype(np.int32)[:, None]
        inside &= columns < ends.astype(np.int32)[:, None]
        view[top:bottom, left:right] |= inside


def _first_pixel(subpixel: int) -> int:
    """Return the first pixel with its centre at or after a subpixel, along either axis."""
    return -((SUBPIXELS // 2 - subpixel) // SUBPIXELS)
