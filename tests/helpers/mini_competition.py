"""A miniature competition with the real layout, whose stages only copy text."""

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

from dvc.repo import Repo
from dvc_command import run_dvc, with_this_python

from pcgeval.audit.audit import Audit
from pcgeval.audit.status import AuditFinding
from pcgeval.similarity.source import FILES as CLASSIFIER_FILES

PARAMS = """\
competition: {name: mini, edition: "2026", round: final, characters: IL, trials: 2, seed: 7}
teams: [aa, bb]
models:
  m1: {backend: recorded, name: "one:1b", digest: DIGEST, options: {temperature: 1}}
  m2: {backend: recorded, name: "two:2b", digest: DIGEST}
limits: {tokens: 100, seconds: 10, prompt_words: 900}
physics: {jitter: 1e-05, seed: 3}
similarity: {model: data/classifier}
diversity: {vectors: softmax}
scoring: {bootstrap: 10}
rubric: {id: competition, seed: 5}
""".replace("DIGEST", "ab" * 32)

PIPELINE = """\
stages:
  generate:
    matrix: {team: "${teams}", model: "${models}"}
    cmd: python stages/measure.py ${item.model} ${item.team} raw
    deps:
      - data/submissions/${item.team}
      - data/recordings/${item.model}/${item.team}
      - stages/measure.py
      - src/pcgeval/llm
    params: [competition.seed, "models.${item.model}"]
    outs:
      - data/raw/${item.model}/${item.team}: {persist: true}
  simulate:
    matrix: {team: "${teams}", model: "${models}"}
    cmd: python stages/measure.py ${item.model} ${item.team} stability images
    deps: ["data/raw/${item.model}/${item.team}", stages/measure.py]
    params: [physics]
    outs: ["data/stability/${item.model}/${item.team}", "data/images/${item.model}/${item.team}"]
  evidence:
    matrix: {team: "${teams}", model: [m1]}
    cmd: python stages/evidence.py ${item.model} ${item.team}
    deps: ["data/raw/${item.model}/${item.team}", stages/evidence.py]
    outs: ["data/evidence/${item.team}/${item.model}.json"]
  rank:
    cmd: python stages/rank.py
    deps: [data/stability, data/images, data/raw, data/submissions, data/recordings, data/classifier, stages/rank.py,
           src/pcgeval/llm]
    params: [competition, teams, models, limits, physics, similarity, diversity, scoring]
    outs:
      - results/ranking.json: {cache: false}
  grade:
    matrix: {team: "${teams}"}
    cmd: python stages/grade.py ${item.team}
    deps:
      - data/submissions/${item.team}
      - data/rubrics
      - data/evidence/${item.team}
      - data/recordings/judge/${item.team}
      - stages/grade.py
    params: [rubric]
    outs:
      - data/grades/${item.team}: {cache: false}
"""

COPY = """\
import pathlib, sys
model, team, *steps = sys.argv[1:]
for step in steps:
    folder = pathlib.Path("data", step, model, team)
    for letter in "IL":
        (folder / letter).mkdir(parents=True, exist_ok=True)
        (folder / letter / f"{team}_{letter}_1.txt").write_text(f"{step} {model} {team} {letter}")
    (folder / "trials.json").write_text("[]")
    if step == "raw":
        (folder / "I" / f"{team}_I_9.json").write_text("{}")
"""

RANK = """\
import json, pathlib
from pcgeval.core.packages import installed_versions
from pcgeval.core.params import load_params
from pcgeval.scoring.result_hash import deciding_files, result_hash
from pcgeval.similarity.source import Source
line = {"total": "0.12345678901234567890", "normalised": "50", "winner": False}
line |= dict.fromkeys(("interval", "prompt_length", "disqualified"))
model = {"score": "0.0625", "normalised": "50", "failed_trials": 3, "flagged_trials": 1}
line |= {"models": {"m1": model, "m2": model}}
ranked, unranked = {"status": "ranked", "rank": 1}, {"status": "baseline", "rank": None}
teams = [{"team": "aa", **ranked, **line}, {"team": "bb", **unranked, **line}]
rules = {"version": 1, "letters": "IL", "trials": 2, "official_quirks": False}
ranking = {"winners": [], "reason": "", "baseline": "bb", "rules": rules, "intervals": None}
ranking |= {"engine": "unknown", "classifier": "data/classifier sha256:", "teams": teams}
classifier = Source("data/classifier", None, pathlib.Path("data/classifier"))
ranking["classifier"] += classifier.sha256
ranking["packages"] = {name: [version] for name, version in installed_versions("numpy").items()}
params = load_params()
ranking["result"] = result_hash(params, ranking, deciding_files(params), ranking["classifier"]).model_dump()
pathlib.Path("results").mkdir(exist_ok=True)
pathlib.Path("results/ranking.json").write_text(json.dumps(ranking))
"""

EVIDENCE = """\
import pathlib, sys
path = pathlib.Path("data/evidence", sys.argv[2], sys.argv[1] + ".json")
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(str(sys.argv))
"""

GRADE = """\
import pathlib, sys
folder = pathlib.Path("data/grades", sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
(folder / "grade.json").write_text("{}")
(folder / "notes.txt").write_text(sys.argv[1])
"""

ODD_NAME = "two\nlines é"
FILES = {
    "params.yaml": PARAMS,
    "dvc.yaml": PIPELINE,
    "constraints.txt": "pytest==0.0.1  # not the installed one\nno-such-package-here==1.0\n",
    ".gitignore": "/data/raw/\n/data/stability/\n/data/images/\n/data/evidence/\n",
    ".dvcignore": "__pycache__\n.gitignore\n.*.part\n",
    "stages/measure.py": COPY,
    "stages/evidence.py": EVIDENCE,
    "stages/rank.py": RANK,
    "stages/grade.py": GRADE,
    "src/pcgeval/llm/recorded.py": "REPLAY = 1\n",
    "src/pcgeval/llm/protocol.py": "CALL = 1\n",
    "src/pcgeval/llm/.gitignore": "# never part of a hash\n",
    "data/submissions/aa/prompt.txt": "draw <OBJECT>",
    f"data/submissions/aa/{ODD_NAME}.md": "odd",
    "data/submissions/bb/prompt.txt": "stack <OBJECT>",
    "data/recordings/m1/aa/calls.jsonl": "{}\n{}\n",
    "data/recordings/m1/bb/calls.jsonl": "{}\n",
    "data/recordings/m2/aa/calls.jsonl": "{}\n{}\n{}",
    "data/recordings/m2/bb/calls.jsonl": "{}\n",
    "data/recordings/m3/aa/calls.jsonl": "{}\n",
    "data/recordings/judge/aa/calls.jsonl": "{}\n",
    "data/recordings/judge/bb/calls.jsonl": "{}\n",
    "data/rubrics/competition/rubric.json": "{}",
    **{f"data/classifier/{name}": name for name in CLASSIFIER_FILES},
}


def run(folder: Path, *words: str) -> str:
    """Run a program of this Python's environment in a folder and return what it printed."""
    if words[:2] == ("dvc", "repro"):
        finished = run_dvc(folder, *words[1:])
        assert finished.returncode == 0, finished.stdout
        return finished.stdout
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    settings = {**plain, "PATH": with_this_python(), "GIT_CONFIG_GLOBAL": os.devnull}
    for who in ("AUTHOR", "COMMITTER"):
        settings |= {f"GIT_{who}_NAME": "a tester", f"GIT_{who}_EMAIL": "tester@example.org"}
    done = subprocess.run(words, cwd=folder, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def faults_beside_hash(found: Audit) -> list[AuditFinding]:
    """Return the faults without that of the result hash, which comes with every change of what decides the ranking."""
    return [each for each in found.faults if each.kind != "hash"]


def files_at_fault(found: Audit) -> list[tuple[str, str | None]]:
    """Return the kind and path of each of these faults."""
    return [(each.kind, each.path) for each in faults_beside_hash(found)]


def accept_changes(folder: Path) -> None:
    """Let dvc.lock agree with what is there, as `dvc commit --force` does, whose start takes longer."""
    with chdir(folder), Repo() as repository:
        repository.commit(force=True)


def copy_sharing(*folders: str) -> Callable[[str, str], object]:
    """Return a copy function for copytree that makes hard links in some folders, where no test may write in place."""
    shared = tuple(f"/{folder}/" for folder in folders)

    def copy(source: str, target: str) -> None:
        (os.link if any(folder in source for folder in shared) else shutil.copy2)(source, target)

    return copy


def write(folder: Path, name: str, text: str) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
