"""The real DVC runs the stages: it is ended from outside at any moment, and a model's server fails."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from filelock import FileLock
from model_servers import DIGEST, SlowOllama, wait_until
from this_machine import SOAK
from workspace import Workspace, make_workspace, with_this_python

from pcgeval.formats.layout import GENERATION_LOCK
from pcgeval.llm.blame import TEXT
from pcgeval.proof.parts import OUTPUTS

STAGE = ("--single-item", "generate")
CALLS = 8  # two teams, two letters, two trials


def start_repro(workspace: Workspace, *arguments: str, shell: str = "/bin/sh") -> subprocess.Popen[str]:
    """Start `dvc repro` as the leader of a process group."""
    environment = {"PYTHONPATH": str(workspace.folder / "src"), "PATH": with_this_python(), "SHELL": shell}
    return workspace.command("-m", "dvc", "repro", *arguments, **environment)


def kill_group(workspace: Workspace, run: subprocess.Popen[str]) -> None:
    """Kill DVC and its stage; remove what `pcgeval check` says that DVC left half-written."""
    os.killpg(run.pid, signal.SIGKILL)
    run.communicate(timeout=60)
    for finding in json.loads(workspace.python("-m", "pcgeval", "check", "--json").stdout)["findings"]:
        if finding["group"] == "dvc":
            (workspace.folder / finding["text"].partition(":")[0]).unlink()


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"] if SOAK else ["/bin/sh"])
def test_a_stage_ends_with_the_dvc_that_started_it(tmp_path: Path, shell: str):
    workspace = make_workspace(tmp_path)
    # only the neutral call and the first of a trial get an answer
    with SlowOllama(0, status=lambda text: 200 if text == TEXT or len(server.asked) == 1 else 0) as server:
        model = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address}
        workspace.change("models", {"m": model})
        dvc = start_repro(workspace, *STAGE, shell=shell)
        wait_until(lambda: len(server.asked) == 2, dvc)
        dvc.send_signal(signal.SIGTERM)
        dvc.wait(60)
        with FileLock(workspace.folder / GENERATION_LOCK, timeout=60):  # as soon as the stage ends
            asked = len(server.asked)
        server.status = lambda _: 200
        assert workspace.repro(*STAGE) == ["generate"]
        assert len(server.asked) == asked + CALLS - 1


MOMENTS = ["data/levels", "data/images", "data/similarity"]
if SOAK:
    MOMENTS = [output for outputs in OUTPUTS.values() for output in outputs]


def has_come(moment: Path) -> bool:
    """Tell whether a stage has written its first file."""
    return any(path.is_file() for path in (moment, *moment.rglob("*")))


def test_a_run_that_is_killed_in_any_stage_ends_with_the_same_bytes(tmp_path: Path):
    whole, killed = make_workspace(tmp_path / "whole"), make_workspace(tmp_path / "killed")
    until = [] if SOAK else ["diversity"]
    whole.repro(*until)
    draw = random.Random(6280)
    for moment in [name for name in MOMENTS if has_come(whole.folder / name)]:
        run = start_repro(killed, *until)
        wait_until(lambda moment=moment: has_come(killed.folder / moment), run)
        time.sleep(draw.uniform(0, 0.4))
        kill_group(killed, run)
    ran = killed.repro(*until)
    assert "generate" not in ran
    assert killed.outputs() == whole.outputs()
    assert killed.repro(*until) == []


def test_a_file_that_a_killed_dvc_left_half_written_is_named_and_may_be_removed(tmp_path: Path):
    workspace = make_workspace(tmp_path)
    workspace.repro("extract")
    whole = workspace.outputs()
    for name in ("dvc.lock", ".dvc/tmp/rwlock"):
        file = tmp_path / name
        content = file.read_bytes()
        for kept in range(0, len(content), 1 + len(content) // (200 if SOAK else 8)):
            file.write_bytes(content[:kept])
            code, printed = workspace.run_and_fail("-m", "pcgeval", "check")
            if code == 0:  # a list that ends early: DVC can read it
                assert workspace.dvc("repro", "--dry", "extract").returncode == 0
            else:
                assert f"error: {name}: DVC was killed while it wrote this. Remove it" in printed
        file.unlink()
        workspace.repro("extract")
        assert workspace.outputs() == whole
