"""Agreement with Box2D 2.3, the engine inside the official evaluator, on the blocks of 310 levels."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from levels_for_tests import dropped

from pcgeval import PhysicsParams, simulate

GOLDEN = Path(__file__).parents[1] / "golden" / "physics" / "physics.jsonl.gz"


def golden_cases():
    with gzip.open(GOLDEN, "rt", encoding="utf-8", newline="\n") as file:
        return [json.loads(line) for line in file]


def golden_pairs(engine):
    cases = golden_cases()
    physics = PhysicsParams(engine=engine, trials=1)
    return [(simulate(dropped(case["drops"]), physics), case["box2d"]) for case in cases]


@pytest.fixture(scope="module")
def pairs():
    return golden_pairs("pymunk")


def test_the_engine_box2d_gives_every_verdict_death_and_place_of_the_official_engine():
    pytest.importorskip("Box2D")
    for ours, box2d in golden_pairs("box2d"):
        assert list(ours.moved) == [bool(each) for each in box2d["moving"]]
        assert list(ours.dead) == [bool(each) for each in box2d["dead"]]
        assert ours.score == pytest.approx(box2d["score"], abs=1e-6)
        assert ours.positions[:, :2] == pytest.approx(np.array(box2d["pos"]), abs=2e-5)


def test_verdicts_on_blocks_agree_with_box2d(pairs):
    verdicts = [
        mine == bool(its) for ours, box2d in pairs for mine, its in zip(ours.moved, box2d["moving"], strict=True)
    ]
    assert np.mean(verdicts) >= 0.935


def test_deaths_agree_with_box2d(pairs):
    deaths = [mine == bool(its) for ours, box2d in pairs for mine, its in zip(ours.dead, box2d["dead"], strict=True)]
    assert np.mean(deaths) >= 0.90


def test_a_trial_that_ends_early_would_not_have_been_the_best():
    """The jittered starts of one trial are simulated to their end, and are those of the trials after it."""
    scores = []
    for case in [case for case in golden_cases() if case["box2d"]["score"] < 1][:40]:
        whole = simulate(dropped(case["drops"]), PhysicsParams(trials=1, starts=2))
        scores.append(max(whole.score, *whole.starts))
        assert simulate(dropped(case["drops"]), PhysicsParams(trials=3)).score == scores[-1]
    assert len(set(scores)) > 10


def test_scores_are_near_those_of_box2d(pairs):
    assert np.mean([abs(ours.score - box2d["score"]) for ours, box2d in pairs]) <= 0.05


def test_what_stands_stands_where_it_does_in_box2d(pairs):
    standing = [(ours, box2d) for ours, box2d in pairs if ours.score == box2d["score"] == 1]
    distances = [np.hypot(*(ours.positions[:, :2] - np.array(box2d["pos"])).T).max() for ours, box2d in standing]
    assert len(standing) >= 120
    assert np.median(distances) <= 0.005
    assert np.mean(distances) <= 0.01
