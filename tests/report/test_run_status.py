"""Where a run stands, before it, while it goes on and after it; the run notices nothing of being looked at."""

import json
import shutil
from itertools import product
from pathlib import Path

import pytest
import yaml
from evaluated_round import PARAMS

from pcgeval.cli.main import main
from pcgeval.cli.status import run_status
from pcgeval.core.files import write_json
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import CALLS, DVC_LOCK, GENERATION_LOCK, SUBMISSIONS, Trial, stage_dir
from pcgeval.formats.params import parse_params
from pcgeval.formats.trials import record_path
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.protocol import ChatReply

ASKED = {name: model.model_dump(mode="json") | {"backend": "ollama"} for name, model in PARAMS.models.items()}
LIVE = parse_params(PARAMS.model_dump(mode="json") | {"models": ASKED}, "params.yaml")
RAW = stage_dir("raw", "large", "builders")
pytestmark = pytest.mark.usefixtures("workspace")


def row(status, model, team):
    return next(line for line in status.teams if (line.model, line.team) == (model, team))


def record_calls(path, team, *seconds):
    """Write answered calls to the small model, one in each of two trials and of each duration."""
    calls = []
    for trial, duration in product((1, 2), seconds):
        reply, key = ChatReply("x", 1, 1, "stop", duration), f"{trial} {duration}"
        calls.append(LoggedCall(key=key, reply=reply, model="small:1b", team=team, letter="I", trial=trial))
    write_recording(path, calls)


def test_before_a_run_the_time_is_estimated_by_earlier_calls(workspace):
    for folder in ("raw", "stability", "similarity", "diversity"):
        shutil.rmtree(f"data/{folder}")
    (workspace / SUBMISSIONS / "cheats" / "prompt.txt").unlink()
    record_calls(CALLS / "a.jsonl", "zero-shot", 1.0, 2.0)
    with (CALLS / "a.jsonl").open("a") as file:
        file.write('{"key": "torn')
    status = run_status(LIVE)
    assert row(status, "small", "zero-shot").seconds_left == 4 * 3.0
    assert row(status, "small", "builders").seconds_left == 4 * 3.0  # as the model's trials of other teams
    assert row(status, "large", "builders").seconds_left is None
    assert (status.seconds_left, status.unknown) == (3 * 4 * 3.0, ["builders", "cheats", "zero-shot"])
    assert {team.state for team in status.teams} == {"to do"}
    assert any("cheats" in note for note in status.notes)
    record_calls(workspace / "data/recordings/small/builders/calls.jsonl", "builders", 4.5)
    at_once = LIVE.models["small"].model_copy(update={"concurrency": 2})
    status = run_status(LIVE.model_copy(update={"models": LIVE.models | {"small": at_once}}))
    assert row(status, "small", "builders").seconds_left == 4 * 2.25


def test_the_models_of_one_server_take_their_time_one_after_the_other():
    shutil.rmtree("data/raw")
    record_calls(CALLS / "a.jsonl", "zero-shot", 1.0)
    of_same_name = {key: model.model_copy(update={"name": "library/Small:1b"}) for key, model in LIVE.models.items()}
    params = LIVE.model_copy(update={"models": of_same_name})
    assert run_status(params).seconds_left == 2 * 3 * 4 * 1.0
    of_same_name["large"] = of_same_name["large"].model_copy(update={"host": "another"})
    assert run_status(params).seconds_left == 3 * 4 * 1.0


def test_during_a_run_what_is_half_written_is_passed_over():
    (RAW / "I" / "builders_I_1.json").write_text('{"finger')
    (RAW / "I" / "builders_I_2.json").unlink()
    (RAW / "I" / ".builders_I_2.json.part").write_text("{")
    shutil.rmtree(stage_dir("similarity", "large", "builders"))
    GENERATION_LOCK.parent.mkdir(parents=True, exist_ok=True)
    for holder, state in ((1, "running"), (999999999, "stopped")):  # the first process of the machine, a killed one
        GENERATION_LOCK.write_text(f"{holder}\n")
        status = run_status(LIVE)
        running = row(status, "large", "builders")
        assert (running.state, running.done) == (state, 2)
        assert running.seconds_left == pytest.approx(2 * 0.1)
        assert row(status, "large", "cheats").state == "evaluated"
        assert not status.done


def test_failures_of_all_stages_count_and_trials_that_the_next_run_does_again_are_still_to_be_done(workspace):
    failed = row(run_status(LIVE), "small", "builders")
    assert (failed.done, failed.failed, failed.state) == (4, 3, "evaluated")  # too wide, no code, took too long
    path = record_path(stage_dir("raw", "small", "builders"), "builders", Trial("I", 2))
    write_json(path, read_json(path) | {"failure": {"kind": "server-failed", "sentence": "CUDA out of memory"}})
    status = run_status(LIVE)
    failed = row(status, "small", "builders")
    assert (failed.done, failed.repeated, failed.failed, failed.state) == (3, 1, 2, "stopped")
    assert failed.seconds_left
    assert "1 to do again" in status.summary
    assert any("small, builders: " in note and "CUDA out of memory" in note for note in status.notes)
    (workspace / SUBMISSIONS / "builders" / "prompt.txt").write_text("Another <OBJECT>, please.")
    status = run_status(LIVE)
    assert (row(status, "small", "builders").done, row(status, "small", "cheats").done) == (0, 4)
    assert status.total("repeated") == 8
    assert sum("another submission" in note for note in status.notes) == 2


def test_the_command_prints_a_table_or_json_and_watches_until_all_is_evaluated(capsys, tmp_path, monkeypatch):
    away, measured = tmp_path / "away", stage_dir("diversity", "large", "builders")
    monkeypatch.setattr("time.sleep", lambda _: shutil.move(away, measured))  # between the first look and the second
    assert main(["status", "--watch"]) == 0  # all is done, so it ends
    assert "24 of 24 trials are done" in capsys.readouterr().out
    shutil.move(measured, away)
    assert main(["status", "--watch", "--json"]) == 0
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert not first["done"]
    assert (last["done"], last["trials_done"], last["trials"], last["seconds_left"]) == (True, 24, 24, 0)
    assert [team["state"] for team in last["teams"]] == ["evaluated"] * 6


def test_trials_that_were_done_again_are_evaluated_once_they_are_measured_again():
    stages = yaml.safe_load((Path(__file__).parents[2] / "dvc.yaml").read_text())["stages"]

    def states(again=None):
        """Return the states after DVC ran all stages, and one of them again without those behind it."""
        lock = {}
        for name, stage in stages.items():
            deps = [{"path": path, "md5": "first"} for path in stage["deps"]]
            outs = [
                {"path": path, "md5": "second" if name == again else "first"} for out in stage["outs"] for path in out
            ]
            lock[name] = {"deps": deps, "outs": outs}
        write_json(DVC_LOCK, {"stages": lock})
        return {team.state for team in run_status(LIVE).teams}

    assert states() == {"evaluated"}
    for name in ("generate", "extract", "convert", "simulate", "classify"):
        assert states(again=name) == {"trials done"}
    for name in ("score", "rank", "grade", "report"):
        assert states(again=name) == {"evaluated"}
