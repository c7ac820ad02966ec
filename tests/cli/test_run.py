"""`pcgeval run` with the real DVC: a whole evaluation, what fails in it, and what stops it."""

import os
import re
import signal
import subprocess
import sys
import time
from subprocess import DEVNULL, PIPE

import pytest
from model_servers import DIGEST, SlowOllama, wait_until
from workspace import PROMPTS, REPOSITORY, make_workspace, with_this_python

from pcgeval.core.locks import lock_folder
from pcgeval.formats.layout import RUN_LOCK, recording_file
from pcgeval.llm.blame import TEXT

pytestmark = pytest.mark.e2e
RUN = ("-m", "pcgeval", "run")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A competition that a first run evaluated; each test leaves it evaluated."""
    workspace = make_workspace(tmp_path_factory.mktemp("competition"))
    done = workspace.python(*RUN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test 1, final: 2 submissions x 2 models x 2 letters x 2 trials" in done.stderr
    assert stages_of(done)[-1] == "report"
    assert ranked_teams(done.stdout) == set(PROMPTS)
    return workspace


def environment(source):
    return {**os.environ, "PYTHONPATH": str(source), "PATH": with_this_python()}


def stages_of(done):
    return re.findall(r"Running stage '([^']+)'", done.stdout)


def ranked_teams(printed):
    _, _, table = printed.partition("rank  team")
    return {line.split()[1] for line in table.splitlines()[1:] if line.strip()}


def test_after_a_failed_stage_the_others_are_run_and_there_is_no_ranking(workspace):
    ranking = workspace.folder / "results/ranking.json"
    before = ranking.read_bytes()
    models = workspace.params()["models"]
    workspace.change_params("models", small=models["small"] | {"digest": "d" * 64})  # of which nothing was recorded
    recording = workspace.folder / recording_file("large", "alpha")
    recorded = recording.read_text()
    recording.write_text(recorded + recorded)  # another file with the same replies
    failed = workspace.python(*RUN)
    assert failed.returncode == 1
    assert stages_of(failed) == ["generate"]
    assert ranked_teams(failed.stdout) == set()
    assert "data/recordings/small/alpha/calls.jsonl: no reply of small:1b (dddddddddddd) is recorded" in failed.stderr
    assert "The evaluation is not complete" in failed.stderr
    assert ranking.read_bytes() == before
    assert workspace.run_and_fail("-m", "pcgeval", "ranking")[0] == 1  # it is not that of what is here
    workspace.change("models", models)
    recording.write_text(recorded)
    again = workspace.python(*RUN)
    assert again.returncode == 0, again.stdout + again.stderr
    assert ranking.read_bytes() == before


def test_what_the_checks_refuse_is_said_and_two_runs_exclude_each_other(workspace):
    teams = workspace.params()["teams"]
    workspace.change("teams", {**teams, "gamma": None})
    refused = workspace.python(*RUN)
    workspace.change("teams", teams)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "data/submissions/gamma" in refused.stderr
    with lock_folder(workspace.folder, workspace.folder / RUN_LOCK):
        refused = workspace.python(*RUN)
    assert refused.returncode == 2
    assert f"{workspace.folder}: process {os.getpid()} is working on it." in refused.stderr


def test_only_the_code_runs_that_the_results_are_hashed_with(workspace):
    module = workspace.folder / "src/pcgeval/levels/conversion.py"
    before = module.read_text()
    module.write_text(f"{before}\nraise RuntimeError\n")
    options = {"cwd": workspace.folder, "env": environment(REPOSITORY / "src"), "stderr": PIPE, "text": True}
    for words in (RUN, ("-m", "dvc", "repro", "--force", "--single-item", "extract")):
        refused = subprocess.run([sys.executable, *words], check=False, **options)
        assert refused.returncode != 0
        assert re.search(rf"error: {REPOSITORY}/src/pcgeval: .*{workspace.folder}.*make setup", refused.stderr)
        assert "Traceback" not in refused.stderr
    assert workspace.dvc("repro", "--single-item", "extract").returncode != 0  # by the RuntimeError
    module.write_text(before)
    assert workspace.repro() == []


@pytest.mark.parametrize(
    ("stop", "how"), [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM)], ids=["Ctrl-C", "SIGTERM"]
)
def test_a_run_that_is_stopped_goes_on_with_the_next_one(tmp_path, stop, how):
    workspace = make_workspace(tmp_path)
    with SlowOllama(0.002) as server:
        model = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": server.address}
        workspace.change("models", {"m": model})
        server.status = lambda text: 200 if text == TEXT or len(server.asked) <= 3 else 0  # the fourth gets no answer
        options = {"cwd": tmp_path, "env": environment(tmp_path / "src"), "start_new_session": True, "text": True}
        pipes = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE}
        run = subprocess.Popen(["nohup", sys.executable, *RUN], **options, **pipes)
        wait_until(lambda: len(server.asked) > 3, run)
        run.send_signal(signal.SIGHUP)  # which nohup has it ignore
        time.sleep(0.2)
        assert run.poll() is None
        stop(run.pid, how)
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
        assert ranked_teams(again.stdout) == set(PROMPTS)
