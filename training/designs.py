"""Letter designs on coarse grids, and how a design is taken apart into the three blocks of a level.

A design is a grid of cells; row 0 is the bottom. Skeletons are strokes on a lattice of eighths, `xy` digit pairs from
bottom left (00) to top right (88), strokes parted by `;`. Family d and the dot-matrix letters never occur in training.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

Cells = npt.NDArray[np.bool_]  # (rows, columns), row 0 at the bottom
TRAINING_FAMILIES = ("a", "b", "c")
HELD_OUT_FAMILY = "d"
DETAIL = 12  # pixels a cell is drawn with before it is decided whether the stroke covers it

SKELETONS: dict[str, tuple[str, str, str, str]] = {  # letter: families a, b, c, d
    "A": ("00 48 80;23 63", "00 08 88 80;04 84", "00 05 28 68 85 80;04 84", "00 06 48 86 80;03 83"),
    "B": (
        "00 08 68 87 85 64 04;64 83 81 60 00",
        "00 08 78 88 84 04;84 80 00",
        "00 08 78 75 64 04;64 83 80 00",
        "00 08 58 86 54 04;54 82 50 00",
    ),
    "C": ("87 68 28 06 02 20 60 81", "88 08 00 80", "78 28 05 03 20 70", "88 48 04 40 80"),
    "D": ("00 08 58 85 83 50 00", "00 08 78 86 82 70 00", "00 08 68 86 82 60 00", "00 08 48 84 40 00"),
    "E": ("88 08 00 80;04 64", "88 08 00 80;04 84", "68 08 00 60;05 55", "88 28 06 05 24 64;24 03 02 20 80"),
    "F": ("00 08 88;04 64", "00 08 88;04 84", "00 08 68;05 55", "00 06 28 88;04 64"),
    "G": ("87 68 28 06 02 20 60 82 84 54", "88 08 00 80 84 44", "88 28 06 02 20 80 84 54", "88 18 07 01 10 80 83 53"),
    "H": ("00 08;80 88;04 84", "00 08;80 88;05 85", "00 08;80 88;03 83", "00 08;80 88;05 44 85"),
    "I": ("40 48", "40 48;08 88;00 80", "40 48;28 68;20 60", "40 48;18 78;10 70"),
    "J": ("88 82 60 20 02", "88 80 00 03", "28 88;68 62 40 10 02", "08 88;58 52 30 01"),
    "K": ("00 08;88 04 80", "00 08;88 24;04 34 80", "00 08;04 44 66 88;44 62 80", "00 08;78 34 04;34 70"),
    "L": ("08 00 80", "08 00 50", "08 01 80 00", "08 02 20 80"),
    "M": ("00 08 44 88 80", "00 08 88 80;48 40", "00 08 41 88 80", "00 18 43 78 80"),
    "N": ("00 08 80 88", "00 08 17 71 80 88", "00 08 44 80 88", "00 08 26 62 80 88"),
    "O": (
        "28 68 86 82 60 20 02 06 28",
        "00 08 88 80 00",
        "38 58 86 82 50 30 02 06 38",
        "48 84 40 04 48",
    ),
    "P": ("00 08 68 87 85 64 04", "00 08 88 84 04", "00 08 78 85 73 03", "00 08 58 86 54 04"),
    "Q": (
        "28 68 86 82 60 20 02 06 28;53 80",
        "00 08 88 80 00;53 80",
        "02 08 88 82 02;62 80",
        "28 68 86 83 61 21 03 06 28;52 80",
    ),
    "R": (
        "00 08 68 87 85 64 04;44 80",
        "00 08 88 84 04;44 80",
        "00 08 78 85 64 04;64 83 80",
        "00 08 58 86 54 04;34 80",
    ),
    "S": (
        "87 68 28 07 05 24 64 83 81 60 20 01",
        "88 08 04 84 80 00",
        "88 28 06 24 64 82 60 00",
        "86 58 28 06 82 60 30 02",
    ),
    "T": ("08 88;48 40", "18 78;48 40", "06 08 88 86;48 40", "07 18 78 87;48 40"),
    "U": ("08 02 20 60 82 88", "08 00 80 88", "08 01 10 70 81 88", "08 02 30 50 82 88"),
    "V": ("08 40 88", "08 04 40 84 88", "08 05 30 50 85 88", "08 23 40 63 88"),
    "W": ("08 20 44 60 88", "08 00 80 88;40 45", "08 10 46 70 88", "08 02 20 43 60 82 88"),
    "X": ("00 88;08 80", "08 06 44 86 88;00 02 44 82 80", "08 35 53 80;00 33 55 88", "08 45 88;00 43 80;45 43"),
    "Y": ("08 44 88;44 40", "08 04 84 88;44 40", "08 06 44 86 88;44 40", "08 43 40;88 43"),
    "Z": ("08 88 00 80", "08 88 84 04 00 80", "08 88 86 02 00 80", "08 88 00 80;24 64"),
}

DOT_MATRIX = {  # seven rows from the top, each row's five dots as a binary number
    "A": (14, 17, 17, 31, 17, 17, 17), "B": (30, 17, 17, 30, 17, 17, 30), "C": (14, 17, 16, 16, 16, 17, 14),
    "D": (30, 17, 17, 17, 17, 17, 30), "E": (31, 16, 16, 30, 16, 16, 31), "F": (31, 16, 16, 30, 16, 16, 16),
    "G": (14, 17, 16, 23, 17, 17, 14), "H": (17, 17, 17, 31, 17, 17, 17), "I": (14, 4, 4, 4, 4, 4, 14),
    "J": (7, 2, 2, 2, 2, 18, 12), "K": (17, 18, 20, 24, 20, 18, 17), "L": (16, 16, 16, 16, 16, 16, 31),
    "M": (17, 27, 21, 21, 17, 17, 17), "N": (17, 25, 25, 21, 19, 19, 17), "O": (14, 17, 17, 17, 17, 17, 14),
    "P": (30, 17, 17, 30, 16, 16, 16), "Q": (14, 17, 17, 17, 21, 18, 13), "R": (30, 17, 17, 30, 20, 18, 17),
    "S": (15, 16, 16, 14, 1, 1, 30), "T": (31, 4, 4, 4, 4, 4, 4), "U": (17, 17, 17, 17, 17, 17, 14),
    "V": (17, 17, 17, 17, 17, 10, 4), "W": (17, 17, 17, 21, 21, 21, 10), "X": (17, 17, 10, 4, 10, 17, 17),
    "Y": (17, 17, 10, 4, 4, 4, 4), "Z": (31, 1, 2, 4, 8, 16, 31),
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """One block of a design: its kind as `drop_block` names it, bottom row and leftmost column, in cells."""

    kind: str
    row: int
    left: int

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in cells."""
        return {"b11": (1, 1), "b13": (1, 3), "b31": (3, 1)}[self.kind]

    @property
    def centre_column(self) -> int:
        """The column that `drop_block` is called with."""
        return self.left + self.size[0] // 2


@cache
def skeleton_cells(letter: str, family: str, columns: int, rows: int, stroke: float) -> Cells:
    """Draw a letter's skeleton with strokes `stroke` cells wide and return the cells that are mostly covered."""
    picture = Image.new("L", (columns * DETAIL, rows * DETAIL))
    draw = ImageDraw.Draw(picture)
    inset = stroke / 2
    for line in SKELETONS[letter]["abcd".index(family)].split(";"):
        points = [
            (
                (inset + int(x) / 8 * (columns - stroke)) * DETAIL,
                (rows - inset - int(y) / 8 * (rows - stroke)) * DETAIL,
            )
            for x, y in line.split()
        ]
        draw.line(points, fill=255, width=max(1, round(stroke * DETAIL)))
        for x, y in points:
            half = inset * DETAIL
            draw.rectangle((x - half, y - half, x + half - 1, y + half - 1), fill=255)
    return covered_cells(np.asarray(picture), columns, rows, 0.5)


def dot_matrix_cells(letter: str, times_wide: int, times_high: int) -> Cells:
    """Return a dot-matrix letter with each dot `times_wide` x `times_high` cells."""
    dots = np.array([[number >> (4 - column) & 1 for column in range(5)] for number in reversed(DOT_MATRIX[letter])])
    return np.kron(trimmed(dots.astype(bool)), np.ones((times_high, times_wide))).astype(bool)


def covered_cells(ink: npt.NDArray[np.uint8], columns: int, rows: int, threshold: float) -> Cells:
    """Return the cells of a grid laid over a picture (255 is ink) that are covered by at least `threshold`."""
    scaled = Image.fromarray(ink).resize((columns, rows), Image.Resampling.BOX)
    return trimmed(np.asarray(scaled)[::-1] >= threshold * 255)


def trimmed(cells: Cells) -> Cells:
    """Cut empty rows and columns off the edges."""
    rows, columns = np.flatnonzero(cells.any(1)), np.flatnonzero(cells.any(0))
    return cells[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] if len(rows) else cells[:0, :0]


def take_apart(cells: Cells, choice: np.random.Generator) -> list[Block]:
    """Cover the cells with blocks at random, bottom row first; prefers a long block that bridges or ties columns."""
    free = cells.copy()
    rows, columns = free.shape
    long_first = choice.random() < 0.75  # else small blocks are as likely, as in clumsy levels
    blocks = []
    for row in range(rows):
        for column in np.flatnonzero(free[row]) if choice.random() < 0.5 else np.flatnonzero(free[row])[::-1]:
            if not free[row, column]:
                continue
            options = [("b11", column)] * (1 if long_first else 3)
            if row + 3 <= rows and free[row : row + 3, column].all():
                options += [("b13", column)] * 4
            for left in range(max(0, column - 2), min(columns - 3, column) + 1):
                if free[row, left : left + 3].all():
                    options += [("b31", left)] * (6 if _rests(cells, row, left) else 1)
            kind, left = options[choice.integers(len(options))]
            block = Block(kind, row, int(left))
            width, height = block.size
            free[row : row + height, left : left + width] = False
            blocks.append(block)
    return blocks


def _rests(cells: Cells, row: int, left: int) -> bool:
    below = cells[row - 1, left : left + 3] if row else np.ones(3, bool)
    return bool(below[1] or (below[0] and below[2]))


def legible(letter: str, cells: Cells) -> bool:
    """Tell a design from a blot, and from a skeleton of another letter that covers nearly the same cells."""
    rows, columns = cells.shape
    if cells.sum() < 4 or (letter != "I" and cells.mean() > 0.85):
        return False
    for stroke in (1.0, 1.6, 2.5):
        for other in SKELETONS:
            for family in "abcd":
                rival = skeleton_cells(other, family, columns, rows, stroke) if other != letter else cells[:0]
                if rival.shape == cells.shape and (rival & cells).sum() > 0.9 * (rival | cells).sum():
                    return False
    return True


def grid_sizes(choice: np.random.Generator) -> Iterator[tuple[int, int, float]]:
    """Yield random (columns, rows, stroke) without end, all in cells, such as levels are built with."""
    while True:
        columns, rows = int(choice.integers(3, 13)), int(choice.integers(4, 15))
        stroke = float(choice.choice([1.0, 1.0, 1.3, 1.6, 2.0, 2.5, 3.0]))
        if 0.45 <= rows / columns <= 3 and stroke <= min(columns / 2.8, rows / 3.8):
            yield columns, rows, stroke
