"""Levels per CPU second through simulation, picture and PNG, and agreement with Box2D; one figure a line.

The mix is what the golden levels are: letters, towers, arches and heaps of 13 blocks on average, half of which fall.
"""

import gzip
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcgeval.evaluator.image import level_png
from pcgeval.evaluator.physics import simulate
from pcgeval.evaluator.world import Stability
from pcgeval.formats.params import PhysicsParams
from pcgeval.levels.conversion import level_xml

GOLDEN = Path(__file__).parents[1] / "tests/golden/physics/physics.jsonl.gz"
TIMES = 3  # others may slow the machine down
ONE_TRIAL = PhysicsParams(trials=1)
BEST_OF_THREE = PhysicsParams(trials=3)


def main() -> None:
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        cases = [json.loads(line) for line in file]
    levels = [level_xml("".join(f"drop_block('{kind}', {at})\n" for kind, at in case["drops"])) for case in cases]
    blocks = [case["n"] for case in cases]
    standing = [at for at, case in enumerate(cases) if case["box2d"]["score"] == 1 and 11 <= case["n"] <= 15]
    print(f"evaluator.blocks_mix {sum(blocks) / len(blocks):.1f} blocks/level")
    print(f"evaluator.blocks_standing {sum(blocks[at] for at in standing) / len(standing):.1f} blocks/level")
    print(f"evaluator.standing_best_of_three {rate([levels[at] for at in standing], BEST_OF_THREE):.0f} levels/cpu_s")
    print(f"evaluator.mix_one_trial {rate(levels, ONE_TRIAL):.0f} levels/cpu_s")
    print(f"evaluator.mix_best_of_three {rate(levels, BEST_OF_THREE):.0f} levels/cpu_s")
    ours = [simulate(xml, ONE_TRIAL) for xml in levels]
    print(f"evaluator.picture {timed(lambda: [level_png(level) for level in ours]) / len(ours):.2f} cpu_ms/level")
    golden = [case["box2d"] for case in cases]
    print_agreement("pymunk", ours, golden)
    if importlib.util.find_spec("Box2D"):
        physics = PhysicsParams(engine="box2d", trials=1)
        print_agreement("box2d", [simulate(xml, physics) for xml in levels], golden)
        print(f"evaluator.box2d_mix_one_trial {rate(levels, physics):.0f} levels/cpu_s")
        print_fragility("box2d", levels)
    print_fragility("pymunk", levels)


def rate(levels: list[str], physics: PhysicsParams) -> float:
    """Return levels per CPU second of simulation, picture and PNG together."""
    return 1000 * len(levels) / timed(lambda: [level_png(simulate(xml, physics, paths=False)) for xml in levels])


def timed(work: Callable[[], object]) -> float:
    """Return the CPU time of this process for some work, in milliseconds: the least of three times."""
    times = []
    for _ in range(TIMES):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return 1000 * min(times)


def print_agreement(engine: str, ours: list[Stability], box2d: list[dict[str, Any]]) -> None:
    verdicts = [
        moved == bool(golden)
        for mine, its in zip(ours, box2d, strict=True)
        for moved, golden in zip(mine.moved, its["moving"], strict=True)
    ]
    differences = [abs(mine.score - its["score"]) for mine, its in zip(ours, box2d, strict=True)]
    print(f"evaluator.{engine}_verdicts {100 * sum(verdicts) / len(verdicts):.1f} % of {len(verdicts)}")
    print(f"evaluator.{engine}_score_difference {sum(differences) / len(differences):.4f} of 1")


def print_fragility(engine: str, levels: list[str]) -> None:
    """Print how many levels end otherwise when their blocks start 0.1 mm beside, and how far stabilities spread."""
    physics = PhysicsParams(engine=engine, trials=1, starts=8)
    spreads = [max(starts) - min(starts) for starts in (simulate(xml, physics).starts for xml in levels)]
    fragile = [spread for spread in spreads if spread]
    print(f"evaluator.{engine}_fragile {100 * len(fragile) / len(levels):.0f} % of {len(levels)} levels, 8 starts each")
    print(f"evaluator.{engine}_spread {sum(fragile) / max(1, len(fragile)):.2f} of 1, on average over these")


if __name__ == "__main__":
    main()
