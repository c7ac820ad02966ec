"""Run the `vf-eval` commands of the environments' READMEs with local models and short answers.

It needs a virtual environment with the extras `verifiers` and `local-llm`, and the network: uv fetches the harness. The
script prints a line for each attempt, and exits with 1 if one has no score.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from pcgeval.llm.local_models import fetch

ROOT = Path(__file__).parents[2]
PORT = 18_080
READMES = ("environments/pcgeval_levels/README.md", "environments/pcgeval_papers/README.md")
SHORTER = ("-c", "1", "--no-rich", "--sampling.max-tokens", "150", "--run.name", "run", "-o", ".")


def main() -> int:
    scored = []
    for port, readme in enumerate(READMES, start=PORT):
        text = (ROOT / readme).read_text("utf-8").replace("\\\n", " ")
        (line,) = re.findall(r"^vf-eval .*$", text, re.MULTILINE)
        words = shlex.split(line, comments=True)
        name = words[words.index("-m") + 1]
        fetch(name)
        command = [sys.executable, "-m", "pcgeval", "models", "serve", name, "--port", str(port)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            print(server.stderr.readline(), end="")
            scored.append(evaluate(words, f"http://127.0.0.1:{port}/v1"))
            server.terminate()
    return 0 if all(scored) else 1


def evaluate(words: list[str], base_url: str) -> bool:
    """Run a command; return whether every attempt was scored."""
    words[words.index("--client.base-url") + 1] = base_url
    turns = ("--env.agent.max-turns", "3") if "pcgeval-papers" in words else ()
    programs = Path(sys.executable).parent
    environ = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}  # uv may be installed beside this Python
    command = [programs / words[0], *words[1:], *SHORTER, *turns]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(command, cwd=folder, env=environ, check=False)
        traces = Path(folder, "run", "traces.jsonl")
        episodes = [json.loads(line) for line in traces.read_text("utf-8").splitlines()] if traces.exists() else []
    attempts = [trace for episode in episodes for trace in episode["traces"]]
    for trace in attempts:
        print(words[1], trace["task"]["data"]["id"], trace["rewards"], trace["stop_condition"], trace["errors"])
    return bool(attempts) and done.returncode == 0 and all(trace["ok"] for trace in attempts)


if __name__ == "__main__":
    sys.exit(main())
