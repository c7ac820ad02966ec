"""Pictures of levels and bars, drawn as the evaluator and the numbers have it."""

import re

import numpy as np
import pytest
from hypothesis import given, strategies as st
from PIL import Image, ImageDraw

from pcgeval.evaluator.image import render
from pcgeval.evaluator.world import Stability
from pcgeval.formats.stages import SimulatedTrial
from pcgeval.preview.drawing import VIEW
from pcgeval.report.markup import environment

MACROS = environment().get_template("macros.html.j2").module
places = st.tuples(st.floats(-3, 3), st.floats(-3, 3), st.floats(-4, 4))
levels = st.lists(
    st.tuples(st.sampled_from(["SquareTiny", "RectSmall"]), places, st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
).map(lambda blocks: level(*blocks))


def level(*blocks):
    """Return a level from the kind, place, moved and dead of each block."""
    columns = zip(*blocks, strict=True) if blocks else ((), (), (), ())
    names = ("types", "positions", "moved", "dead")
    return SimulatedTrial(letter="A", trial=1, **dict(zip(names, map(tuple, columns), strict=True)))


def drawn(markup):
    """Fill the paths of a picture with Pillow, as SVG defines the commands M, h, v, l and z."""
    canvas = Image.new("L", (VIEW, VIEW), 255)
    for path in re.findall(r' d="([^"]*)"', markup):
        for ring in re.findall(r"(M[^z]*)z", path):
            points = []
            for command, numbers in re.findall(r"([Mhvl])([-0-9 ]+)", ring):
                values = [int(entry) for entry in numbers.split()]
                right, down = {"h": (values[0], 0), "v": (0, values[0])}.get(command, values)
                x, y = (0, 0) if command == "M" else points[-1]
                points.append((x + right, y + down))
            ImageDraw.Draw(canvas).polygon(points, fill=0)
    return np.asarray(canvas) == 0


def grown(black, pixels):
    """Return a picture whose black reaches so many pixels further."""
    padded = np.pad(black, pixels)
    steps = range(2 * pixels + 1)
    return np.any([padded[down:, right:][:VIEW, :VIEW] for down in steps for right in steps], axis=0)


@given(levels)
def test_the_picture_shows_what_the_evaluator_renders(blocks):
    """Corners are rounded to whole units, so edges may lie two pixels apart."""
    stability = Stability(blocks.types, np.array(blocks.positions), blocks.moved, blocks.dead)
    ours, theirs = drawn(MACROS.picture(blocks)), np.asarray(render(stability, size=VIEW, margin=0)) == 0
    assert not (ours & ~grown(theirs, 2)).any()
    assert not (theirs & ~grown(ours, 2)).any()


def test_moved_blocks_are_told_apart_and_broken_ones_left_out():
    stayed, moved = ("SquareTiny", (0.0, 0.0, 0.0), False, False), ("RectSmall", (1.0, 1.0, 0.0), True, False)
    text = MACROS.picture(level(stayed, moved, ("SquareTiny", (5.0, 5.0, 0.0), True, True)))
    assert re.findall(r'class="(\w+)" d="M', text) == ["stayed", "moved"]
    assert text.count("z") == 2
    assert 'aria-label="3 blocks, 1 moved, 1 broke"' in text


def test_tiles_have_one_scale_and_one_ground():
    def seen(*places):
        """Return the width of the first block and the space below it, as shares of the tile."""
        text = MACROS.picture(level(*(("RectSmall", (x, y - 3.38, 0.0), False, False) for x, y in places)))
        left, top, side, _ = map(int, re.search(r'viewBox="([^"]*)"', text)[1].split())
        _, y = map(int, re.search(r'd="M(-?\d+) (-?\d+)', text).groups())
        down = [int(number) for number in re.findall(r"v(\d+)", text)]
        width = abs(int(re.search(r"h(-?\d+)", text)[1]))
        assert left <= 0
        return width / side, (top + side - y - max(down, default=0)) / side

    one, wall = seen((0.0, 0.0)), seen((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
    assert one[0] == pytest.approx(0.72 / 3.36, abs=0.01)
    assert one == pytest.approx(wall, abs=0.01)
    assert seen((0.0, 0.0), (7.0, 0.0))[0] < one[0] / 2, "a level that is larger than a tile is drawn smaller"
