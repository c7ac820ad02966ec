import json
import os

import numpy as np
import pytest
from levels_for_tests import dropped, level
from PIL import Image

from pcgeval.core.errors import FileError
from pcgeval.core.layout import Trial, trial_file
from pcgeval.core.params import PhysicsParams
from pcgeval.core.stage_files import ReplaysFile, failed, read_outcomes, succeeded, write_outcomes
from pcgeval.evaluator import stage
from pcgeval.evaluator.physics import simulate
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.levels.blocks import level_blocks

TEAM = "team_a"
STABLE = dropped([("b31", 5), ("b11", 5)])
SHAKY = dropped([("b13", 4), ("b31", 5)])
TRIALS = [Trial(letter, number) for letter in "ABC" for number in (1, 2, 10)]


@pytest.fixture
def levels(tmp_path):
    """Letter A with three levels, B with an earlier failure, no XML and a missing file, C with earlier failures."""
    folder = tmp_path / "levels"
    contents = dict(zip(TRIALS, [STABLE, SHAKY, level(), None, "<Level", None, None, None, None], strict=True))
    for trial, content in contents.items():
        if content is not None:
            path = trial_file(folder, "levels", TEAM, trial)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode())
    outcomes = [succeeded(trial) for trial in TRIALS]
    for index in (3, 6, 7, 8):
        outcomes[index] = failed(TRIALS[index], "extract", "no code")
    write_outcomes(folder, outcomes)
    return folder


def run(levels, **options):
    root = levels.parent
    return simulate_stage(levels, root / "stability", root / "images", TEAM, TRIALS, **options)


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_files_of_a_letter(levels):
    run(levels, processes=1)
    written = json.loads((levels.parent / "stability" / "A.json").read_text())
    assert written == {
        "dataCount": 3,
        "rate": 0.5,
        "raws": [
            {
                "tag": f"{TEAM}/levels/A/{TEAM}_A_{number}.xml",
                "score": score,
                "startingObjects": all_,
                "movingObjects": moving,
            }
            for number, score, all_, moving in ((1, 1.0, 2, 0), (2, 0.5, 2, 1), (10, 0.0, 0, 0))
        ],
    }


def test_a_letter_without_levels_has_a_file_too(levels):
    run(levels, processes=1)
    for letter in "BC":
        written = json.loads((levels.parent / "stability" / f"{letter}.json").read_text())
        assert written == {"dataCount": 0, "rate": 0.0, "raws": []}


def test_failures_are_carried_on_or_recorded_with_a_reason(levels):
    outcomes = {outcome.key: outcome for outcome in run(levels, processes=1)}
    assert outcomes == read_outcomes(levels.parent / "stability") == read_outcomes(levels.parent / "images")
    assert sorted(outcomes) == sorted(TRIALS)
    assert outcomes[Trial("B", 1)] == failed(Trial("B", 1), "extract", "no code")
    assert outcomes[Trial("B", 2)].failed_stage == "simulate"
    assert "XML" in outcomes[Trial("B", 2)].reason
    assert outcomes[Trial("B", 10)] == failed(Trial("B", 10), "simulate", "the level file is missing")
    assert [outcomes[Trial("A", number)].reason for number in (1, 2, 10)] == [None] * 3


def test_pictures_and_record(levels):
    run(levels, processes=1)
    pictures = sorted(path for path in (levels.parent / "images").rglob("*.png"))
    assert [path.relative_to(levels.parent).as_posix() for path in pictures] == [
        f"images/A/{TEAM}_A_{number}.png" for number in (1, 10, 2)
    ]
    assert all(Image.open(path).size == (1024, 1024) for path in pictures)
    record = json.loads((levels.parent / "stability" / "simulations.json").read_text())
    assert record["engine"]["name"] == "pymunk"
    assert record["physics"] == PhysicsParams().model_dump()
    expected = simulate(SHAKY)
    assert record["trials"][1] == {
        "letter": "A",
        "trial": 2,
        "best_of": expected.trial,
        "types": list(expected.types),
        "positions": expected.positions.tolist(),
        "moved": list(expected.moved),
        "dead": list(expected.dead),
        "starts": [],
    }


def test_replays_of_the_levels_in_which_something_moved(levels):
    path = levels.parent / "replays.json"
    run(levels, processes=1, replays=path)
    (found,) = ReplaysFile.read(path).trials
    expected = simulate(SHAKY)
    assert (found.letter, found.trial, found.paths) == ("A", 2, expected.paths)
    (way,) = found.paths
    assert expected.dead == (False, True)
    start = level_blocks(SHAKY)[1]
    assert way.block == 1
    assert way.keys[0] == pytest.approx((0, 1000 * start.x, 1000 * start.y, start.rotation), abs=1)
    assert way.keys[-1][1:3] == pytest.approx(1000 * expected.positions[1, :2], abs=100)  # it breaks on the ground
    assert len(way.keys) < 15


def test_the_number_of_processes_changes_no_byte(levels):
    replays = levels.parent / "replays.json"
    run(levels, processes=1, replays=replays)
    alone = tree(levels.parent)
    run(levels, processes=2, replays=replays)
    assert tree(levels.parent) == alone


def test_what_an_earlier_run_left_is_gone(levels):
    stale = levels.parent / "images" / "Z" / "old.png"
    stale.parent.mkdir(parents=True)
    stale.touch()
    run(levels, processes=1)
    assert not stale.exists()


def test_the_input_is_never_emptied(levels):
    with pytest.raises(FileError, match="replace its own input"):
        simulate_stage(levels, levels.parent, levels.parent / "images", TEAM, TRIALS)
    assert (levels / "trials.json").exists()


def test_physics_reaches_the_engine(levels):
    run(levels, processes=1, physics=PhysicsParams(life=1e-3))
    assert json.loads((levels.parent / "stability" / "A.json").read_text())["raws"][0]["score"] == 0


def test_a_level_too_large_to_read_is_recorded(levels):
    trial_file(levels, "levels", TEAM, TRIALS[0]).write_bytes(b" " * (stage.MAX_BYTES + 1))
    outcomes = {outcome.key: outcome for outcome in run(levels, processes=1)}
    assert "larger than" in outcomes[TRIALS[0]].reason


def test_a_heap_is_recorded(levels):
    heap = level(*[("RectSmall", 0, 0, 0)] * 300)
    trial_file(levels, "levels", TEAM, TRIALS[0]).write_text(heap)
    outcomes = {outcome.key: outcome for outcome in run(levels, processes=1)}
    assert "lie in each other" in outcomes[TRIALS[0]].reason


def evaluate_or_die(levels, physics):
    """Stands for an engine that tears its process down on one of the levels."""
    if SHAKY.encode() in levels:
        os._exit(1)
    return ORIGINAL(levels, physics)


ORIGINAL = stage._evaluate


def test_a_crashing_engine_costs_one_level_only(levels, monkeypatch):
    monkeypatch.setattr(stage, "_evaluate", evaluate_or_die)
    outcomes = {outcome.key: outcome for outcome in run(levels, processes=2)}
    assert outcomes[Trial("A", 2)].reason == "the physics engine crashed on this level"
    assert [outcomes[Trial("A", number)].reason for number in (1, 10)] == [None, None]
    picture = Image.open(trial_file(levels.parent / "images", "images", TEAM, Trial("A", 1)))
    assert np.asarray(picture.convert("L")).min() == 0
