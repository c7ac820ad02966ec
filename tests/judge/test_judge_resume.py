"""The real stage `grade` is killed, interrupted, run twice at once, and loses its server: nothing is paid twice."""

import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr
from pathlib import Path

import pytest
import yaml
from rubric_trees import leaf, node
from scripted_judge import DIGEST, SlowJudgeServer
from soak import SOAK
from submissions_for_tests import PARAMS, write_results
from waiting import wait_for_answers, wait_until

from pcgeval import pipeline
from pcgeval.core.console import stage_exit_code
from pcgeval.core.files import write_text
from pcgeval.core.layout import RUBRICS, grade_file, judge_recording_file, judgement_file
from pcgeval.core.params import load_params
from pcgeval.judge.stage import record_judgements

ROOT = Path(__file__).parents[2]
STAGE = ROOT / "stages" / "grade.py"
TEAM = "team-one"
AT_ONCE = 2  # calls
LEAVES = 24
MOMENTS = 12 if SOAK else 4
CHECK = {"name": "prompt_mentions", "arguments": {"text": "drop_block"}}


class Competition:
    """A folder with one team whose README and prompt are judged."""

    def __init__(self, folder: Path, address: str, **rubric):
        self.folder, self.grade_file, self.calls_file = folder, folder / grade_file(TEAM), folder / judgement_file(TEAM)
        groups = [node(f"group-{group}", 1, *[leaf(f"leaf-{group}-{n}") for n in range(4)]) for group in range(6)]
        tree = node("root", 1, leaf("checked", 1, check=CHECK), *groups)
        write_text(folder / RUBRICS / "competition" / "rubric.json", json.dumps(tree))
        write_text(folder / RUBRICS / "competition" / "task.md", "Build letters of blocks.")
        write_text(folder / "data/submissions" / TEAM / "README.md", "It is a prompt.")
        write_text(folder / "data/submissions" / TEAM / "prompt.txt", "Build <OBJECT> with drop_block.")
        write_results(folder, "small", TEAM)
        model = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": address, "concurrency": AT_ONCE}
        self.params = {
            **PARAMS.model_dump(mode="json", exclude_unset=True, exclude={"rubric", "teams", "models"}),
            "teams": [TEAM],
            "models": {"small": {"backend": "recorded", "name": "m:1", "digest": DIGEST}},
            "rubric": {"judge": "simple", "model": model, **rubric},
        }
        self.write_params()

    def write_params(self, **model):
        self.params["rubric"]["model"].update(model)
        write_text(self.folder / "params.yaml", yaml.safe_dump(self.params))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, *(arguments or (str(STAGE),))],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def grade(self) -> str:
        """Run the stage in this process, whose start takes longer; return its messages."""
        messages = io.StringIO()
        with chdir(self.folder), redirect_stderr(messages):
            assert stage_exit_code(pipeline.grade) == 0, messages.getvalue()
        return messages.getvalue()

    def output(self):
        return json.loads(self.grade_file.read_bytes())

    def timeless(self) -> str:
        """Return the grade and the exchanges but for the seconds that the server took."""
        return re.sub(r'"seconds": ?[0-9.e-]+', "", self.grade_file.read_text() + self.calls_file.read_text())


def test_killed_at_random_moments(tmp_path):
    chance = random.Random(7)
    with SlowJudgeServer() as server:
        competition, undisturbed = (Competition(tmp_path / name, server.address) for name in ("killed", "undisturbed"))
        killed = 0
        for moment in range(MOMENTS):
            enough = server.answered + chance.randint(1, 9)
            process = competition.start()
            if moment % 4 == 3:
                time.sleep(chance.uniform(0, 0.5))  # while it starts
            else:
                wait_for_answers(server, enough, process)
                time.sleep(chance.uniform(0, 0.02))
            process.kill()
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
        messages = competition.grade()
        assert killed > MOMENTS / 2
        assert len(server.asked) - len(set(server.asked)) <= killed * AT_ONCE  # only calls under way are lost
        assert f"grade team-one: {LEAVES + 1}/{LEAVES + 1}" in messages
        asked = len(server.asked)
        competition.grade()
        assert len(server.asked) == asked
        undisturbed.grade()
    assert competition.timeless() == undisturbed.timeless()
    assert competition.output()["num_invalid_leaf_nodes"] == 0
    assert competition.output()["token_usage"]["grade"]["calls"] == LEAVES


def test_a_replay_gives_the_same_bytes_without_the_server(tmp_path):
    with SlowJudgeServer(0) as server:
        competition = Competition(tmp_path, server.address)
        competition.grade()
    files = [competition.grade_file, competition.calls_file]
    before = [path.read_bytes() for path in files]
    with chdir(tmp_path):
        record_judgements(load_params())
    assert (tmp_path / judge_recording_file(TEAM)).read_bytes() == before[1]
    shutil.rmtree(tmp_path / "data/judgements")
    shutil.rmtree(tmp_path / "data/grades")
    competition.write_params(backend="recorded")
    competition.grade()
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_at_once_and_cleanly(tmp_path, how):
    with SlowJudgeServer(60) as server:
        process = Competition(tmp_path, server.address).start()
        wait_until(lambda: len(server.asked) >= AT_ONCE, process)
        process.send_signal(how)
        _, messages = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "run again" in messages
    assert len(messages.splitlines()) == 1


def test_two_gradings_of_a_submission_at_once_pay_for_each_call_once(tmp_path):
    with SlowJudgeServer(0.05) as server:
        competition = Competition(tmp_path, server.address)
        command = ("-m", "pcgeval", "grade", TEAM)
        both = [competition.start(*command), competition.start(*command)]
        outcomes = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], outcomes
    assert len(server.asked) == len(set(server.asked)) == LEAVES


def test_a_server_that_goes_away_leaves_invalid_leaves_and_the_next_run_goes_on(tmp_path):
    with SlowJudgeServer(0.01) as server:
        competition = Competition(tmp_path, server.address, call_seconds=5)  # it is not waited for any longer
        process = competition.start()
        wait_until(lambda: server.answered >= 10, process)
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 0, messages
    assert "Traceback" not in messages
    grade, before = competition.output(), competition.calls_file.read_bytes().count(b"\n")
    assert 0 < grade["num_invalid_leaf_nodes"] < LEAVES
    assert any("ended early" in warning for warning in grade["warnings"])
    with SlowJudgeServer(0) as server:
        competition.write_params(host=server.address)
        competition.grade()
        assert len(server.asked) == LEAVES - before
    assert competition.output()["num_invalid_leaf_nodes"] == 0
