"""Whether a letter stands on tilted ground, and how often it does."""

import math
import random
from statistics import NormalDist

from letters import base

TRIALS = 2000
TILT_SD = 10  # degrees
SEED = 2025


def centre(cells, masses):
    total = sum(masses)
    x = sum(mass * (column + 0.5) for mass, (column, _) in zip(masses, cells)) / total
    y = sum(mass * (row + 0.5) for mass, (_, row) in zip(masses, cells)) / total
    return x, y


def stands(cells, masses, tilt):
    """The line from the centre of mass straight down meets the ground within the base."""
    left, right = base(cells)
    x, y = centre(cells, masses)
    return left <= x + y * math.tan(math.radians(tilt)) <= right


def stand_rate(cells, name):
    rng = random.Random(f"{SEED} {name}")
    standing = 0
    for _ in range(TRIALS):
        masses = [rng.uniform(0.5, 1.5) for _ in cells]
        standing += stands(cells, masses, rng.gauss(0, TILT_SD))
    return standing / TRIALS


def predicted_rate(cells):
    """The share of tilts at which the letter would stand if all blocks had the same mass."""
    left, right = base(cells)
    x, y = centre(cells, [1] * len(cells))
    falls_left, falls_right = (math.degrees(math.atan((edge - x) / y)) for edge in (left, right))
    tilts = NormalDist(0, TILT_SD)
    return tilts.cdf(falls_right) - tilts.cdf(falls_left)
