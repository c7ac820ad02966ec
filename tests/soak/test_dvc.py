"""The real DVC runs the stages: it is ended from outside, and a model's server fails."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dvc_command import with_this_python
from filelock import FileLock
from slow_ollama import DIGEST, SlowOllama
from soak import SOAK, soak_only
from workspace import Workspace, make_workspace

from pcgeval.cli.main import main
from pcgeval.core.layout import STATE, evaluation_lock, recording_file


@pytest.fixture
def server():
    with SlowOllama(0.002) as served:
        yield served


@pytest.fixture
def workspace(tmp_path: Path, server: SlowOllama) -> Workspace:
    """A competition with one model, which is asked."""
    made = make_workspace(tmp_path)
    made.change_params(
        "models", value={"m": {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address}}
    )
    made.change_params("limits", "seconds", value=20)
    make_recording_folders(made, "alpha", "beta")
    return made


def make_recording_folders(workspace: Workspace, *teams: str) -> None:
    """Make what `pcgeval check` makes for a model that is asked."""
    for team in teams:
        (workspace.folder / recording_file("m", team)).parent.mkdir(parents=True)


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"] if SOAK else ["/bin/sh"])
def test_a_stage_ends_with_the_dvc_that_started_it(workspace: Workspace, server: SlowOllama, shell: str):
    server.seconds = 1
    environment = {**os.environ, "PYTHONPATH": str(workspace.folder / "src"), "PATH": with_this_python()}
    stage = ["-m", "dvc", "repro", "--single-item", "generate@m-alpha"]
    dvc = subprocess.Popen(
        [sys.executable, *stage], cwd=workspace.folder, env={**environment, "SHELL": shell}, stdout=subprocess.DEVNULL
    )
    while server.answered < 1:
        assert dvc.poll() is None
        time.sleep(0.01)
    server.seconds = 60  # so that no other call ends before the stage does, however busy the machine is
    dvc.send_signal(signal.SIGTERM)
    dvc.wait(60)
    with FileLock(workspace.folder / evaluation_lock("m", "alpha", STATE), timeout=60):  # as soon as the stage ends
        asked = len(server.asked)
        assert asked < 4
    finished = server.answered
    server.seconds = 0
    assert workspace.repro("--single-item", "generate@m-alpha") == ["generate@m-alpha"]
    assert len(server.asked) == asked + 4 - finished


@soak_only  # the short form is tests/end_to_end/test_failing_teams.py
def test_one_failed_stage_leaves_the_others_but_no_ranking(workspace: Workspace, server: SlowOllama):
    workspace.change_params("limits", "seconds", value=1.5)
    workspace.change_params("limits", "call_seconds", value=0)
    server.status = lambda text: 500 if "Stack blocks" in text else 200  # the prompt of beta
    done = workspace.dvc("repro", "--keep-going", "rank")
    assert done.returncode != 0
    assert "diversity@m-alpha" in done.stdout
    assert not (workspace.folder / "results" / "ranking.json").exists()
    server.status = lambda _: 200
    server.asked.clear()
    assert "rank" in workspace.repro("rank")
    assert len(server.asked) == 4
    assert (workspace.folder / "results" / "ranking.json").exists()


def test_a_run_that_is_killed_again_and_again_loses_nothing(workspace: Workspace, server: SlowOllama):
    teams = [f"team{number}" for number in range(15 if SOAK else 2)]
    kills = 5 if SOAK else 1
    alpha = workspace.folder / "data" / "submissions" / "alpha"
    for number, team in enumerate(teams):
        shutil.copytree(alpha, alpha.with_name(team))
        (alpha.with_name(team) / "prompt.txt").write_text(f"Build the letter <OBJECT> in way {number}.")
    workspace.change_params("scoring", "baseline", value=None)
    workspace.change_params("teams", value=teams)
    workspace.change_params("similarity", value={"model": "data/none"})  # which `pcgeval check` need not load
    make_recording_folders(workspace, *teams)
    calls = 4 * len(teams)
    server.seconds = 0.3
    draw = random.Random(6280)
    for kill in range(1, kills + 1):
        run = subprocess.Popen(
            [sys.executable, "-m", "dvc", "repro", "generate"],
            cwd=workspace.folder,
            env={**os.environ, "PYTHONPATH": str(workspace.folder / "src"), "PATH": with_this_python()},
            start_new_session=True,
            stdout=subprocess.DEVNULL,
        )
        while server.answered < kill * calls // (kills + 1):
            assert run.poll() is None
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 0.6))
        os.killpg(run.pid, signal.SIGKILL)
        run.wait(60)
        checked = workspace.pcgeval("check", "--json")  # DVC may have been writing dvc.lock
        assert [each["group"] for each in json.loads(checked.stdout)["findings"]] == ["classifier"]
    server.seconds = 0
    workspace.repro("generate")
    assert len(set(server.asked)) == calls
    assert len(server.asked) <= calls + kills  # at most the call that was under way is asked again
    responses = {path: path.read_bytes() for path in workspace.folder.glob("data/raw/m/*/*/*.txt")}
    assert len(responses) == calls
    shutil.rmtree(workspace.folder / "data" / "raw")
    workspace.repro("generate")
    assert {path: path.read_bytes() for path in responses} == responses
    assert len(server.asked) <= calls + kills


def test_a_lock_file_that_a_killed_dvc_left_half_written_is_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    workspace = make_workspace(tmp_path)
    workspace.change_params("teams", value=["alpha"])
    workspace.repro("generate")
    monkeypatch.chdir(tmp_path)
    lock = workspace.folder / "dvc.lock"
    whole = lock.read_bytes()
    for kept in (0, 40, len(whole) // 2, len(whole) - 9) if SOAK else (0, len(whole) // 2):
        lock.write_bytes(whole[:kept])
        assert main(["check"]) == 0
        assert "dvc.lock" in capsys.readouterr().err
    rwlock = workspace.folder / ".dvc" / "tmp" / "rwlock"
    rwlock.write_text('{"read')
    assert main(["check"]) == 0
    assert "rwlock" in capsys.readouterr().err
    assert len(workspace.repro("generate")) == 1  # the stage whose end was being written
    assert lock.read_bytes() == whole


def test_a_retry_makes_dvc_run_the_stage_again(workspace: Workspace, server: SlowOllama):
    stage = ("--single-item", "generate@m-alpha")
    server.status = lambda text: 400 if text == "Build the letter T." else 200
    assert workspace.repro(*stage) == ["generate@m-alpha"]
    assert workspace.repro(*stage) == []
    assert workspace.pcgeval("retry", "alpha", "--reason", "refused").returncode == 0
    server.status = lambda _: 200
    server.asked.clear()
    assert workspace.repro(*stage) == ["generate@m-alpha"]
    assert len(server.asked) == 2


def test_the_teams_are_asked_in_turn_and_no_stage_asks_again(workspace: Workspace, server: SlowOllama):
    asked = []
    server.status = lambda text: asked.append(text) or 200
    workspace.change_params("competition", "trials", value=2)
    done = workspace.pcgeval("generate")
    assert done.returncode == 0, done.stderr
    teams = ["alpha" if text.startswith("Build") else "beta" for text in asked]
    assert teams == ["alpha", "alpha", "beta", "beta"] * 2  # two trials of each letter
    assert len(workspace.repro("generate")) == 2
    assert len(asked) == 8


def test_a_server_that_fails_ends_the_turns_of_its_model_alone(workspace: Workspace, server: SlowOllama):
    server.status = lambda _: 500
    workspace.change_params("limits", "seconds", value=0.5)
    workspace.change_params("limits", "call_seconds", value=0.5)
    done = workspace.pcgeval("generate")
    assert done.returncode == 2
    assert "CUDA out of memory" in done.stderr
    assert "Traceback" not in done.stderr
    server.status = lambda _: 200
    assert workspace.pcgeval("generate").returncode == 0
    assert workspace.pcgeval("generate", "--model", "none").returncode == 2
