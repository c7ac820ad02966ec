"""Agreement with Box2D 2.3, the engine inside the official evaluator, on the blocks of 310 levels."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from levels_for_tests import dropped

from pcgeval.core.params import PhysicsParams
from pcgeval.evaluator.physics import simulate

GOLDEN = Path(__file__).parents[1] / "golden" / "physics" / "physics.jsonl.gz"


@pytest.fixture(scope="module")
def pairs():
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        cases = [json.loads(line) for line in file]
    return [(simulate(dropped(case["drops"]), PhysicsParams(trials=1)), case["box2d"]) for case in cases]


def test_verdicts_on_blocks_agree_with_box2d(pairs):
    verdicts = [
        mine == bool(its) for ours, box2d in pairs for mine, its in zip(ours.moved, box2d["moving"], strict=True)
    ]
    assert np.mean(verdicts) >= 0.935


def test_deaths_agree_with_box2d(pairs):
    deaths = [mine == bool(its) for ours, box2d in pairs for mine, its in zip(ours.dead, box2d["dead"], strict=True)]
    assert np.mean(deaths) >= 0.90


def test_scores_are_near_those_of_box2d(pairs):
    assert np.mean([abs(ours.score - box2d["score"]) for ours, box2d in pairs]) <= 0.05


def test_what_stands_stands_where_it_does_in_box2d(pairs):
    standing = [(ours, box2d) for ours, box2d in pairs if ours.score == box2d["score"] == 1]
    distances = [np.hypot(*(ours.positions[:, :2] - np.array(box2d["pos"])).T).max() for ours, box2d in standing]
    assert len(standing) >= 120
    assert np.median(distances) <= 0.005
    assert np.mean(distances) <= 0.01
