"""Agreement with Box2D 2.3, the engine inside the official evaluator, on the blocks of 310 levels."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from levels_for_tests import dropped

from pcgeval import PhysicsParams, simulate

GOLDEN = Path(__file__).parents[1] / "golden" / "physics" / "physics.jsonl.gz"
CASES = [json.loads(line) for line in gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()]


def golden_pairs(engine):
    physics = PhysicsParams(engine=engine, trials=1)
    return [(simulate(dropped(case["drops"]), physics), case["box2d"]) for case in CASES]


def test_the_engine_box2d_gives_every_verdict_death_and_place_of_the_official_engine():
    pytest.importorskip("Box2D")
    for ours, box2d in golden_pairs("box2d"):
        assert list(ours.moved) == [bool(value) for value in box2d["moving"]]
        assert list(ours.dead) == [bool(value) for value in box2d["dead"]]
        assert ours.score == pytest.approx(box2d["score"], abs=1e-6)
        assert ours.positions[:, :2] == pytest.approx(np.array(box2d["pos"]), abs=2e-5)


def test_pymunk_is_near_box2d():
    pairs = golden_pairs("pymunk")
    verdicts, deaths = (
        [mine == bool(its) for ours, box2d in pairs for mine, its in zip(getattr(ours, name), box2d[key], strict=True)]
        for name, key in (("moved", "moving"), ("dead", "dead"))
    )
    assert np.mean(verdicts) >= 0.95
    assert np.mean(deaths) >= 0.90
    assert np.mean([abs(ours.score - box2d["score"]) for ours, box2d in pairs]) <= 0.035
    standing = [(ours, box2d) for ours, box2d in pairs if ours.score == box2d["score"] == 1]
    distances = [np.hypot(*(ours.positions[:, :2] - np.array(box2d["pos"])).T).max() for ours, box2d in standing]
    assert len(standing) >= 120
    assert np.median(distances) <= 0.005


def test_a_trial_that_ends_early_would_not_have_been_the_best():
    """The jittered starts of one trial are simulated to their end, and are those of the trials after it."""
    scores = []
    for case in [case for case in CASES if case["box2d"]["score"] < 1][:40]:
        whole = simulate(dropped(case["drops"]), PhysicsParams(trials=1, starts=2))
        scores.append(max(whole.score, *whole.starts))
        assert simulate(dropped(case["drops"]), PhysicsParams(trials=3)).score == scores[-1]
    assert len(set(scores)) > 10
