"""Where a run stands, before it, while it goes on and after it; the run notices nothing of being looked at."""

import json
import os
import shutil
import threading
import time

import pytest
from competition_folder import PROMPT, STAGE, competition_folder
from evaluated_round import PARAMS
from slow_ollama import SlowOllama
from waiting import wait_until

from pcgeval.cli.main import main
from pcgeval.core.layout import CALLS, SUBMISSIONS, Trial, generation_lock, stage_dir
from pcgeval.core.params import load_params, parse_params
from pcgeval.core.trials import record_path
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.protocol import ChatReply
from pcgeval.report.status import run_status

ASKED = {name: model.model_dump(mode="json") | {"backend": "ollama"} for name, model in PARAMS.models.items()}
LIVE = parse_params(PARAMS.model_dump(mode="json") | {"models": ASKED}, "params.yaml")
RAW = stage_dir("raw", "large", "builders")


@pytest.fixture(autouse=True)
def in_workspace(workspace, monkeypatch):
    monkeypatch.chdir(workspace)


def row(status, model, team):
    return next(line for line in status.teams if (line.model, line.team) == (model, team))


def logged(model, team, *seconds, key="k"):
    replies = enumerate(ChatReply("x", 1, 1, "stop", duration) for duration in seconds)
    trial = {"model": model, "team": team, "letter": "I"}
    return [LoggedCall(key=f"{key}{number}", reply=reply, trial=number, **trial) for number, reply in replies]


def test_before_a_run_the_time_is_estimated_by_earlier_calls(workspace):
    for folder in ("raw", "stability", "similarity", "diversity"):
        shutil.rmtree(f"data/{folder}")
    (workspace / SUBMISSIONS / "cheats" / "prompt.txt").unlink()
    write_recording(CALLS / "a.jsonl", logged("small:1b", "zero-shot", 2.0, 4.0))
    with (CALLS / "a.jsonl").open("a") as file:
        file.write('{"key": "torn')
    status = run_status(LIVE)
    assert row(status, "small", "zero-shot").seconds_left == 4 * 3.0
    assert row(status, "small", "builders").seconds_left == 4 * 3.0  # a prompt asks once, and the model takes 3 s
    assert row(status, "large", "builders").seconds_left is None
    assert "cheats" in status.unknown
    assert status.seconds_left == 24.0
    assert {team.state for team in status.teams} == {"to do"}
    assert any("cheats" in note for note in status.notes)
    twins = run_status(LIVE.model_copy(update={"models": dict.fromkeys(("small", "twin"), LIVE.models["small"])}))
    assert row(twins, "small", "zero-shot").seconds_left == row(twins, "twin", "zero-shot").seconds_left == 4 * 3.0
    several = [call for number in "abc" for call in logged("small:1b", "builders", 1.0, 1.0, key=number)]
    write_recording(workspace / "data/recordings/small/builders/calls.jsonl", several)  # two trials of three calls
    assert row(run_status(LIVE), "small", "builders").seconds_left == 4 * 3.0
    at_once = LIVE.models["small"].model_copy(update={"concurrency": 2})
    status = run_status(LIVE.model_copy(update={"models": LIVE.models | {"small": at_once}}))
    assert row(status, "small", "builders").seconds_left == 6.0


def hold_lock(model, holder, since=None):
    """Let the lock of a model name a process that works since a time."""
    lock = generation_lock(model)
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(f"{holder}\n")
    if since is not None:
        os.utime(lock, (since, since))


def age(folder, written):
    """Let all records below a folder be written at a time."""
    for path in folder.rglob("*.json"):
        os.utime(path, (written, written))


def test_during_a_run_what_is_half_written_is_passed_over():
    now = time.time()
    age(RAW.parent, now - 1000)
    (RAW / "I" / "builders_I_1.json").write_text('{"finger')
    (RAW / "I" / "builders_I_2.json").unlink()
    (RAW / "I" / ".builders_I_2.json.part").write_text("{")
    os.utime(RAW / "T" / "builders_T_1.json", (now - 30, now - 30))
    shutil.rmtree(stage_dir("similarity", "large", "builders"))
    hold_lock("large", 1, now - 60)  # the process of the machine that began before any other
    status = run_status(LIVE, now)
    running = row(status, "large", "builders")
    assert (running.state, running.done) == ("running", 2)
    assert running.per_minute == pytest.approx(1)
    assert running.seconds_left == pytest.approx(120)
    assert row(status, "large", "cheats").state == "evaluated"
    assert not status.done
    hold_lock("large", 999999999)  # killed
    assert row(run_status(LIVE, now), "large", "builders").state == "stopped"


def test_teams_that_take_turns_share_the_speed_of_their_model_and_models_share_the_time():
    now = time.time()
    age(RAW.parent, now - 1000)
    for team in ("builders", "zero-shot"):
        raw = stage_dir("raw", "large", team)
        shutil.rmtree(raw / "T")
        os.utime(raw / "I" / f"{team}_I_1.json", (now - 30, now - 30))
    hold_lock("large", 1, now - 60)
    status = run_status(LIVE, now)  # each team has two trials left, and the model does two a minute
    for team in ("builders", "zero-shot"):
        assert row(status, "large", team).per_minute == pytest.approx(1)
        assert row(status, "large", team).seconds_left == pytest.approx(60)
    assert status.seconds_left == pytest.approx(120)
    generation_lock("large").unlink()
    shutil.rmtree(RAW)
    shutil.rmtree(stage_dir("raw", "small", "builders"))
    for model, seconds in (("small", 2.0), ("large", 5.0)):
        write_recording(CALLS / f"{model}.jsonl", logged(LIVE.models[model].name, "builders", seconds))
    other = row(run_status(LIVE), "large", "zero-shot").seconds_left
    assert run_status(LIVE).seconds_left == 4 * 2.0 + 4 * 5.0 + other
    for model in LIVE.models:
        hold_lock(model, os.getpid())
    assert run_status(LIVE).seconds_left == 4 * 5.0 + other


def test_trials_that_the_next_run_does_again_are_still_to_be_done(workspace):
    path = record_path(stage_dir("raw", "small", "builders"), "builders", Trial("I", 2))
    before = path.read_text()
    path.write_text(json.dumps(json.loads(before) | {"reason": "HTTP 500: CUDA out of memory", "cause": "server"}))
    status = run_status(LIVE)
    failed = row(status, "small", "builders")
    assert (failed.done, failed.repeated, failed.failed, failed.state) == (3, 1, 1, "stopped")  # T 2 took too long
    assert failed.seconds_left
    assert "1 to do again" in status.summary
    assert any("small, builders: " in note and "CUDA out of memory" in note for note in status.notes)
    path.write_text(before)
    (workspace / SUBMISSIONS / "builders" / "prompt.txt").write_text("Another <OBJECT>, please.")
    status = run_status(LIVE)
    assert (row(status, "small", "builders").done, row(status, "small", "cheats").done) == (0, 4)
    assert status.total("repeated") == 8
    assert sum("another submission" in note for note in status.notes) == 2
    seconds = LIVE.model_copy(update={"limits": LIVE.limits.model_copy(update={"seconds": 60})})
    assert {(team.done, team.repeated) for team in run_status(seconds).teams} == {(0, 4)}


def test_the_command_prints_a_table_or_json_and_watches_until_all_is_evaluated(capsys, tmp_path, monkeypatch):
    assert main(["status", "--watch"]) == 0  # all is done, so it ends
    assert "24 of 24 trials are done" in capsys.readouterr().out
    away, measured = tmp_path / "away", stage_dir("diversity", "large", "builders")
    shutil.move(measured, away)
    timer = threading.Timer(0.5, shutil.move, (away, measured))
    timer.start()
    monkeypatch.setattr("pcgeval.cli.status.WATCH_SECONDS", 0.2)
    assert main(["status", "--watch", "--json"]) == 0
    timer.join()
    first, *_, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert not first["done"]
    assert (last["done"], last["trials_done"], last["trials"], last["seconds_left"]) == (True, 24, 24, 0)
    assert [team["state"] for team in last["teams"]] == ["evaluated"] * 6


def test_a_running_stage_is_seen_and_not_disturbed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SlowOllama(0.1) as server:
        competition = competition_folder(tmp_path, server.address, PROMPT, letters="ABCD", trials=4)
        process = competition.command(*STAGE)
        seen = []

        def has_ended() -> bool:
            seen.extend(run_status(load_params()).teams)
            return process.poll() is not None

        wait_until(has_ended)
        assert process.communicate()[1]
        assert process.returncode == 0
        assert len(server.asked) == 16
    assert "running" in {team.state for team in seen}
    counts = [team.done for team in seen]
    assert counts == sorted(counts)
    assert any(0 < count < 16 for count in counts)
