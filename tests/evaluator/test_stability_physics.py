import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from levels_for_tests import POST_REST, SMALL_REST, dropped, foreign_levels, grid_levels, level

from pcgeval import LevelError, PhysicsParams, simulate
from pcgeval.evaluator.physics import SimulationError, _jittered, build_world
from pcgeval.levels.blocks import level_blocks

ONCE = PhysicsParams(trials=1)
CHAOTIC = dropped([("b11", 14), ("b11", 14), ("b11", 14), ("b31", 14), ("b11", 14), ("b31", 13), ("b31", 15)])


def literal_moved(xml, stability, distance=0.1):
    """A block moved if it died or ended a tenth of a metre or more from where the level has it."""
    return tuple(
        dead or math.dist((block.x, block.y), position[:2]) >= distance
        for block, position, dead in zip(level_blocks(xml), stability.positions, stability.dead, strict=True)
    )


@settings(max_examples=25, deadline=None)
@given(grid_levels)
def test_levels_of_the_grid(xml):
    stability = simulate(xml)
    assert 0 <= stability.score <= 1
    assert stability.moved == literal_moved(xml, stability)
    assert stability.score == pytest.approx(1 - stability.moving_blocks / stability.total_blocks, abs=1e-15)
    assert stability.total_blocks == len(level_blocks(xml)) == len(stability.positions)


@settings(max_examples=25, deadline=None)
@given(foreign_levels)
def test_levels_from_anywhere(xml):
    stability = simulate(xml, ONCE)
    assert 0 <= stability.score <= 1
    assert np.isfinite(stability.positions).all()
    assert (stability.positions == np.round(stability.positions, 6)).all()


@settings(max_examples=10, deadline=None)
@given(grid_levels)
def test_the_same_level_gives_the_same_bits(xml):
    first, second = simulate(xml), simulate(xml)
    assert first.positions.tobytes() == second.positions.tobytes()
    assert (first.moved, first.dead, first.trial) == (second.moved, second.dead, second.trial)


@settings(max_examples=20, deadline=None)
@given(st.sets(st.integers(0, 19), min_size=1), st.sampled_from(["b11", "b13"]))
def test_blocks_beside_each_other_on_the_ground_stay(columns, kind):
    assert simulate(dropped([(kind, column) for column in sorted(columns)])).score == 1


@pytest.mark.parametrize("height", [1, 4, 16])
def test_a_tower_of_beams_stands(height):
    assert simulate(dropped([("b31", 5)] * height)).score == 1


def test_a_beam_on_nothing_but_one_end_falls():
    stability = simulate(dropped([("b13", 4), ("b31", 5)]))
    assert stability.moved == (False, True)
    assert stability.score == 0.5


def test_a_level_without_blocks_scores_nothing():
    stability = simulate(level())
    assert stability.score == 0
    assert (stability.total_blocks, stability.moving_blocks, stability.moved) == (0, 0, ())
    assert stability.positions.shape == (0, 3)


def test_a_full_grid():
    stability = simulate(dropped([("b11", column) for _ in range(16) for column in range(20)]), ONCE)
    assert stability.total_blocks == 320
    assert 0 <= stability.score <= 1


def test_a_resting_block_keeps_the_gap_of_two_skins_less_the_slop():
    stability = simulate(level(("RectSmall", 0, -3.38, 0)))
    assert stability.positions[0] == pytest.approx([0, SMALL_REST, 0], abs=2e-4)


def test_free_fall_follows_the_drag():
    velocity = height = 0.0
    for _ in range(24):  # the engine's first step has no velocity yet
        velocity = (velocity + 9.81 * 0.5 * 0.02) / 1.02
        height += 0.02 * velocity
    stability = simulate(level(("RectSmall", 0, 500, 0)), PhysicsParams(trials=1, seconds=0.5))
    assert stability.positions[0, 1] == pytest.approx(500 - height, abs=1e-6)


def test_a_block_dies_of_its_impact_and_counts_as_moved():
    xml = level(("RectSmall", 0, SMALL_REST + 0.09, 0))  # too low a fall to count, fast enough for a life of 0.5
    assert simulate(xml).moved == (False,)
    stability = simulate(xml, PhysicsParams(life=0.5))
    assert (stability.dead, stability.moved) == ((True,), (True,))


def test_both_blocks_of_an_impact_are_hurt():
    xml = level(("RectSmall", 0, SMALL_REST, 0), ("SquareTiny", 0, SMALL_REST + 0.8, 0))
    assert simulate(xml, PhysicsParams(trials=1, life=1)).dead == (True, True)
    assert simulate(xml, PhysicsParams(trials=1, life=4)).dead == (False, False)


def test_what_stood_on_a_dead_block_falls():
    missile = ("SquareTiny", -0.25, POST_REST + 3, 0)
    table = [("RectSmall", 0, POST_REST, 90), ("RectSmall", 0, POST_REST + 0.35 + 0.11 + 0.015, 0)]
    stability = simulate(level(*table, missile), PhysicsParams(trials=1, life=1))
    assert stability.dead[1]
    assert stability.positions[1, 1] > POST_REST  # it stays in the record where it died


def test_later_trials_can_only_help_and_a_perfect_one_ends_the_search():
    xml = dropped([("b31", column) for column in (7, 7, 8, 7, 8, 7, 8, 7)])
    results = [simulate(xml, PhysicsParams(trials=trials, jitter=0.01)) for trials in range(1, 9)]
    scores = [result.score for result in results]
    assert scores == sorted(scores)
    assert simulate(dropped([("b11", 5)]), PhysicsParams(trials=100)).trial == 1


def test_the_best_trial_is_the_one_reported():
    results = [simulate(CHAOTIC, PhysicsParams(trials=count, jitter=1e-3)) for count in range(1, 7)]
    trials = {result.trial: result for result in results}
    assert len(trials) > 1  # the jitter decides this level
    scores = [result.score for result in trials.values()]
    assert scores == sorted(set(scores))


def test_of_equal_trials_the_first_is_kept():
    assert simulate(dropped([("b13", 4), ("b31", 5)]), PhysicsParams(trials=5)).trial == 1


def test_the_jitter_comes_from_the_seed():
    blocks = level_blocks(CHAOTIC)
    starts = [_jittered(blocks, random.Random(f"{seed}:2"), 1e-4) for seed in (1, 1, 2)]
    assert starts[0] == starts[1] != starts[2]
    shifts = [abs(new.x - old.x) + abs(new.y - old.y) for new, old in zip(starts[0], blocks, strict=True)]
    assert 0 < max(shifts) <= 2e-4
    ends = {simulate(CHAOTIC, PhysicsParams(trials=3, seed=seed)).positions.tobytes() for seed in range(6)}
    assert len(ends) > 1


@settings(max_examples=15, deadline=None)
@given(grid_levels)
def test_ending_when_all_sleep_changes_nothing(xml):
    world = build_world(level_blocks(xml), ONCE)
    for _ in range(500):
        world.advance()
    whole = np.round(world.places, 6)
    assert (simulate(xml, ONCE).positions == whole).all()
    assert simulate(xml, ONCE).dead == world.dead


def test_the_record_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        simulate(dropped([("b11", 5)])).positions[0, 0] = 1


@pytest.mark.parametrize("count", [150, 1000])
def test_a_heap_in_one_place_is_refused(count):
    with pytest.raises(SimulationError, match="pairs of blocks lie in each other"):
        simulate(level(*[("RectSmall", 0, 0, 0)] * count))


def test_a_few_blocks_in_one_place_are_simulated():
    assert simulate(level(*[("RectSmall", 0, -3.2, 30)] * 20), ONCE).total_blocks == 20


@pytest.mark.parametrize(
    "xml", ["", "<Level/>", level(("RectSmall", 1e9, 0, 0)), level(("Pig", 0, 0, 0)), "\0", "<" * 10000]
)
def test_what_is_no_level_is_said_to_be_none(xml):
    with pytest.raises(LevelError):
        simulate(xml)


def test_jittered_starts_tell_how_fragile_a_level_is_and_do_not_count():
    physics = PhysicsParams(starts=6, jitter=0.003)
    fragile, firm = simulate(CHAOTIC, physics), simulate(dropped([("b31", 5)]), physics)
    assert firm.starts == (1,) * 6
    assert len(fragile.starts) == 6
    assert len(set(fragile.starts)) > 1
    plain = simulate(CHAOTIC, PhysicsParams(jitter=0.003))
    assert (fragile.score, fragile.trial, plain.starts) == (plain.score, plain.trial, ())
    assert simulate(CHAOTIC, physics).starts == fragile.starts
    assert simulate(CHAOTIC, PhysicsParams(starts=6, jitter=0.003, seed=1)).starts != fragile.starts


def test_without_paths_the_end_is_the_same():
    whole, end = simulate(CHAOTIC, PhysicsParams(starts=2)), simulate(CHAOTIC, PhysicsParams(starts=2), paths=False)
    assert (end.positions == whole.positions).all()
    assert (end.moved, end.trial, end.starts) == (whole.moved, whole.trial, whole.starts)
    assert whole.paths
    assert not end.paths


@pytest.mark.parametrize(("engine", "iterations"), [("pymunk", 55), ("box2d", 100)])
def test_each_engine_has_iterations_of_its_own(engine, iterations):
    if engine == "box2d":
        pytest.importorskip("Box2D")
    usual = simulate(CHAOTIC, PhysicsParams(engine=engine, trials=1))
    assert (
        usual.positions == simulate(CHAOTIC, PhysicsParams(engine=engine, trials=1, iterations=iterations)).positions
    ).all()
    assert (usual.positions != simulate(CHAOTIC, PhysicsParams(engine=engine, trials=1, iterations=5)).positions).any()
