"""Real gradings are killed and interrupted: nothing is paid twice."""

import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from judged_attempt import write_files, write_paper
from model_servers import SlowJudgeServer, wait_for_answers, wait_until
from rubric_trees import leaf, node
from this_machine import SOAK

AT_ONCE = 2  # calls
LEAVES = 24
MOMENTS = 12 if SOAK else 4
CHECK = {"name": "file_exists", "arguments": {"path": "README.md"}}
GROUPS = (node(f"group-{group}", 1, *[leaf(f"leaf-{group}-{number}") for number in range(4)]) for group in range(6))
TREE = node("root", 1, leaf("checked", 1, check=CHECK), *GROUPS)


@pytest.fixture(autouse=True)
def attempt():
    write_paper(TREE)
    write_files({"README.md": "It is a prompt.", "prompt.txt": "Build <OBJECT> with drop_block."})


def start(server, *, out="grade.json", log="."):
    """Grade the attempt in another process, with the call log in a folder."""
    assignments = {"model.digest": server.digest, "model.concurrency": AT_ONCE, "model.host": server.address}
    assignments["papers_dir"] = Path("data/papers").resolve()
    options = [part for key, value in assignments.items() for part in ("--set", f"rubric.{key}={value}")]
    command = [sys.executable, "-m", "pcgeval", "grade", Path("attempt").resolve(), "--out", Path(out).resolve()]
    Path(log).mkdir(exist_ok=True)
    command += ["--paper", "toy", "--model", "m:1", *options]
    return subprocess.Popen(command, cwd=log, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)


def graded(server, **more):
    process = start(server, **more)
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 0, messages
    return messages, json.loads(Path(more.get("out", "grade.json")).read_text())


def timeless(grade):
    """Return a grade but for the seconds that the server took."""
    return re.sub(r'"seconds": ?[0-9.e-]+', "", json.dumps(grade))


def test_killed_at_random_moments():
    chance, killed = random.Random(7), 0
    with SlowJudgeServer() as server:
        for moment in range(MOMENTS):
            enough = server.answered + chance.randint(1, 9)
            process = start(server)
            if moment % 4 == 3:
                time.sleep(chance.uniform(0, 0.5))  # while it starts
            else:
                wait_for_answers(server, enough, process)
                time.sleep(chance.uniform(0, 0.02))
            process.kill()
            process.communicate()
            killed += process.returncode == -signal.SIGKILL
        messages, grade = graded(server)
        assert killed > MOMENTS / 2
        assert len(server.asked) - len(set(server.asked)) <= killed * AT_ONCE  # only calls under way are lost
        assert f"{LEAVES + 1}/{LEAVES + 1}" in messages
        asked = len(server.asked)
        graded(server)
        assert len(server.asked) == asked
        _, undisturbed = graded(server, log="elsewhere", out="other.json")
    assert timeless(grade) == timeless(undisturbed)
    assert (grade["num_invalid_leaf_nodes"], grade["token_usage"]["grade"]["calls"]) == (0, LEAVES)


def test_an_interruption_ends_at_once_and_cleanly():
    with SlowJudgeServer(60) as server:
        process = start(server)
        wait_until(lambda: len(server.asked) >= AT_ONCE, process)
        process.send_signal(signal.SIGTERM)  # like Ctrl-C
        _, messages = process.communicate(timeout=300)
    assert process.returncode == 130
    assert len(messages.splitlines()) == 1
