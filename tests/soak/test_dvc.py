"""The real DVC runs the stages: it is ended from outside, and a model's server fails."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock
from slow_ollama import DIGEST, SlowOllama
from workspace import Workspace, make_workspace

from pcgeval.core.layout import STATE, evaluation_lock


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
    assert made.python("-m", "pcgeval", "check").returncode == 0
    return made


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_a_stage_ends_with_the_dvc_that_started_it(workspace: Workspace, server: SlowOllama, shell: str):
    server.seconds = 3
    environment = {**os.environ, "PYTHONPATH": str(workspace.folder / "src"), "SHELL": shell}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    stage = ["-m", "dvc", "repro", "--single-item", "generate@m-alpha"]
    dvc = subprocess.Popen([sys.executable, *stage], cwd=workspace.folder, env=environment, stdout=subprocess.DEVNULL)
    while server.answered < 1:
        assert dvc.poll() is None
        time.sleep(0.01)
    dvc.send_signal(signal.SIGTERM)
    dvc.wait(60)
    with FileLock(workspace.folder / evaluation_lock("m", "alpha", STATE), timeout=60):  # as soon as the stage ends
        asked = len(server.asked)
        assert asked < 4
    finished = server.answered
    server.seconds = 0
    assert workspace.repro("--single-item", "generate@m-alpha") == ["generate@m-alpha"]
    assert len(server.asked) == asked + 4 - finished


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
