"""The picture of a level after its simulation, as the Science Birds Evaluator takes it."""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pcgeval.evaluator.world import SPRITES, Stability, corners, square_around
from pcgeval.formats.blocks import BlockType

SIZE, MARGIN = 1024, 100  # pixels
PNG_FILTER_UP = 2
SUBPIXELS = 256  # corners are rounded to this fraction of a pixel; from there on all arithmetic is on integers


def render(stability: Stability, size: int = SIZE, margin: int = MARGIN, also: Stability | None = None) -> Image.Image:
    """Draw the living blocks black (0) on white (255) as a grey image (mode `L`) of `size` x `size` pixels.

    A square camera on the middle of the bounding box of all living colliders, as wide as the longer side of that box,
    fills the square inside the margin; sprites are a little larger than colliders and are cut off at that square. A
    pixel is black when its centre lies in a block, or on its left or upper edge. Without a living block all is white.
    With `also`, the camera would show the blocks of that state too, so that pictures of both have one scale.
    """
    rows, lengths = white_rows(stability, size, margin, also)
    return Image.fromarray(np.repeat(rows * np.uint8(255), lengths, axis=0))


def level_png(stability: Stability) -> bytes:
    """Return the picture of `render` as PNG, as `png_bytes` writes it but faster."""
    rows, lengths = white_rows(stability)
    return _png(np.repeat(np.packbits(rows, axis=1), lengths, axis=0), (SIZE, SIZE), bits=1)


def white_rows(
    stability: Stability, size: int = SIZE, margin: int = MARGIN, also: Stability | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.intp]]:
    """Return the rows of `render`, one of each run of equal ones (whether a pixel is white), and their lengths."""
    view = size - 2 * margin
    if margin < 0 or view < 1:
        raise ValueError(f"a margin of {margin} must be at least 0 and below half the size of {size}")
    if not (living := _living(stability)):
        return np.ones((1, size), dtype=np.bool_), np.array([size])
    corner, side = square_around([*living, *(_living(also) if also else ())])
    scale = view * SUBPIXELS / side
    outlines = [corners(SPRITES[kind], *place) for kind, place in living]
    rings = [[(round((p.x - corner.x) * scale), round((corner.y - p.y) * scale)) for p in ring] for ring in outlines]
    starts, ends = _spans(np.array(rings), view)
    changes = np.any((np.diff(starts) != 0) | (np.diff(ends) != 0), axis=0)
    places = np.flatnonzero(np.append(True, changes))
    depth = np.zeros((len(places) + 2, size + 1), dtype=np.int16)  # how many more blocks lie here than on the left
    runs = np.arange(1, len(places) + 1)
    np.add.at(depth, (runs, margin + starts[:, places]), 1)
    np.add.at(depth, (runs, margin + ends[:, places]), -1)
    np.add.accumulate(depth, axis=1, out=depth)
    return depth[:, :size] == 0, np.array([margin, *np.diff(places, append=view), margin])


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


def _spans(rings: NDArray[np.int64], view: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first black pixel of each polygon in each row, and the first after it; both are alike without one.

    Polygons are convex, given by their corners in subpixels of a square view, shape (polygons, corners, 2).
    """
    following = np.roll(rings, -1, axis=1)
    falls = (following[..., 1] >= rings[..., 1])[..., None]
    upper, lower = np.where(falls, rings, following).reshape(-1, 2), np.where(falls, following, rings).reshape(-1, 2)
    first, last = (np.clip(_first_pixel(side[:, 1]), 0, view) for side in (upper, lower))
    side = np.repeat(np.arange(len(first)), last - first)  # of each row that a side of a polygon crosses
    rows = np.arange(len(side)) - (np.cumsum(last - first) - last)[side]
    (left, top), (across, rise) = upper[side].T, (lower - upper)[side].T
    crossings = left * rise + (rows * SUBPIXELS + SUBPIXELS // 2 - top) * across  # in subpixels times rise
    pixels = np.clip(-((SUBPIXELS // 2 * rise - crossings) // (SUBPIXELS * rise)), 0, view)
    polygons = side // rings.shape[1]
    starts, ends = np.full((len(rings), view), view), np.zeros((len(rings), view), dtype=np.int64)
    np.minimum.at(starts, (polygons, rows), pixels)
    np.maximum.at(ends, (polygons, rows), pixels)
    return starts, np.maximum(starts, ends)


def _first_pixel(subpixel: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first pixel with its centre at or after a subpixel, along either axis."""
    return -((SUBPIXELS // 2 - subpixel) // SUBPIXELS)
