"""A competition of real size: CPU and wall seconds of a whole evaluation, and of one after each kind of change.

    python bench/competition.py                      # 10 teams, 3 models, 26 letters x 10 trials; then the growth
    python bench/competition.py --teams 40 --only cold
    python bench/competition.py --only growth        # 10, 20 and 40 teams with four trials a team and model

The replies are the demo's recorded ones, altered from a seed so that no two teams have the same levels; the code is
that of this checkout. Each figure counts `dvc repro` with all processes that it starts.
"""

import argparse
import ctypes
import json
import os
import random
import re
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from pcgeval.formats.layout import RUBRICS, SUBMISSIONS, recording_file
from pcgeval.formats.params import Params, load_params
from pcgeval.formats.trials import ChatReply
from pcgeval.generation.tasks import GenerationTask
from pcgeval.llm.call_log import LoggedCall, read_recording, write_recording
from pcgeval.submissions.load import load_submission

CHECKOUT = Path(__file__).parents[1]
LEFT_OUT = ("data/submissions/", "data/recordings/", "data/grades/", "results/", "dvc.lock")
PROMPT = (
    "Stack blocks into the capital letter <OBJECT>: drop_block(type, x) with 'b31', 'b13' or 'b11' at column 0 to 19.\n"
)
PR_SET_CHILD_SUBREAPER = 36
SILENT = 0.1  # of the replies hold no code
CALL = re.compile(r"drop_block\(\s*['\"](b\d\d)['\"]\s*,\s*(\d+)\s*\)")
AUDIT, GROWTH = "audit", "growth"
Design = list[tuple[str, int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=10)
    parser.add_argument("--trials", type=int, default=10, help="of each letter")
    parser.add_argument("--letters", default="ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    choices = [*CHANGES, AUDIT, GROWTH]
    parser.add_argument("--only", action="append", help="this evaluation only; may be repeated", choices=choices)
    settings = parser.parse_args()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    names = settings.only or choices
    if one_folder := [name for name in names if name != GROWTH]:
        for name, evaluation in zip(one_folder, measure(settings, one_folder), strict=True):
            print(f"competition.{name.replace(' ', '_')} {evaluation}", flush=True)
    if GROWTH in names:
        print_growth(settings)


def measure(settings: argparse.Namespace, names: Sequence[str]) -> Iterator["Evaluation"]:
    """Evaluate a new competition after each of some changes, or audit it."""
    with TemporaryDirectory(prefix="pcgeval-competition-") as folder, chdir(folder):
        os.environ["PYTHONPATH"] = f"{folder}/src"
        make_competition(Path(folder), settings.teams, settings.trials, settings.letters)
        for name in names:
            if name == AUDIT:
                yield evaluate("pcgeval audit")
            else:
                CHANGES[name]()
                yield evaluate("dvc repro")


def print_growth(settings: argparse.Namespace) -> None:
    """Print what more teams cost, with so few trials that DVC, starting stages and reading files are most of it."""
    settings.letters, settings.trials = "HI", 2
    first = None
    for teams in (10, 20, 40):
        settings.teams = teams
        cold, idle = measure(settings, ["cold", "idle"])
        first = first or cold
        times = cold.cpu_seconds / first.cpu_seconds
        print(
            f"competition.growth_{teams}_teams {times:.2f} times the CPU s of 10 teams: {cold.cpu_seconds:.0f}"
            f" cold, {idle.cpu_seconds:.1f} idle, dvc.lock {cold.lock_bytes / 1000:.0f} kB",
            flush=True,
        )


def make_competition(folder: Path, teams: int, trials_per_letter: int, letters: str) -> None:
    """Copy this checkout's code and put other params, submissions and recordings beside it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in listed.splitlines():
        if not name.startswith(LEFT_OUT):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, folder / name)
    names = [f"team{number:02}" for number in range(1, teams + 1)]

    def change(values: dict[str, Any]) -> None:
        values["teams"] = {name: {"role": "baseline" if name.endswith("01") else "participant"} for name in names}
        values["competition"] |= {"characters": letters, "trials": trials_per_letter}
        values["scoring"]["baseline"] = names[0]
        values["rubric"] = {"id": "competition", "judge": "checks"}

    change_params(change)
    for team in names:
        write_team(team)
    for words in (
        "init --quiet",
        "add --all",
        "-c user.name=bench -c user.email=bench@example.org commit --message bench",
    ):
        subprocess.run(["git", *words.split()], check=True, stdout=subprocess.DEVNULL)


def change_params(change: Callable[[dict[str, Any]], None]) -> None:
    values = yaml.safe_load(Path("params.yaml").read_text("utf-8"))
    change(values)
    Path("params.yaml").write_text(yaml.safe_dump(values, sort_keys=False), "utf-8")


def write_team(team: str, wish: str = "") -> None:
    """Write a submission, and what each model replies to it."""
    folder = SUBMISSIONS / team
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"# {team}\n\nA prompt.\n", "utf-8")
    (folder / "prompt.txt").write_text(f"{PROMPT}Team {team}.{wish}\n", "utf-8")
    params = load_params()
    (Path("data/recordings/judge") / team).mkdir(parents=True, exist_ok=True)
    (Path("data/recordings/judge") / team / "calls.jsonl").touch()
    for model in params.models:
        write_recording(recording_file(model, team), replies(params, model, team, wish))


def replies(params: Params, model: str, team: str, wish: str) -> list[LoggedCall]:
    settings = params.models[model]
    task = GenerationTask(
        load_submission(SUBMISSIONS / team), settings, settings.digest or "", params.limits, params.competition.seed
    )
    known = designs()
    calls = []
    for trial in params.trials():
        chance = random.Random(f"{model}/{team}/{wish}/{trial}")  # noqa: S311 - a level, no secret
        reply = ChatReply(text(chance, known[trial.letter]), 200, 100, "stop", 1.0)
        key = task.request(trial).key
        calls.append(LoggedCall(key=key, reply=reply, letter=trial.letter, trial=trial.number, turn=1))
    return calls


def text(chance: random.Random, known: list[Design]) -> str:
    """Return a reply: one of the known designs, with some blocks at another column or once more."""
    if chance.random() < SILENT:
        return "I cannot draw."
    lines = []
    for block, column in chance.choice(known):
        for _ in range(chance.choice((1, 1, 1, 1, 2))):
            moved = min(max(column + chance.choice((-1, 0, 0, 0, 0, 1)), 1), 18)
            lines.append(f"drop_block('{block}', {moved})")
    return "```python\n" + "\n".join(lines) + "\n```\n"


_designs: dict[str, list[Design]] = {}


def designs() -> dict[str, list[Design]]:
    """Return the demo's levels of each letter as calls."""
    if not _designs:
        for path in sorted((CHECKOUT / "data/recordings").glob("qwen*/*/calls.jsonl")):
            for call in read_recording(path):
                reply_text = call.reply.text if call.reply else ""
                design = [(block, int(column)) for block, column in CALL.findall(reply_text)]
                if design and call.letter:
                    _designs.setdefault(call.letter, []).append(design[:30])
    return _designs


@dataclass(frozen=True)
class Evaluation:
    cpu_seconds: float
    wall_seconds: float
    stages: str
    lock_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.cpu_seconds:.0f} CPU s, {self.wall_seconds:.0f} s wall, {self.stages}, "
            f"dvc.lock {self.lock_bytes / 1000:.0f} kB"
        )


def evaluate(command: str) -> Evaluation:
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    words = shlex.split(command)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        words, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    with suppress(ChildProcessError):  # those that outlive what started them come to this process
        while True:
            os.wait()
    Path("bench.log").write_text(done.stdout, "utf-8")
    if done.returncode:
        sys.exit(f"{command} failed:\n{done.stdout[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = len(re.findall(r"^(audit: \w+ \(\d+ of|Running stage)", done.stdout, re.MULTILINE))
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Evaluation(spent, time.monotonic() - began, f"{ran} stages run", Path("dvc.lock").stat().st_size)


def change_a_submission() -> None:
    before = (SUBMISSIONS / "team02" / "prompt.txt").read_text("utf-8").partition("Team team02.")[2].rstrip()
    write_team("team02", f"{before} Build it well.")


def change_physics() -> None:
    change_params(lambda values: values["physics"].update(seed=values["physics"]["seed"] + 1))


def change_rubric() -> None:
    path = RUBRICS / "competition" / "rubric.json"
    tree = json.loads(path.read_text("utf-8"))
    tree["sub_tasks"][0]["weight"] += 1
    path.write_text(json.dumps(tree, indent=1), "utf-8")


def add_a_team() -> None:
    team = f"team{len(load_params().teams) + 1:02}"
    change_params(lambda values: values["teams"].update({team: {}}))
    write_team(team)


CHANGES: dict[str, Callable[[], None]] = {
    "cold": lambda: None,
    "idle": lambda: None,
    "one changed submission": change_a_submission,
    "one more team": add_a_team,
    "physics changed": change_physics,
    "rubric changed": change_rubric,
}

if __name__ == "__main__":
    main()
