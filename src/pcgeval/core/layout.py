"""Every path and file name of a competition, once.

Outputs lie by step first, then `<model>/<team>/<letter>/<team>_<letter>_<trial>.<ext>` with the official file names, so
that a later stage depends on a parent folder and DVC draws the edges.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pcgeval.core.params import Params

Step = Literal["raw", "intermediate", "levels", "images", "stability", "similarity", "diversity"]
EXTENSIONS: dict[Step, str] = {"raw": ".txt", "intermediate": ".txt", "levels": ".xml", "images": ".png"}
STEPS: tuple[Step, ...] = ("raw", "intermediate", "levels", "images", "stability", "similarity", "diversity")

DATA = Path("data")
SUBMISSIONS = DATA / "submissions"
RECORDINGS = DATA / "recordings"
JUDGE_RECORDINGS = RECORDINGS / "judge"  # beside those of the models
RUBRICS = DATA / "rubrics"
EVIDENCE = DATA / "evidence"
JUDGEMENTS = DATA / "judgements"
GRADES = DATA / "grades"
RESULTS = Path("results")
OFFICIAL_RESULTS = RESULTS / "official"
REPORT = RESULTS / "report"
RANKING_CSV = RESULTS / "ranking.csv"
RANKING_JSON = RESULTS / "ranking.json"
METRICS = RESULTS / "metrics.json"
STATE = Path(".pcgeval")  # what lets a killed run go on: outside DVC's outputs and outside git
GRADE_FILE = "grade.json"
TASK_FILE = "task.md"  # beside a rubric: what the submissions were to do, in words; need not be there
TRIALS_FILE = "trials.json"  # beside the official files: what happened to each trial in that step


@dataclass(frozen=True, order=True)
class Trial:
    """One trial of one team: the letter that was asked for and the number of the attempt, from 1."""

    letter: str
    number: int


def trials(params: Params) -> Iterator[Trial]:
    """Yield the trials of one team and model in order: letter by letter."""
    for letter in params.competition.characters:
        for number in range(1, params.competition.trials + 1):
            yield Trial(letter, number)


def step_folder(step: Step, model: str, team: str) -> Path:
    """Return the folder of one step's output for a model and a team."""
    return DATA / step / model / team


def recording_file(model: str, team: str) -> Path:
    """Return the recording of a model's exchanges with a team's submission."""
    return RECORDINGS / model / f"{team}.jsonl"


def recorded_trials_file(model: str, team: str) -> Path:
    """Return the recording of a program's finished trials with a model: they are replayed without running it."""
    return RECORDINGS / model / f"{team}.trials.jsonl"


def evidence_file(model: str, team: str) -> Path:
    """Return where the evidence of a team with one model lies; the team comes first, as a grade needs all models."""
    return EVIDENCE / team / f"{model}.json"


def rubric_file(rubric: str) -> Path:
    """Return the tree of a rubric, by its id in params.yaml."""
    return RUBRICS / rubric / "rubric.json"


def human_grades_files(rubric: str, team: str) -> tuple[Path, Path]:
    """Return where a person's grades of a team may lie: a YAML file, or a CSV file."""
    folder = RUBRICS / rubric / "human"
    return folder / f"{team}.yaml", folder / f"{team}.csv"


def judge_recording_file(team: str) -> Path:
    """Return the recording of the judge's exchanges about a team's submission."""
    return JUDGE_RECORDINGS / f"{team}.jsonl"


def judgement_file(team: str) -> Path:
    """Return where the judge's exchanges about a team's submission are kept while it is graded, and after."""
    return JUDGEMENTS / team / "exchanges.jsonl"


def grade_file(team: str) -> Path:
    """Return a team's grade."""
    return GRADES / team / GRADE_FILE


def tag(team: str, trial: Trial) -> str:
    """Return the official name of a trial, `<team>_<letter>_<trial>`."""
    return f"{team}_{trial.letter}_{trial.number}"


def trial_file(folder: Path, step: Step, team: str, trial: Trial) -> Path:
    """Return the official file of a trial below a step's folder for a model and a team."""
    return folder / trial.letter / (tag(team, trial) + EXTENSIONS[step])


def letter_file(folder: Path, letter: str) -> Path:
    """Return the official per-letter file of stability, similarity or diversity."""
    return folder / f"{letter}.json"
