"""Every path and file name of a competition.

Outputs lie in `data/<stage folder>/<model>/<team>/<letter>/<team>_<letter>_<trial>.<ext>`, with the official names.
"""

import os
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from pcgeval.core.files import sha256_json, tree_files

LETTERS = string.ascii_uppercase  # that a level may show
# the official names of the folders that the stages generate, extract, convert, simulate, classify and diversity fill
StageDir = Literal["raw", "intermediate", "levels", "images", "stability", "similarity", "diversity"]
STAGE_DIRS: tuple[StageDir, ...] = get_args(StageDir)
EXTENSIONS: dict[StageDir, str] = {"raw": ".txt", "intermediate": ".txt", "levels": ".xml", "images": ".png"}

DATA = Path("data")
SUBMISSIONS = DATA / "submissions"
LOCKS = DATA / "locks"  # the packages of programs, a file for each team
CLASSIFIER = DATA / "classifier"
RECORDINGS = DATA / "recordings"
JUDGE_RECORDINGS = RECORDINGS / "judge"  # beside those of the models
RUBRICS = DATA / "rubrics"
PAPERS = DATA / "papers"
EXAMPLE_LETTERS = DATA / "examples" / "letters"  # optional: hand-made letters beside the ranking
TRIALS = DATA / "trials"
REPLAYS = DATA / "replays"
EVIDENCE = DATA / "evidence"
JUDGEMENTS = DATA / "judgements"
GRADES = DATA / "grades"
RESULTS = Path("results")
OFFICIAL_RESULTS = RESULTS / "official"
REPORT = RESULTS / "report"
RANKING_CSV = RESULTS / "ranking.csv"
RANKING_JSON = RESULTS / "ranking.json"
METRICS = RESULTS / "metrics"  # a file for each team, for `dvc metrics show`
STATE = Path(".pcgeval")  # for the next run after a killed one; neither DVC nor git has it
RUN_LOCK = STATE / "run.lock"  # of `pcgeval run`
SUBMIT_LOCK = STATE / "submit.lock"  # of `pcgeval submit`
GENERATION_LOCK = STATE / "generate.lock"  # of the stage generate
DVC_LOCK = Path("dvc.lock")
PACKAGE_FILE = Path("pcgeval.json")  # the pcgeval that a competition runs, where it has no src/pcgeval
CALLS = STATE / "calls"  # all replies of models; a round's workspace links to its parent's
FAILED_CALLS = Path("failed-calls.jsonl")  # in a bundle: what proves the failed calls of its live models
GRADE_FILE = "grade.json"
TASK_FILE = "task.md"  # beside a rubric, optional: the task of the submissions in words
SIMULATIONS_FILE = "simulations.json"  # beside the stability files
CLASSIFIER_FILE = "classifier.json"  # beside the similarity files
FAILURES_FILE = "failures.json"  # beside calls and levels: which trials have none, and why
TRIALS_FILE = "trials.json"  # beside the stability files: the outcome of each trial
# pcgeval's classifier, rubric and example paper: inside an installed package, in a checkout beside src
_PACKAGE = Path(__file__).parents[1]
PACKAGED_DATA = _PACKAGE / "data" if (_PACKAGE / "data").is_dir() else _PACKAGE.parents[1] / "data"
RELEASED_PIPELINE = PACKAGED_DATA.parent if PACKAGED_DATA.parent != _PACKAGE else PACKAGED_DATA / "pipeline"
_TRIAL_NUMBER = re.compile(r"\s*([+-]?[0-9]{1,18})(?![0-9])")


@dataclass(frozen=True, order=True)
class Trial:
    """One trial of one team: its letter and its number, from 1."""

    letter: str
    number: int


def stage_dir(name: StageDir, model: str, team: str) -> Path:
    """Return the folder of a stage's output for a model and a team."""
    return DATA / name / model / team


def packages_lock(submission: Path) -> Path:
    """Return the lock of a program's packages, `data/locks/TEAM.txt`, by its folder `data/submissions/TEAM`."""
    return submission.parent.parent / LOCKS.name / f"{submission.name}.txt"


def recording_file(model: str, team: str) -> Path:
    """Return the recording of a team's trials with a model."""
    return RECORDINGS / model / team / "calls.jsonl"


def summaries_file(model: str, team: str) -> Path:
    """Return the summaries of a team's trials with a model."""
    return TRIALS / model / f"{team}.json"


def replays_file(model: str, team: str) -> Path:
    """Return the replays of a team's levels with a model."""
    return REPLAYS / model / f"{team}.json"


def evidence_file(model: str, team: str) -> Path:
    """Return the evidence about a team with one model."""
    return EVIDENCE / team / f"{model}.json"


def own_or_packaged(path: Path) -> Path:
    """Return an input below data/; pcgeval's own copy where the working folder has none."""
    packaged = PACKAGED_DATA / path.relative_to(DATA) if path.is_relative_to(DATA) else path
    return packaged if packaged.exists() and not path.exists() else path


def user_cache() -> Path:
    """Return the folder of what is fetched once for all competitions: PCGEVAL_CACHE, or ~/.cache/pcgeval."""
    return Path(os.environ.get("PCGEVAL_CACHE") or Path.home() / ".cache" / "pcgeval").absolute()


def competition_files(root: Path, path: Path) -> Iterator[str]:
    """Yield the names below `root` of a competition's files at a path: all of a submission, else as `tree_files`."""
    return tree_files(root, path, with_ignored=path.is_relative_to(SUBMISSIONS))


def rubric_file(rubric: str) -> Path:
    """Return the tree of a rubric, by its id in params.yaml."""
    return RUBRICS / rubric / "rubric.json"


def human_grades_file(rubric: str, team: str) -> Path:
    """Return a person's grades of a team."""
    return RUBRICS / rubric / "human" / f"{team}.yaml"


def judge_recording_file(team: str) -> Path:
    """Return the recording of the judge's calls about a team's submission."""
    return JUDGE_RECORDINGS / team / "calls.jsonl"


def state_name(submission: Path) -> str:
    """Return the name of the folder with a submission's state: its name, and a hash of its place."""
    folder = submission.resolve()
    return f"{folder.name[:80]}-{sha256_json(str(folder))[:12]}"


def judgement_file(team: str) -> Path:
    """Return the log of the judge's calls about a team's submission."""
    return JUDGEMENTS / team / "calls.jsonl"


def grade_file(team: str) -> Path:
    """Return a team's grade."""
    return GRADES / team / GRADE_FILE


def tag(team: str, trial: Trial) -> str:
    """Return the official name of a trial, `<team>_<letter>_<trial>`."""
    return f"{team}_{trial.letter}_{trial.number}"


def trial_number(name: str) -> int | None:
    """Return the number after the last underscore of a name such as `levels/A/team_A_10.xml`; None without one.

    As JavaScript's parseInt in the official script, it ignores what follows the number.
    """
    match = _TRIAL_NUMBER.match(name.rsplit("_", 1)[-1].split(".", 1)[0])
    return int(match[1]) if match else None


def trial_file(folder: Path, name: StageDir, team: str, trial: Trial) -> Path:
    """Return the official file of a trial below a stage's folder for a model and a team; `name` gives its extension."""
    return folder.joinpath(trial.letter, tag(team, trial) + EXTENSIONS[name])


def letter_file(folder: Path, letter: str) -> Path:
    """Return the official per-letter file of stability, similarity or diversity."""
    return folder / f"{letter}.json"
