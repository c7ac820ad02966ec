"""The stage simulate: official files, pictures, replays and outcomes; equal levels are simulated once."""

import json
import os
import shutil

import numpy as np
import pytest
from levels_for_tests import dropped, level
from params_for_tests import contents, file_states, small_params
from PIL import Image

from pcgeval import PhysicsParams, simulate
from pcgeval.core.files import write_text
from pcgeval.core.layout import DATA, Trial, replays_file, stage_dir, summaries_file, trial_file
from pcgeval.core.stage_files import ReplaysFile, failed, read_outcomes
from pcgeval.core.trials import TrialRecord, TrialSummary, TrialUsage, write_summaries, write_trial
from pcgeval.evaluator import stage
from pcgeval.evaluator.stage import simulate_stage

TEAM = "team_a"
STABLE = dropped([("b31", 5), ("b11", 5)])
SHAKY = dropped([("b13", 4), ("b31", 5)])
PARAMS = small_params("ABC", 10, teams=(TEAM,))
FIRST, SECOND = Trial("A", 1), Trial("A", 2)
LEVELS = {FIRST: STABLE, SECOND: SHAKY, Trial("A", 10): level(), Trial("B", 2): "<Level"}
STABILITY = stage_dir("stability", "m", TEAM)
OUTPUTS = ("stability", "images", "replays")
NO_CODE = "no code: the response holds no closed fenced block (```...```)"


def put(root, levels, team=TEAM, model="m"):
    for trial, content in levels.items():
        write_text(trial_file(root / stage_dir("levels", model, team), "levels", team, trial), content)


@pytest.fixture
def root(tmp_path):
    """Letter A with three levels; B with a trial that failed before, one without XML, one without code; C with none."""
    put(tmp_path, LEVELS)
    raw = tmp_path / stage_dir("raw", "m", TEAM)
    write_trial(raw, TEAM, Trial("B", 1), "", TrialRecord("f", 1, "m", "d", (), "0" * 64, "took 501 s"))
    summary = TrialSummary("B", 1, "0" * 64, "took 501 s", TrialUsage(0, 0))
    write_summaries(tmp_path / summaries_file("m", TEAM), [summary])
    write_text(trial_file(raw, "raw", TEAM, Trial("B", 10)), "Sorry.")
    return tmp_path


def run(root, params=PARAMS, processes=1):
    """Run the stage and return the outcomes of the team's trials."""
    simulate_stage(params, root, processes=processes)
    return read_outcomes(root / STABILITY)


def outputs(root):
    return {name: contents(root / DATA / name) for name in OUTPUTS}


def stability_of(root, letter):
    return json.loads((root / STABILITY / f"{letter}.json").read_text())


def simulations(root):
    """Return the state of each simulation that is kept."""
    states = file_states(root / ".cache" / "simulations")
    return {name: state for name, state in states.items() if name.endswith(".json")}


def test_the_official_file_of_each_letter_and_the_outcome_of_each_trial(root):
    outcomes = run(root)
    figures = ((1, 1.0, 2, 0), (2, 0.5, 2, 1), (10, 0.0, 0, 0))
    levels = [
        {
            "tag": f"{TEAM}/levels/A/{TEAM}_A_{number}.xml",
            "score": score,
            "startingObjects": all_,
            "movingObjects": moving,
        }
        for number, score, all_, moving in figures
    ]
    assert stability_of(root, "A") == {"dataCount": 3, "rate": 0.5, "raws": levels}
    for letter in "BC":
        assert stability_of(root, letter) == {"dataCount": 0, "rate": 0.0, "raws": []}
    assert sorted(outcomes) == sorted(Trial(letter, number) for letter in "ABC" for number in range(1, 11))
    assert outcomes[Trial("B", 1)] == failed(Trial("B", 1), "generate", "took 501 s")
    assert outcomes[Trial("B", 2)].failed_stage == "simulate"
    assert "XML" in outcomes[Trial("B", 2)].reason
    assert outcomes[Trial("B", 10)] == failed(Trial("B", 10), "extract", NO_CODE)
    assert outcomes[Trial("C", 1)] == failed(Trial("C", 1), "extract", f"{TEAM}_C_1.txt is missing")
    assert [outcomes[Trial("A", number)].reason for number in (1, 2, 10)] == [None] * 3


def test_pictures_the_end_of_each_level_and_replays_of_those_in_which_something_moved(root):
    run(root)
    pictures = sorted((root / DATA / "images").rglob("*.png"))
    names = [f"data/images/m/{TEAM}/A/{TEAM}_A_{number}.png" for number in (1, 10, 2)]
    assert [path.relative_to(root).as_posix() for path in pictures] == names
    assert all(Image.open(path).size == (1024, 1024) for path in pictures)
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
    before, kept = outputs(root), simulations(root)
    assert len(kept) == len(LEVELS)
    for name in OUTPUTS:
        shutil.rmtree(root / DATA / name)
    run(root)
    assert (outputs(root), simulations(root)) == (before, kept)
    pictures, others = list((root / ".cache").rglob("*.png")), [root / ".cache/simulations" / name for name in kept]
    pictures[0].unlink()  # without it, a simulation is made again, and so is a damaged one
    others[0].write_text("{")
    run(root)
    assert outputs(root) == before
    shutil.rmtree(root / ".cache")
    run(root, processes=2)
    assert outputs(root) == before
    params = small_params("AB", 2, teams=(TEAM, "twin"), models=("m", "n"))
    for team in params.teams:
        for model in params.models:
            put(root, dict.fromkeys((FIRST, SECOND, Trial("B", 1)), "<Level>"), team, model)
    put(root, {Trial("B", 2): SHAKY})
    run(root, params)
    assert len(simulations(root)) == len(LEVELS) + 1
    assert len([name for name in outputs(root)["images"] if name.endswith(".png")]) == 1


def test_other_physics_packages_or_code_share_nothing(root, monkeypatch):
    run(root)
    run(root, PARAMS.model_copy(update={"physics": PhysicsParams(life=1e-3)}))
    assert stability_of(root, "A")["raws"][0]["score"] == 0
    assert len(simulations(root)) == 2 * len(LEVELS)
    with monkeypatch.context() as patched:
        patched.setattr(stage, "installed_versions", lambda *_: {"numpy": "0.1"})
        run(root)
    assert len(simulations(root)) == 3 * len(LEVELS)
    monkeypatch.setattr(stage, "source_sha256", lambda *packages: f"other code of {packages}")
    run(root)
    assert len(simulations(root)) == 4 * len(LEVELS)


def simulate_or_die(levels, physics):
    """Stands for an engine that tears its process down on one of the levels."""
    if SHAKY.encode() in levels:
        os.abort()
    return ORIGINAL(levels, physics)


ORIGINAL = stage._simulate


@pytest.mark.parametrize("processes", [1, None])
def test_a_crashing_engine_costs_one_level_only(root, monkeypatch, processes):
    monkeypatch.setattr(stage, "_simulate", simulate_or_die)
    outcomes = run(root, processes=processes)
    assert outcomes[SECOND] == failed(SECOND, "simulate", "the physics engine crashed on this level")
    assert [outcomes[Trial("A", number)].reason for number in (1, 10)] == [None, None]
    picture = Image.open(trial_file(root / stage_dir("images", "m", TEAM), "images", TEAM, FIRST))
    assert np.asarray(picture.convert("L")).min() == 0
