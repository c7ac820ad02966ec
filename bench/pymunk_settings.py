"""Agreement of pymunk with Box2D when one of its settings is moved: whether another value would be better.

The levels are the golden ones with two blocks moved by a column, so that no setting is chosen on the golden verdicts.
The engine `box2d`, which gives every golden verdict, says what is right. Takes some four minutes.
"""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from pcgeval.core.params import PhysicsParams
from pcgeval.evaluator import pymunk_world
from pcgeval.evaluator.physics import simulate
from pcgeval.levels.errors import LevelError
from pcgeval.levels.xml import level_xml

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


def main() -> None:
    levels = list(changed_levels())
    truth = [simulate(xml, PhysicsParams(engine="box2d", trials=1)).moved for xml in levels]

    def print_agreement(name: str, iterations: int = 100) -> None:
        ours = [simulate(xml, PhysicsParams(trials=1, iterations=iterations)).moved for xml in levels]
        same = [left == right for pair in zip(ours, truth, strict=True) for left, right in zip(*pair, strict=True)]
        print(f"pymunk.{name} {100 * sum(same) / len(same):.2f} % of {len(same)} verdicts", flush=True)

    print_agreement("as_set")
    for name, values in VALUES.items():
        usual = getattr(pymunk_world, name)
        for value in values:
            setattr(pymunk_world, name, value)
            print_agreement(f"{name}={value:g}")
        setattr(pymunk_world, name, usual)
    for iterations in (10, 30, 300):
        print_agreement(f"iterations={iterations}", iterations)


def changed_levels() -> Iterator[str]:
    """Yield the golden levels with two blocks a column beside, without those that then leave the grid."""
    rng = random.Random(5)  # noqa: S311 - no secret
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        for line in file:
            drops = json.loads(line)["drops"]
            for _ in range(2):
                drops[rng.randrange(len(drops))][1] += rng.choice((-1, 1))
            try:
                yield level_xml("".join(f"drop_block('{kind}', {column})\n" for kind, column in drops))
            except LevelError:
                continue


if __name__ == "__main__":
    main()
