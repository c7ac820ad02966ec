"""Quick pictures of designs without physics: training only; held-out pictures come from the evaluator.

Each block is drawn where the design has it, a little off and turned, sometimes missing, fallen or shifted with its row,
as levels look after ten seconds of physics. Sprite sizes are those of Science Birds (metres): RectSmall 0.72 x 0.24,
SquareTiny 0.24 x 0.23, on cells of 0.2401.
"""

import math

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from designs import Block

CELL = 0.2401
SPRITES = {"b11": (0.24, 0.23), "b31": (0.72, 0.24), "b13": (0.24, 0.72)}  # metres, width and height
DRAWN = 288  # pixels of the picture that is scaled down

Boxes = npt.NDArray[np.float64]  # (blocks, 5): x, y, width, height in cells, angle in radians


def disturbed(blocks: list[Block], choice: np.random.Generator) -> Boxes:
    """Place the blocks with the disorder of a settled level, more in some levels than in others."""
    mess = float(choice.choice([0.02, 0.05, 0.1, 0.2], p=[0.35, 0.3, 0.25, 0.1]))
    boxes = []
    shift = np.zeros(64)
    if choice.random() < 0.3:  # the part above a row slipped sideways
        shift[choice.integers(1, 12) :] += choice.normal(0, 0.4)
    lost = choice.random() < 0.25
    for block in blocks:
        if lost and choice.random() < 0.08:
            continue
        width, height = (side / CELL for side in SPRITES[block.kind])
        columns, rows = block.size
        x = block.left + columns / 2 + shift[block.row] + choice.normal(0, mess)
        y = block.row + rows / 2 + choice.normal(0, mess / 2)
        angle = choice.normal(0, mess / 2)
        if choice.random() < 0.03 * (mess > 0.04):  # fallen over
            angle += choice.choice([-1, 1]) * choice.uniform(0.3, math.pi / 2)
            x, y = x + choice.normal(0, 0.7), max(0.5, y - abs(choice.normal(0, 0.7)))
        boxes.append((x, y, width, height, angle))
    if choice.random() < 0.12:  # a stray block
        columns, rows = max(box[0] for box in boxes), max(box[1] for box in boxes)
        boxes.append((choice.uniform(-1, columns + 1), choice.uniform(0.5, rows), 1.0, 0.96, choice.uniform(0, 1.5)))
    lean = choice.normal(0, 0.06) if choice.random() < 0.4 else 0.0
    placed = np.array(boxes)
    placed[:, 0] += lean * placed[:, 1]
    placed[:, 4] -= lean
    return placed


def draw_boxes(boxes: Boxes, size: int) -> npt.NDArray[np.uint8]:
    """Draw boxes as the evaluator's camera shows a level: longer side fills the central 824/1024; 255 is ink."""
    x, y, width, height, angle = boxes.T
    cosine, sine = np.cos(angle), np.sin(angle)
    corners = np.stack(
        [
            np.stack([x + a * width * cosine - b * height * sine, y + a * width * sine + b * height * cosine], 1)
            for a, b in ((-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5))
        ],
        1,
    )
    low, high = corners.min((0, 1)), corners.max((0, 1))
    scale = DRAWN * 824 / 1024 / (high - low).max()
    points = (corners - (low + high) / 2) * (scale, -scale) + DRAWN / 2
    picture = Image.new("L", (DRAWN, DRAWN))
    draw = ImageDraw.Draw(picture)
    for polygon in points:
        draw.polygon([(float(px), float(py)) for px, py in polygon], fill=255)
    return np.asarray(picture.resize((size, size), Image.Resampling.BOX))
