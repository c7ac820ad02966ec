"""Both tasksets through `vf-eval`, with local models and the harness as it is; no test, for uv fetches the harness.

Run in a virtual environment with the extras `verifiers` and `local-llm`. Prints a line an attempt, and ends with 1 if
one of them was not scored.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pcgeval.llm.local_models import fetch
from pcgeval.serve.server import LocalServer

ROOT = Path(__file__).parents[2]
SMALLEST, CODER = "smollm2:135m-instruct-q4_1", "qwen2.5-coder:0.5b-instruct-q4_K_M"  # the latter calls tools
RUNS = (
    ("pcgeval-levels", SMALLEST, "-n", "1", "--env.attempts", "2", "--env.taskset.letters", "IL"),
    ("pcgeval-papers", CODER, "--env.agent.max-turns", "3", "--env.taskset.task.judge-type", "checks"),
)


def main() -> int:
    with LocalServer("127.0.0.1", 0, {name: fetch(name) for name in (SMALLEST, CODER)}, threads=1) as server:
        base_url = f"{server.address}/v1"
        scored = [evaluate(base_url, *run) for run in RUNS]
    return 0 if all(scored) else 1


def evaluate(base_url: str, taskset: str, model: str, *settings: str) -> bool:
    """Run one taskset and print what became of it; return whether every attempt was scored."""
    programs = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as folder:
        command = [
            *(programs / "vf-eval", taskset, "-m", model, "-c", "1", *settings),
            *("--client.base-url", base_url, "--client.api-key-var", "NO_KEY", "--no-push", "--no-rich"),
            *("--sampling.max-tokens", "150", "-o", folder, "--run.name", "run"),
        ]
        paths = f"{programs}:{os.environ['PATH']}"  # where uv is, if it was installed beside this Python
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PATH": paths}, capture_output=True, text=True, check=False
        )
        found = Path(folder, "run", "traces.jsonl")
        episodes = [json.loads(line) for line in found.read_text("utf-8").splitlines()] if found.exists() else []
    attempts = [trace for episode in episodes for trace in episode["traces"]]
    for trace in attempts:
        rewards = {name: reward and round(reward["score"], 4) for name, reward in trace["rewards"].items()}
        turns = sum(node["sampled"] for node in trace["nodes"])
        print(f"{taskset} {trace['task']['data']['id']}: {rewards} after {turns} answers, {trace['stop_condition']}")
        for error in trace["errors"]:
            print(f"  {error['type']}: {error['message']}", file=sys.stderr)
    if done.returncode or not attempts:
        print(done.stderr[-3000:], file=sys.stderr)
    return bool(attempts) and done.returncode == 0 and all(trace["ok"] for trace in attempts)


if __name__ == "__main__":
    sys.exit(main())
