"""What stands, falls and breaks: by the definition of stability, and by the physics of the official evaluator."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levels_for_tests import POST_REST, SMALL_REST, dropped, foreign_levels, grid_levels, level

from pcgeval import LevelError, PcgevalError, PhysicsParams, simulate
from pcgeval.evaluator.physics import build_world
from pcgeval.levels.blocks import level_blocks

ONCE = PhysicsParams(trials=1)
CHAOTIC = dropped([("b11", 14), ("b11", 14), ("b11", 14), ("b31", 14), ("b11", 14), ("b31", 13), ("b31", 15)])
ONE_END = dropped([("b13", 4), ("b31", 5)])  # a beam that only one end carries


@settings(max_examples=25)
@given(grid_levels)
def test_a_block_moved_if_it_died_or_ended_a_tenth_of_a_metre_from_where_the_level_has_it(xml):
    stability = simulate(xml)
    blocks = level_blocks(xml)
    assert stability.moved == tuple(
        dead or math.dist((block.x, block.y), position[:2]) >= 0.1
        for block, position, dead in zip(blocks, stability.positions, stability.dead, strict=True)
    )
    assert stability.score == pytest.approx(1 - stability.moving_blocks / stability.total_blocks, abs=1e-15)
    assert stability.total_blocks == len(blocks) == len(stability.positions)


@settings(max_examples=25)
@given(foreign_levels)
def test_levels_from_anywhere(xml):
    stability = simulate(xml, ONCE)
    assert 0 <= stability.score <= 1
    assert np.isfinite(stability.positions).all()
    assert (stability.positions == np.round(stability.positions, 6)).all()


@settings(max_examples=10)
@given(grid_levels)
def test_the_same_level_gives_the_same_bits_and_ending_when_all_sleep_changes_nothing(xml):
    first, second = simulate(xml), simulate(xml)
    assert first.positions.tobytes() == second.positions.tobytes()
    assert (first.moved, first.dead, first.trial) == (second.moved, second.dead, second.trial)
    world = build_world(level_blocks(xml), ONCE)
    for _ in range(500):
        world.advance()
    assert (simulate(xml, ONCE).positions == np.round(world.places, 6)).all()
    assert simulate(xml, ONCE).dead == world.dead


@settings(max_examples=20)
@given(st.sets(st.integers(0, 19), min_size=1), st.sampled_from(["b11", "b13"]), st.integers(1, 16))
def test_blocks_beside_each_other_and_towers_of_beams_stay(columns, kind, height):
    assert simulate(dropped([(kind, column) for column in sorted(columns)])).score == 1
    assert simulate(dropped([("b31", 5)] * height)).score == 1


def test_the_smallest_and_the_largest_levels():
    stability = simulate(level())
    assert (stability.score, stability.moved, stability.positions.shape) == (0, (), (0, 3))
    full = simulate(dropped([("b11", column) for _ in range(16) for column in range(20)]), ONCE)
    assert full.total_blocks == 320
    stability = simulate(ONE_END, PhysicsParams(trials=5))  # it falls in every trial, of which the first counts
    assert (stability.moved, stability.score, stability.trial) == ((False, True), 0.5, 1)
    with pytest.raises(ValueError, match="read-only"):
        stability.positions[0, 0] = 1
    # a resting block keeps the gap of two skins less the slop
    assert simulate(level(("RectSmall", 0, -3.38, 0))).positions[0] == pytest.approx([0, SMALL_REST, 0], abs=2e-4)
    # a beam that falls on a corner slides on the ground's friction of 0.4; the blocks' 4.0 would give 0.1983
    slid = simulate(level(("RectSmall", 0, -2.5, 45)), PhysicsParams(trials=1, life=1000))
    assert slid.positions[0, 0] == pytest.approx(0.2003, abs=5e-4)


def test_free_fall_follows_the_drag():
    velocity = height = 0.0
    for _ in range(24):  # the engine's first step has no velocity yet
        velocity = (velocity + 9.81 * 0.5 * 0.02) / 1.02
        height += 0.02 * velocity
    stability = simulate(level(("RectSmall", 0, 500, 0)), PhysicsParams(trials=1, seconds=0.5))
    assert stability.positions[0, 1] == pytest.approx(500 - height, abs=1e-6)


def test_both_blocks_of_an_impact_are_hurt_and_the_dead_count_as_moved():
    low_fall = level(("RectSmall", 0, SMALL_REST + 0.09, 0))  # too low to count, fast enough for a life of 0.5
    assert simulate(low_fall).moved == (False,)
    stability = simulate(low_fall, PhysicsParams(life=0.5))
    assert (stability.dead, stability.moved) == ((True,), (True,))
    both = level(("RectSmall", 0, SMALL_REST, 0), ("SquareTiny", 0, SMALL_REST + 0.8, 0))
    assert [simulate(both, PhysicsParams(trials=1, life=life)).dead for life in (1, 4)] == [(True,) * 2, (False,) * 2]
    table = [("RectSmall", 0, POST_REST, 90), ("RectSmall", 0, POST_REST + 0.35 + 0.11 + 0.015, 0)]
    hit = simulate(level(*table, ("SquareTiny", -0.25, POST_REST + 3, 0)), PhysicsParams(trials=1, life=1))
    assert hit.dead[1]
    assert hit.positions[1, 1] > POST_REST  # it stays in the record where it died


@pytest.mark.parametrize(
    ("xml", "jitter"), [(CHAOTIC, 1e-3), (dropped([("b31", 7 + (n in (2, 4, 6))) for n in range(8)]), 0.01)]
)
def test_later_trials_can_only_help_and_the_best_one_is_reported(xml, jitter):
    ends = [simulate(xml, PhysicsParams(trials=trials, jitter=jitter)) for trials in range(1, 7)]
    scores = [end.score for end in ends]
    assert scores == sorted(scores)
    assert len({end.trial for end in ends}) == len(set(scores))  # another trial is reported only if it is better
    assert simulate(dropped([("b11", 5)]), PhysicsParams(trials=100)).trial == 1  # a perfect one ends the search


def test_jittered_starts_tell_how_fragile_a_level_is_and_do_not_count():
    physics = PhysicsParams(starts=6, jitter=0.003)
    fragile, plain = simulate(CHAOTIC, physics), simulate(CHAOTIC, PhysicsParams(jitter=0.003))
    assert simulate(dropped([("b31", 5)]), physics).starts == (1,) * 6
    assert len(fragile.starts) == 6
    assert len(set(fragile.starts)) > 1
    assert (fragile.score, fragile.trial, plain.starts) == (plain.score, plain.trial, ())
    assert simulate(CHAOTIC, physics).starts == fragile.starts
    assert simulate(CHAOTIC, PhysicsParams(starts=6, jitter=0.003, seed=1)).starts != fragile.starts
    end = simulate(CHAOTIC, physics, paths=False)  # without paths, all else is the same
    assert (end.positions == fragile.positions).all()
    assert (end.moved, end.trial, end.starts) == (fragile.moved, fragile.trial, fragile.starts)
    assert (bool(end.paths), bool(fragile.paths)) == (False, True)


def test_a_heap_in_one_place_is_refused_and_a_few_blocks_are_not():
    for count in (150, 1000):
        with pytest.raises(PcgevalError, match="pairs of blocks lie in each other"):
            simulate(level(*[("RectSmall", 0, 0, 0)] * count))
    assert simulate(level(*[("RectSmall", 0, -3.2, 30)] * 20), ONCE).total_blocks == 20
    for text in ("", "<Level/>", level(("RectSmall", 1e9, 0, 0)), "\0", "<" * 10000):
        with pytest.raises(LevelError):
            simulate(text)
