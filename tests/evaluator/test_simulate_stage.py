"""The stage simulate: official files, pictures, replays and outcomes; equal levels are simulated once."""

import json
import os
import shutil

import pytest
from levels_for_tests import dropped, level
from params_for_tests import contents, file_states, small_params

from pcgeval import PhysicsParams, simulate
from pcgeval.core.files import write_text
from pcgeval.evaluator import stage
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import DATA, Trial, replays_file, stage_dir, trial_file
from pcgeval.formats.stages import ReplaysFile, read_outcomes, write_failures

TEAM = "team_a"
SHAKY = dropped([("b13", 4), ("b31", 5)])
PARAMS = small_params("ABC", 10, teams=(TEAM,))
LEVELS = {Trial("A", 1): dropped([("b31", 5), ("b11", 5)]), Trial("A", 2): SHAKY, Trial("A", 10): level()}
LEVELS |= dict.fromkeys([Trial("B", 2), Trial("B", 3)], "<Level")
DIFFERENT = len(LEVELS) - 1
LATE, NO_CODE = failure("late-call", seconds=500), failure("no-fence", calls="no drop_block call")
STABILITY = stage_dir("stability", "m", TEAM)


@pytest.fixture
def root(tmp_path):
    """Letter A with three levels; B with a trial that failed before, two without XML, one without code; C with none."""
    for trial, content in LEVELS.items():
        write_text(trial_file(tmp_path / stage_dir("levels", "m", TEAM), "levels", TEAM, trial), content)
    write_failures(tmp_path / stage_dir("levels", "m", TEAM), {Trial("B", 1): LATE, Trial("B", 10): NO_CODE})
    return tmp_path


def run(root, params=PARAMS, processes=1):
    """Run the stage and return the outcomes of the team's trials."""
    simulate_stage(params, root, processes=processes)
    return read_outcomes(root / STABILITY)


def stability_of(root, letter):
    return json.loads((root / STABILITY / f"{letter}.json").read_text())


def simulations(root):
    """Return the state of each simulation that is kept."""
    states = file_states(root / ".cache" / "simulations")
    return {name: state for name, state in states.items() if name.endswith(".json")}


def test_official_files_outcomes_pictures_ends_and_replays(root):
    outcomes = run(root)
    figures = [(f"{TEAM}/levels/A/{TEAM}_A_1.xml", 1.0, 2, 0)]
    figures += [(f"{TEAM}/levels/A/{TEAM}_A_2.xml", 0.5, 2, 1), (f"{TEAM}/levels/A/{TEAM}_A_10.xml", 0.0, 0, 0)]
    names = ("tag", "score", "startingObjects", "movingObjects")
    levels = [dict(zip(names, values, strict=True)) for values in figures]
    assert stability_of(root, "A") == {"dataCount": 3, "rate": 0.5, "raws": levels}
    assert stability_of(root, "B") == stability_of(root, "C") == {"dataCount": 0, "rate": 0.0, "raws": []}
    assert sorted(outcomes) == sorted(Trial(letter, number) for letter in "ABC" for number in range(1, 11))
    unread = failure("level-unreadable", fault="it is no XML")
    expected = {("B", 1): LATE, ("B", 2): unread, ("B", 10): NO_CODE, ("C", 1): failure("level-missing")}
    assert {place: outcomes[Trial(*place)].failure for place in expected} == expected
    assert [outcomes[Trial("A", number)].failure for number in (1, 2, 10)] == [None] * 3
    pictures = sorted(path.name for path in (root / DATA / "images").rglob("*.png"))
    assert pictures == [f"{TEAM}_A_{number}.png" for number in (1, 10, 2)]
    record = json.loads((root / STABILITY / "simulations.json").read_text())
    assert (record["engine"]["name"], record["physics"]) == ("pymunk", PhysicsParams().model_dump())
    assert [(trial["letter"], trial["trial"]) for trial in record["trials"]] == [("A", 1), ("A", 2), ("A", 10)]
    end, shown = simulate(SHAKY), record["trials"][1]
    assert (shown["best_of"], shown["types"], shown["starts"]) == (end.trial, list(end.types), [])
    assert shown["positions"] == end.positions.tolist()
    assert (shown["moved"], shown["dead"]) == (list(end.moved), list(end.dead))
    (replayed,) = ReplaysFile.read(root / replays_file("m", TEAM)).trials
    assert (replayed.letter, replayed.trial, replayed.paths) == ("A", 2, end.paths)


def test_equal_levels_are_simulated_once_and_neither_processes_nor_kept_simulations_change_a_byte(root):
    run(root)
    before, kept = contents(root / DATA), simulations(root)
    assert len(kept) == DIFFERENT
    for name in ("stability", "images", "replays"):
        shutil.rmtree(root / DATA / name)
    run(root)
    assert (contents(root / DATA), simulations(root)) == (before, kept)
    shutil.rmtree(root / STABILITY)
    next((root / ".cache").rglob("*.png")).unlink()  # without it, a simulation is made again, and so is a damaged one
    next((root / ".cache").rglob("*.json")).write_text("{")
    run(root)
    assert contents(root / DATA) == before
    shutil.rmtree(root / ".cache")
    run(root, processes=2)
    assert contents(root / DATA) == before


def test_other_physics_packages_or_code_share_nothing(root, monkeypatch):
    run(root)
    run(root, PARAMS.model_copy(update={"physics": PhysicsParams(life=1e-3)}))
    assert stability_of(root, "A")["raws"][0]["score"] == 0
    assert len(simulations(root)) == 2 * DIFFERENT
    for number, name in enumerate(("installed_versions", "source_sha256"), start=3):
        monkeypatch.setattr(stage, name, lambda *_: {"numpy": "0.1"})
        monkeypatch.setattr("pcgeval.formats.stages.installed_release", lambda number=number: str(number))
        run(root)
        assert len(simulations(root)) == number * DIFFERENT


def simulate_or_die(levels, physics):
    """Stands for an engine that tears its process down on one of the levels."""
    if SHAKY.encode() in levels:
        os.abort()
    return ORIGINAL(levels, physics)


ORIGINAL = stage._simulate


@pytest.mark.parametrize("processes", [1, None])
def test_a_crashing_engine_costs_one_level_until_the_next_run(root, monkeypatch, processes):
    monkeypatch.setattr(stage, "_simulate", simulate_or_die)
    outcomes = run(root, processes=processes)
    failures = [outcomes[Trial("A", number)].failure for number in (1, 2, 10)]
    assert failures == [None, failure("simulation-crashed"), None]
    monkeypatch.undo()
    assert run(root)[Trial("A", 2)].failure is None, "the next run tries it again"
