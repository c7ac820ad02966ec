"""A competition's folder for commands, stages and the real DVC: one team and a server, or recorded replies."""

import gzip
import io
import itertools
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest
import yaml
from handed_in_for_tests import write_folder
from model_servers import DIGEST
from params_for_tests import contents, small_values

from pcgeval import pipeline
from pcgeval.cli.main import main
from pcgeval.formats.layout import recording_file
from pcgeval.formats.params import load_params, parse_params
from pcgeval.formats.trials import TrialRecord, read_record
from pcgeval.generation.tasks import GenerationTask
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.protocol import ChatReply
from pcgeval.pipeline import stage_exit_code
from pcgeval.submissions.load import Prompt, load_submission


def run_in(folder: Path, command: Callable[[], int], **variables: str) -> tuple[int, str]:
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stdout(shown), redirect_stderr(shown):
        for name, value in variables.items():
            patch.setenv(name, value)
        return command(), shown.getvalue()


def git(folder: Path, *words: str) -> str:
    """Run git as somebody and return what it printed."""
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def commit_all(folder: Path, *names: str) -> str:
    """Commit a folder, also what git would ignore, or some names in it, in a new repository if there is none."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--force", *(names or ["--all"]))
    git(folder, "commit", "--quiet", "--message", "all")
    return git(folder, "rev-parse", "HEAD")


def with_this_python() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run_dvc(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a DVC command in a folder; `stdout` is all that it printed and logged, without what its stages print."""
    from dvc.cli import main

    logger = logging.getLogger("dvc")
    handlers = logger.handlers

    def command() -> int:
        logger.handlers = [logging.StreamHandler()]  # to what standard error is now
        return main(words)

    try:
        code, printed = run_in(folder, command, PATH=with_this_python(), **variables)
    finally:
        logger.handlers = handlers
    return subprocess.CompletedProcess(words, code, printed)


REPOSITORY = Path(__file__).parents[2]
STAGE = (str(REPOSITORY / "stages" / "generate.py"),)
PROMPT = {"prompt.txt": "Build the letter <OBJECT>."}
PROGRAM = {
    "main.py": """
from llms4pcg.competition import chat_with_llm, run_evaluation
from llms4pcg.models.trial_loop import TrialLoop

class Chatty(TrialLoop):
    @staticmethod
    def run(ctx, target_character):
        messages = [{"role": "user", "content": f"Build {target_character}"}]
        for turn in range(3):
            answer = chat_with_llm(ctx, messages)[0]
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": f"Again, {turn}"}]
        return answer

if __name__ == "__main__":
    run_evaluation("alpha", Chatty)
"""
}


@dataclass(frozen=True)
class CompetitionFolder:
    folder: Path

    def command(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        """Start this Python in the folder as the leader of a process group, on the package that is tested."""
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **variables}
        command = [sys.executable, *words]
        pipes = {"stdout": PIPE, "stderr": PIPE, "text": True}
        return subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True, **pipes)

    def generate(self) -> None:
        self.run(*STAGE)

    def run(self, *words: str, **variables: str) -> None:
        """Run the stage or a `-m pcgeval` command to its end, with some environment variables."""
        code, printed = self.run_and_fail(*words, **variables)
        assert code == 0, printed

    def run_and_fail(self, *words: str, **variables: str) -> tuple[int, str]:
        """Run the stage or a `-m pcgeval` command in this process; return its exit code and everything it printed."""
        is_command = words[:2] == ("-m", "pcgeval")
        assert is_command or words == STAGE
        command = partial(main, words[2:]) if is_command else partial(stage_exit_code, pipeline.generate)
        return run_in(self.folder, command, **variables)

    def add_team(self, team: str, work: dict[str, str]) -> None:
        write_submission(self.folder, team, work)
        self.change("teams", {**self.params()["teams"], team: {}})

    def change_model(self, **values: object) -> None:
        self.change_params("models", m={**self.params()["models"]["m"], **values})

    def change_params(self, section: str, **values: object) -> None:
        self.change(section, {**self.params().get(section, {}), **values})

    def change(self, key: str, value: object) -> None:
        (self.folder / "params.yaml").write_text(yaml.safe_dump({**self.params(), key: value}, sort_keys=False))

    def params(self) -> dict[str, Any]:
        params: dict[str, Any] = yaml.safe_load((self.folder / "params.yaml").read_text())
        return params

    def records(self, team: str = "alpha") -> list[TrialRecord]:
        """Return the records of a team's trials in the order of their names."""
        return [read_record(path) for path in sorted(self.folder.glob(f"data/raw/m/{team}/*/{team}_*.json"))]

    def outputs(self) -> dict[str, bytes]:
        return contents(self.folder / "data" / "raw")

    def finished_calls(self) -> set[str]:
        """Return the keys of all calls that are on the disk, in finished trials or in whole lines of the call log."""
        records = [json.loads(path.read_text()) for path in self.folder.glob("data/raw/m/*/*/*.json")]
        calls = [exchange for record in records for exchange in record["exchanges"]]
        for log in self.folder.glob(".pcgeval/calls/*.jsonl"):
            calls += map(json.loads, log.read_text().split("\n")[:-1])
        return {call["key"] for call in calls}


def competition_folder(
    folder: Path, host: str, work: dict[str, str], *, letters: str = "ABCDEFGHIJ", trials: int = 4
) -> CompetitionFolder:
    """Lay out a competition of one team and one model, which is asked on a server, two calls at once."""
    write_submission(folder, "alpha", work)
    (folder / "data" / "locks").mkdir(exist_ok=True)
    options = {"temperature": 0.5}
    model = {"backend": "ollama", "name": "m:1", "digest": DIGEST, "host": host, "options": options, "concurrency": 2}
    limits = {"tokens": 25_000, "seconds": 100, "prompt_words": 900}
    params = small_values(letters, trials, seed=6280, teams=["alpha"], models={"m": model}, limits=limits)
    (folder / "params.yaml").write_text(yaml.safe_dump(params))
    return CompetitionFolder(folder)


def write_submission(folder: Path, team: str, work: dict[str, str]) -> None:
    write_folder(folder / "data" / "submissions" / team, {"README.md": f"# {team}\n", **work})


COPIED = ("dvc.yaml", ".dvcignore", ".dvc/config", "stages", "src")
COPIED += ("data/locks", "data/rubrics", "data/classifier", "data/examples/letters")
PROMPTS = {"alpha": "Build the letter <OBJECT>.", "beta": "Stack blocks into the letter <OBJECT>, please."}
OTHER_PROMPT = "Build a tall letter <OBJECT>."
DIGESTS = {"small": "a" * 64, "large": "b" * 64}
OTHER_DIGEST = "c" * 64
STAGES = [stage.__name__ for stage in pipeline.STAGES]
PARAMS = small_values(
    "IT",
    teams={"alpha": {"title": "Team alpha", "role": "baseline"}, "beta": {"title": "Team beta"}},
    models={name: {"backend": "recorded", "name": f"{name}:1b", "digest": digest} for name, digest in DIGESTS.items()},
    rounds={"midterm": {"characters": "I", "trials": 2, "seed": 1}},
    physics={"trials": 2},
    scoring={"baseline": "alpha", "bootstrap": 20},
)


class Workspace(CompetitionFolder):
    def repro(self, *words: str) -> list[str]:
        """Run `dvc repro` and return the stages that it ran, in order; fails with all that was printed."""
        done = self.dvc("repro", *words)
        assert done.returncode == 0, done.stdout
        return re.findall(r"Running stage '([^']+)'", done.stdout)

    def dvc(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a DVC command in the folder, its stages on the folder's own copy of the package."""
        return run_dvc(self.folder, *words, PYTHONPATH=str(self.folder / "src"))

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run this Python on the folder's own copy of the package."""
        process = self.command(*words, PYTHONPATH=str(self.folder / "src"), PATH=with_this_python())
        printed = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, *printed)

    def outputs(self) -> dict[str, bytes]:
        """Return every file that the stages made, and dvc.lock."""
        paths = [self.folder / "dvc.lock", *(self.folder / "results").rglob("*"), *(self.folder / "data").rglob("*")]
        return {path.relative_to(self.folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}


def make_workspace(folder: Path) -> Workspace:
    """Lay out the small competition in a folder that is no git repository."""
    for name in COPIED:
        source, target = REPOSITORY / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, target)
    (folder / "params.yaml").write_text(yaml.safe_dump(PARAMS, sort_keys=False))
    (folder / ".dvc" / "config.local").write_text("[core]\n    no_scm = true\n")
    for team, prompt in PROMPTS.items():
        write_submission(folder, team, {"README.md": f"# {team}\n\nTeam: {team}\n", "prompt.txt": prompt})
    _write_recordings(folder)
    return Workspace(folder)


def make_evaluated(folder: Path) -> Path:
    """Lay out the competition and run every stage but the report."""
    make_workspace(folder)
    evaluate(folder, until="grade")
    return folder


def evaluate(folder: Path, since: str = "generate", until: str = "report") -> None:
    """Run the stages from one to another: what was altered before is then what all later files follow from."""
    params = load_params(folder / "params.yaml")
    for name in STAGES[STAGES.index(since) : STAGES.index(until) + 1]:
        getattr(pipeline, name)(params, folder)


def _write_recordings(folder: Path) -> None:
    """Record real replies for the prompts and digests of the tests, before and after each change.

    The same four in another order each time: their pictures are classified once.
    """
    with gzip.open(REPOSITORY / "tests/golden/responses/responses.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = map(json.loads, lines)
        texts = [row["text"] for row in rows if row["model"].startswith("qwen2.5-coder-1.5b, repeat_penalty")]
    orders = itertools.permutations(texts[:4])
    params = parse_params(PARAMS, "params.yaml")
    for model, team in itertools.product(params.models, params.teams):
        submission = load_submission(folder / "data" / "submissions" / team)
        calls = []
        for prompt, digest in itertools.product((submission.work.text, OTHER_PROMPT), (DIGESTS[model], OTHER_DIGEST)):
            shown = replace(submission, work=Prompt(prompt))
            task = GenerationTask(shown, params.models[model], digest, params.limits, params.competition.seed)
            for trial, text in zip(params.trials(), next(orders), strict=True):
                reply = ChatReply(text, 20, len(text) // 4, "stop", seconds=1.5)
                key = task.request(trial).key
                calls.append(LoggedCall(key=key, reply=reply, letter=trial.letter, trial=trial.number, turn=1))
        write_recording(folder / recording_file(model, team), calls)
