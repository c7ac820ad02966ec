"""Pictures against a slow literal version, and their bytes."""

import io
import math
from itertools import product

import numpy as np
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from pcgeval import Stability, render
from pcgeval.evaluator.image import png_bytes

COLLIDER = {"RectSmall": (0.70, 0.22), "SquareTiny": (0.22, 0.21)}
SPRITE = {"RectSmall": (0.72, 0.24), "SquareTiny": (0.24, 0.23)}


def ended(*blocks):
    """A simulated level of (type, x, y, radians, dead) blocks."""
    types, places, dead = zip(*[(b[0], b[1:4], b[4]) for b in blocks], strict=True) if blocks else ((), (), ())
    return Stability(types, np.array(places, dtype=float).reshape(-1, 3), dead, dead)


def turned(x, y, angle):
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def literal_picture(stability, view):
    """Which pixels of the view lie in a sprite: 1 yes, 0 no, -1 too near an edge to say without exact arithmetic."""
    blocks = zip(stability.types, stability.positions, stability.dead, strict=True)
    living = [(kind, *place) for kind, place, dead in blocks if not dead]
    corners = [
        np.add((x, y), turned(across * COLLIDER[kind][0] / 2, up * COLLIDER[kind][1] / 2, angle))
        for (kind, x, y, angle), across, up in product(living, (-1, 1), (-1, 1))
    ]
    low, high = np.min(corners, axis=0), np.max(corners, axis=0)
    side = (high - low).max()
    pixel = side / view
    result = np.zeros((view, view), dtype=int)
    for row, column in np.ndindex(view, view):
        centre = (low + high) / 2 + ((column + 0.5) * pixel - side / 2, side / 2 - (row + 0.5) * pixel)
        depth = -math.inf  # how far inside the deepest sprite, in pixels; negative outside
        for kind, x, y, angle in living:
            inside = np.array(SPRITE[kind]) / 2 - np.abs(turned(*(centre - (x, y)), -angle))
            depth = max(depth, inside.min() / pixel)
        result[row, column] = -1 if abs(depth) < 0.01 else depth > 0
    return result


block = st.tuples(
    st.sampled_from(["RectSmall", "SquareTiny"]),
    st.floats(-1, 1) | st.just(50.0),
    st.floats(-4, -2),
    st.sampled_from([0.0, math.pi / 2]) | st.floats(-7, 7),
    st.booleans(),
)


@given(st.lists(block, max_size=4), st.integers(0, 5), st.integers(1, 24))
def test_agrees_with_the_literal_picture(blocks, margin, view):
    """Up is up, left is left, the longer side fills the view, and the dead are neither drawn nor framed."""
    stability = ended(*blocks)
    picture = np.asarray(render(stability, view + 2 * margin, margin))
    inner = picture[margin : margin + view, margin : margin + view]
    assert (picture == 255).sum() - (inner == 255).sum() == picture.size - inner.size  # the margin is white
    if all(stability.dead):
        assert (inner == 255).all()
    else:
        literal = literal_picture(stability, view)
        assert ((inner == 0) == literal)[literal >= 0].all()


shapes = st.tuples(st.integers(1, 20), st.integers(1, 20))


@given(arrays(np.uint8, shapes) | arrays(np.uint8, shapes, elements=st.sampled_from([0, 255])))
def test_png_holds_exactly_the_pixels(pixels):
    decoded = Image.open(io.BytesIO(png_bytes(Image.fromarray(pixels))))
    assert (np.asarray(decoded.convert("L")) == pixels).all()
    assert decoded.mode == ("1" if set(pixels.ravel().tolist()) <= {0, 255} else "L")
    assert decoded.info == {}
