import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import pcgeval
from pcgeval.core.packages import MissingPackageError

READMES = sorted(Path(__file__).parents[2].glob("environments/*/README.md"))


def test_who_lacks_verifiers_is_told_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.delitem(sys.modules, "pcgeval.rl.paper_environment", raising=False)
    with pytest.raises(MissingPackageError, match=r"pip install .*\[verifiers\]'"):
        pcgeval.load_environment()


@pytest.mark.llm  # and needs the network: uv fetches the harness
@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_the_command_of_a_readme_scores_every_attempt(readme, tmp_path, monkeypatch):
    for package in ("verifiers.v1", "xllamacpp"):
        pytest.importorskip(package, reason="runs in `make environments`")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (line,) = re.findall(r"^vf-eval .*$", readme.read_text("utf-8").replace("\\\n", " "), re.MULTILINE)
    words = shlex.split(line, comments=True)
    model = words[words.index("-m") + 1]
    words += shlex.split("-c 1 --no-rich --sampling.max-tokens 150 --env.agent.max-turns 3 --run.name run -o .")
    subprocess.run(["pcgeval", "models", "fetch", model], check=True)
    with subprocess.Popen(["pcgeval", "models", "serve", model], stderr=subprocess.PIPE, text=True) as server:
        server.stderr.readline()
        subprocess.run(words, cwd=tmp_path, check=False)
        server.terminate()
    episodes = [json.loads(line) for line in (tmp_path / "run/traces.jsonl").read_text("utf-8").splitlines()]
    assert [trace["errors"] for episode in episodes for trace in episode["traces"] if not trace["ok"]] == []
    assert episodes
