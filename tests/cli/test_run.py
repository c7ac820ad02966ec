"""`pcgeval run` with the real DVC: a whole evaluation, what fails in it, and what stops it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dvc_command import with_this_python
from slow_ollama import DIGEST, SlowOllama
from waiting import wait_until
from workspace import PROMPTS, REPOSITORY, Workspace, make_workspace

from pcgeval.core.layout import RUN_LOCK, recording_file
from pcgeval.core.locks import lock_folder

pytestmark = pytest.mark.e2e
RUN = ("-m", "pcgeval", "run")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A competition that a first run evaluated; each test leaves it evaluated."""
    workspace = make_workspace(tmp_path_factory.mktemp("competition"))
    done = workspace.python(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test 1, final: 2 submissions x 2 models x 2 letters x 2 trials" in done.stderr
    assert stages_of(done)[-1] == "report"
    assert ranked_teams(done) == set(PROMPTS)
    return workspace


def stages_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the stages that DVC ran, in order."""
    return re.findall(r"Running stage '([^']+)'", done.stdout)


def ranked_teams(done: subprocess.CompletedProcess[str]) -> set[str]:
    """Return the teams of the ranking that was printed."""
    _, _, table = done.stdout.partition("rank  team")
    return {line.split()[1] for line in table.splitlines()[1:] if line.strip()}


def test_after_a_failed_stage_the_others_are_run_and_there_is_no_ranking(workspace: Workspace):
    before = (workspace.folder / "results/ranking.json").read_bytes()
    recording = workspace.folder / recording_file("large", "alpha")
    recorded = recording.read_text()
    call = json.loads(recorded.splitlines()[0])
    call["reply"]["text"] = "No code at all."
    recording.write_text("\n".join([json.dumps(call), *recorded.splitlines()[1:], ""]))
    models = workspace.params()["models"]
    workspace.change_params("models", small=models["small"] | {"digest": "d" * 64})  # of which nothing was recorded
    failed = workspace.python(*RUN)
    assert failed.returncode == 1
    assert stages_of(failed) == ["generate@small", "generate@large"]
    assert ranked_teams(failed) == set()
    assert "data/recordings/small/alpha/calls.jsonl: no reply of small:1b (dddddddddddd) is recorded" in failed.stderr
    assert "The evaluation is not complete" in failed.stderr
    assert (workspace.folder / "results/ranking.json").read_bytes() == before
    assert workspace.run_and_fail("-m", "pcgeval", "ranking")[0] == 1  # it is not that of what is here
    workspace.change("models", models)
    recording.write_text(recorded)
    again = workspace.python(*RUN)
    assert again.returncode == 0, again.stdout + again.stderr
    assert (workspace.folder / "results/ranking.json").read_bytes() == before


def test_what_the_checks_or_dvc_refuse_is_said_and_two_runs_exclude_each_other(workspace: Workspace):
    workspace.change("teams", [*PROMPTS, "gamma"])
    refused = workspace.python(*RUN)
    workspace.change("teams", [*PROMPTS])
    assert refused.returncode == 2
    assert "data/submissions/gamma" in refused.stderr
    assert not refused.stdout
    file = workspace.folder / "dvc.yaml"
    before = file.read_text()
    file.write_text("stages: {a: {cmd: b, depz: []}}\n")
    refused = workspace.python(*RUN)
    file.write_text(before)
    assert refused.returncode == 1
    assert "dvc.yaml" in refused.stderr
    assert "The evaluation is not complete" in refused.stderr
    assert "Traceback" not in refused.stderr
    with lock_folder(workspace.folder, workspace.folder / RUN_LOCK):
        refused = workspace.python(*RUN)
    assert refused.returncode == 2
    assert f"{workspace.folder}: process {os.getpid()} is working on it." in refused.stderr


def test_only_the_code_runs_that_the_results_are_hashed_with(workspace: Workspace):
    module = workspace.folder / "src/pcgeval/levels/grid.py"
    before = module.read_text()
    module.write_text(f"{before}\nraise RuntimeError\n")
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), "PATH": with_this_python()}
    forced = ("-m", "dvc", "repro", "--force", "--single-item", "extract")
    options: dict[str, Any] = {"cwd": workspace.folder, "env": environment, "capture_output": True, "text": True}
    refused = [subprocess.run([sys.executable, *words], check=False, **options) for words in (RUN, forced)]
    accepted = workspace.dvc("repro", "--single-item", "extract")
    module.write_text(before)
    for done in refused:
        assert re.search(rf"error: {REPOSITORY}/src/pcgeval: .*{workspace.folder}.*make setup", done.stderr)
        assert "Traceback" not in done.stderr
    assert refused[0].returncode == 2
    assert refused[1].returncode != 0
    assert accepted.returncode != 0  # by the RuntimeError
    assert workspace.repro() == []


@pytest.mark.parametrize(
    ("how", "whole_group"),
    [pytest.param(signal.SIGINT, True, id="Ctrl-C"), pytest.param(signal.SIGTERM, False, id="SIGTERM")],
)
def test_a_run_that_is_stopped_goes_on_with_the_next_one(tmp_path: Path, how: signal.Signals, whole_group: bool):
    workspace = make_workspace(tmp_path)
    with SlowOllama(0.002) as server:
        model = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address}
        workspace.change("models", {"m": model})
        server.status = lambda _: 200 if server.answered < 3 else 0  # the fourth request gets no answer
        run = subprocess.Popen(
            ["nohup", sys.executable, *RUN],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PATH": with_this_python()},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            text=True,
        )
        wait_until(lambda: len(server.asked) > 3, run)
        run.send_signal(signal.SIGHUP)  # which nohup has it ignore
        time.sleep(0.2)
        assert run.poll() is None
        (os.killpg if whole_group else os.kill)(run.pid, how)
        _, errors = run.communicate(timeout=120)
        assert run.returncode == 130
        assert errors.splitlines()[-1].startswith("stopped; what was finished is kept")
        assert errors.count("stopped") == 1
        assert "Traceback" not in errors
        assert not (tmp_path / "results").exists()
        asked = len(server.asked)
        server.status = lambda _: 200
        again = workspace.python(*RUN)
        assert again.returncode == 0, again.stdout + again.stderr
        assert len(server.asked) == asked + 8 - 3
        assert ranked_teams(again) == set(PROMPTS)
