"""A small competition that the real DVC or this process runs: two teams, two models, recorded real replies."""

import gzip
import itertools
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import yaml
from competition_folder import REPOSITORY, CompetitionFolder, write_submission
from dvc_command import run_dvc, with_this_python
from params_for_tests import small_values

from pcgeval import pipeline
from pcgeval.formats.layout import recording_file
from pcgeval.formats.params import load_params, parse_params
from pcgeval.generation.tasks import GenerationTask
from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.protocol import ChatReply
from pcgeval.submissions.load import Prompt, load_submission

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
