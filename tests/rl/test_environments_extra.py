"""Who lacks an extra is told so, and the commands of the environments' READMEs run against a server of this machine."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from model_servers import ScriptedChat

import pcgeval
from pcgeval.core.packages import MissingPackageError

ENVIRONMENTS = Path(__file__).parents[2] / "environments"
SERVER = "http://127.0.0.1:8080"  # of the READMEs' commands


def test_who_lacks_verifiers_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.delitem(sys.modules, "pcgeval.rl.paper_environment", raising=False)
    with pytest.raises(MissingPackageError, match=r"pip install .*\[verifiers\]'"):
        pcgeval.load_environment()


def run_commands(name: str, folder: Path, *replies: str | tuple[str, ...]) -> dict[str, list[dict]]:
    """Run the `vf-` commands of an environment's README in a folder with a server of these replies.

    Return the rows of each command's result by its first word. Only the server's address differs from the README.
    """
    pytest.importorskip("verifiers.v1", reason="`make environments` installs the extra verifiers")
    text = (ENVIRONMENTS / name / "README.md").read_text("utf-8").replace("\\\n", " ")
    results = {}
    with ScriptedChat(replies) as server:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        for line in re.findall(r"^vf-.*$", text, re.MULTILINE):
            words = shlex.split(line.replace(SERVER, server.address), comments=True)
            done = subprocess.run(
                words, cwd=folder, env={**os.environ, "PATH": path}, check=False, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
            (file,) = {*folder.glob("outputs/*/*.jsonl")} - {file for _, file in results.values()}
            results[words[0]] = [json.loads(row) for row in file.read_text("utf-8").splitlines()], file
    return {command: rows for command, (rows, _) in results.items()}


def attempts(episodes: list[dict]) -> list[dict]:
    traces = [trace for episode in episodes for trace in episode["traces"]]
    assert [trace["errors"] for trace in traces if not trace["ok"]] == []
    return traces


def test_the_readme_of_the_levels_rewards_a_group_of_attempts(tmp_path):
    level = f"```\n{(ENVIRONMENTS.parent / 'data/examples/letters/A.txt').read_text()}\n```"
    traces = attempts(run_commands("pcgeval_levels", tmp_path, level)["vf-eval"])
    assert len(traces) == 4
    for trace in traces:
        assert trace["rewards"]["level_score"]["score"] > 0.9
        assert trace["metrics"]["letter_score"] == pytest.approx(0, abs=1e-9)  # all alike


def test_the_readme_of_the_papers_checks_the_example_and_grades_an_attempt(tmp_path):
    results = run_commands("pcgeval_papers", tmp_path, ("echo hi > README.md",), "Done.")
    assert [(task["name"], task["valid"]) for task in results["vf-validate"]] == [("block-letters", True)]
    (trace,) = attempts(results["vf-eval"])
    assert trace["rewards"]["reproduction"]["score"] == trace["info"]["grade"]["score"] < 0.5
    assert trace["info"]["grade"]["num_invalid_leaf_nodes"] == trace["metrics"]["num_invalid_leaf_nodes"]
