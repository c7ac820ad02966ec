"""Agreement of pymunk with Box2D when one of its settings is moved: whether another value would be better.

The levels are the golden ones with two blocks moved by a column, so that no setting is chosen on the golden verdicts.
The engine `box2d`, which gives every golden verdict, says what is right. Takes some five minutes.
"""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from pcgeval.evaluator import pymunk_world, world
from pcgeval.evaluator.physics import simulate
from pcgeval.formats.params import PhysicsParams
from pcgeval.levels.conversion import LevelError, level_xml

GOLDEN = Path(__file__).parents[1] / "tests/golden/physics/physics.jsonl.gz"
VALUES = {
    "FLAT_SKIN": (0.0, 0.0025, 0.0075, 0.01),
    "SLOP": (0.0025, 0.0035, 0.0065, 0.0075),
    "BAUMGARTE": (0.1, 0.15, 0.3, 0.4),
    "BLOCK_FRICTION": (2.0, 3.0, 6.0, 16.0),
    "GROUND_FRICTION": (0.2, 0.8),
    "SLEEP_SPEED": (0.003, 0.03),
    "SLEEP_SECONDS": (0.25, 1.0),
    "SLEEP_TURN": (0.009, 0.105),
}
ITERATIONS = (25, pymunk_world.ITERATIONS, 75)  # each beside the 100 of Box2D
SETS = 20  # of changed levels for these: they cost time, so the difference has to be known well


def main() -> None:
    levels = list(changed_levels(5))
    truth = moved_blocks(levels, PhysicsParams(engine="box2d", trials=1))
    physics = PhysicsParams(trials=1)
    print_agreement("as_set", agreement(levels, truth, physics))
    for name, values in VALUES.items():
        module = pymunk_world if hasattr(pymunk_world, name) else world
        usual = getattr(module, name)
        for value in values:
            setattr(module, name, value)
            print_agreement(f"{name}={value:g}", agreement(levels, truth, physics))
        setattr(module, name, usual)

    levels = [xml for seed in range(100, 100 + SETS) for xml in changed_levels(seed)]
    truth = moved_blocks(levels, PhysicsParams(engine="box2d", trials=1))
    as_box2d = agreement(levels, truth, PhysicsParams(trials=1, iterations=100))
    print_agreement("iterations=100", as_box2d)
    for iterations in ITERATIONS:
        verdicts = agreement(levels, truth, PhysicsParams(trials=1, iterations=iterations))
        print_agreement(f"iterations={iterations}", verdicts)
        # pairs of levels: most of the error is common to both
        gain = 100 * (verdicts[:, 0] - as_box2d[:, 0]) / verdicts[:, 1].mean()
        error = gain.std() / len(gain) ** 0.5
        print(f"pymunk.iterations_{iterations}_gain {gain.mean():+.2f} % of verdicts, standard error {error:.2f}")


def changed_levels(seed: int) -> Iterator[str]:
    """Yield the golden levels with two blocks a column beside, without those that then leave the grid."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            drops = json.loads(line)["drops"]
            for _ in range(2):
                drops[rng.randrange(len(drops))][1] += rng.choice((-1, 1))
            try:
                yield level_xml("".join(f"drop_block('{kind}', {column})\n" for kind, column in drops))
            except LevelError:
                continue


def moved_blocks(levels: list[str], physics: PhysicsParams) -> list[tuple[bool, ...]]:
    """Return which blocks of each level moved."""
    return [simulate(xml, physics).moved for xml in levels]


def agreement(levels: list[str], truth: list[tuple[bool, ...]], physics: PhysicsParams) -> NDArray[np.int64]:
    """Return, for each level, of how many blocks the verdict is right, and how many blocks there are."""
    ours = moved_blocks(levels, physics)
    return np.array([(sum(map(bool.__eq__, *pair)), len(pair[0])) for pair in zip(ours, truth, strict=True)])


def print_agreement(name: str, verdicts: NDArray[np.int64]) -> None:
    right, blocks = verdicts.sum(axis=0)
    print(f"pymunk.{name} {100 * right / blocks:.2f} % of {blocks} verdicts", flush=True)


if __name__ == "__main__":
    main()
