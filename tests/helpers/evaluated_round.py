"""A competition's folder as its stages leave it, made by the stages' own functions from replies that a test gives.

Only the classifier is not real: it is asked nothing, because all its predictions lie in its cache beforehand.
"""

import random
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import yaml

from pcgeval.checks.gathering import evidence_stage
from pcgeval.core.files import sha256_bytes, sha256_file, unsynced, write_json, write_text
from pcgeval.core.layout import (
    GRADES,
    OFFICIAL_RESULTS,
    RUBRICS,
    SUBMISSIONS,
    replays_file,
    stage_dir,
    trial_file,
    trials,
)
from pcgeval.core.params import Similarity, parse_params
from pcgeval.core.stage_files import failed, succeeded, write_outcomes
from pcgeval.core.trials import ChatReply, Exchange, Flag, TrialRecord, write_trial
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.generation.tasks import GenerationTask
from pcgeval.judge.stage import grade_stage
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.scoring.stages import rank_stage, score_stage
from pcgeval.similarity.diversity import diversity_stage
from pcgeval.similarity.source import LABELS, resolve_source
from pcgeval.similarity.stage import Prediction, classify_stage, made_by, prediction_file
from pcgeval.submissions.load import load_submission

PARAMS = parse_params(
    {
        "competition": {
            "name": "Test cup",
            "edition": "7",
            "round": "final",
            "characters": "IT",
            "trials": 2,
            "seed": 1,
        },
        "teams": ["zero-shot", "builders", "cheats"],
        "models": {
            "small": {"backend": "recorded", "name": "small:1b", "digest": "a" * 64, "options": {"temperature": 1}},
            "large": {"backend": "ollama", "name": "large:70b"},
        },
        "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
        "physics": {"trials": 1, "seconds": 2},
        "similarity": {},
        "diversity": {},
        "scoring": {"baseline": "zero-shot", "bootstrap": 20},
        "rubric": {"judge": "random", "seed": 1},
    },
    "params.yaml",
)
NOTES = {
    "zero-shot": "title: Zero-shot\nrole: baseline\n",
    "builders": "title: The Builders\n",
    "cheats": (
        "title: The Cheats\ndisqualified: used a picture of the letter\n"
        "findings_accepted: [{code: prompt-too-long, reason: the limit was told late}]\n"
    ),
}
TOWER = "```\ndrop_block('b31', 9)\ndrop_block('b13', 9)\ndrop_block('b31', 9)\n```"
TOPPLING = "```\ndrop_block('b13', 9)\ndrop_block('b31', 10)\ndrop_block('b11', 11)\ndrop_block('b11', 11)\n```"
TOO_WIDE = "```\ndrop_block('b31', 19)\n```"
PROSE = "I am a language model and cannot build."
NO_REPLY = None  # the call failed
RUBRIC = {
    "id": "root",
    "requirements": "The submission is good.",
    "weight": 1,
    "sub_tasks": [
        {
            "id": "prompt",
            "requirements": "The prompt is short.",
            "weight": 1,
            "sub_tasks": [],
            "task_category": "Code Development",
        },
        {
            "id": "levels",
            "requirements": "The levels stand.",
            "weight": 2,
            "sub_tasks": [],
            "task_category": "Result Analysis",
        },
    ],
}


def reply(model, team, trial):
    """Return what a model answers: the large one always builds, the small one seldom; only the builders vary."""
    if model == "large":
        return TOWER if trial.number == 1 and team == "builders" else TOPPLING
    return {("I", 1): TOPPLING, ("I", 2): TOO_WIDE, ("T", 1): PROSE, ("T", 2): NO_REPLY}[trial.letter, trial.number]


@dataclass(frozen=True)
class Noted:
    """The record of a trial besides its reply; each flag is a kind and a detail."""

    calls: int = 1
    flags: tuple[tuple[str, str], ...] = ()
    contained: bool = True


def write_round(
    root,
    params=PARAMS,
    reply=reply,
    notes=None,
    likeness=0.5,
    rubric=None,
    noted=None,
    programs=None,
    classifier="none",
):
    """Fill a folder with everything that the page is made of.

    `noted` says of a model, team and trial what is recorded besides the reply; `programs` maps teams to their files.
    """
    noted = noted or (lambda *_: Noted())
    write_text(root / "params.yaml", yaml.safe_dump(params.model_dump(mode="json"), sort_keys=False))
    for team in params.teams:
        write_submission(root, team, (notes or NOTES).get(team, ""), (programs or {}).get(team))
    write_classifier(root / params.similarity.model, classifier)
    write_json(root / RUBRICS / params.rubric.id / "rubric.json", rubric or RUBRIC)
    with chdir(root), unsynced():
        for model in params.models:
            for team in params.teams:
                evaluate(params, model, team, reply, likeness, noted)
                evidence_stage(params, model, team)
            score_stage(params, model, OFFICIAL_RESULTS / model)
        rank_stage(params)
        for team in params.teams:
            grade_stage(params, team)


def write_submission(root, team, notes, program=None):
    folder = root / SUBMISSIONS / team
    write_text(folder / "README.md", f"This is {team}.\n")
    write_text(folder / "submission.yaml", notes)
    for name, text in (program or {"prompt.txt": f"Build <OBJECT> with drop_block, says {team}.\n"}).items():
        write_text(folder / name, text)


def write_classifier(folder, weights):
    write_json(folder / "config.json", {"id2label": dict(enumerate(LABELS))})
    write_json(folder / "preprocessor_config.json", {})
    write_text(folder / "model.safetensors", weights)


def evaluate(params, model, team, reply, likeness, noted):
    """Run the steps from the replies to the diversity for one model and team, in the present folder."""
    folder = {
        step: stage_dir(step, model, team)
        for step in ("raw", "intermediate", "levels", "stability", "images", "similarity", "diversity")
    }
    every = list(trials(params))
    settings, submission = params.models[model], load_submission(SUBMISSIONS / team)
    task = GenerationTask(submission, settings, settings.digest or "d", params.limits, params.competition.seed)
    for trial in every:
        write_reply(folder["raw"], task, trial, reply(model, team, trial) or "", noted(model, team, trial))
    write_outcomes(folder["raw"], [fate(trial, reply(model, team, trial)) for trial in every])
    extract_stage(folder["raw"], folder["intermediate"], team, every)
    convert_stage(folder["intermediate"], folder["levels"], team, every)
    simulate_stage(
        folder["levels"],
        folder["stability"],
        folder["images"],
        team,
        every,
        physics=params.physics,
        replays=replays_file(model, team),
        processes=1,
    )
    predict(folder["images"], team, every, params.similarity, likeness)
    classify_stage(folder["images"], folder["similarity"], team, every, params.similarity, Path(".cache"))
    competition, vectors = params.competition, params.diversity.vectors
    diversity_stage(
        folder["similarity"], folder["diversity"], team, competition.trials, competition.characters, vectors=vectors
    )


def write_reply(folder, task, trial, text, noted):
    replied = ChatReply(text, 100, 20, "stop", 0.1)
    exchanges = (Exchange("key", replied),) * noted.calls
    flags = tuple(Flag(*each) for each in noted.flags)
    digest = sha256_bytes(text.encode())
    record = TrialRecord(
        task.fingerprint(trial), 1, "m", "d", exchanges, digest, None, flags=flags, contained=noted.contained
    )
    write_trial(folder, task.submission.team, trial, text, record)


def fate(trial, text):
    return succeeded(trial) if text is not None else failed(trial, "generate", "took 501 s; the limit is 500 s")


def predict(images, team, every, settings: Similarity, likeness):
    """Put a prediction for every picture into the classifier's cache: the target letter with some luck on top."""
    maker = made_by(resolve_source(settings.model, settings.revision), settings)
    for trial in every:
        path = trial_file(images, "images", team, trial)
        if path.exists():
            chance = random.Random(f"{trial}{sha256_file(path)}")
            weights = [chance.random() ** 6 for _ in LABELS]
            weights[LABELS.index(trial.letter)] += likeness * 2 * chance.random()
            whole = sum(weights)
            probabilities = tuple(round(weight / whole, 7) for weight in weights)
            prediction = Prediction(probabilities=probabilities, embedding=(chance.random(), 1.0))
            prediction.write(prediction_file(Path(".cache"), maker, sha256_file(path)))


def tree(root):
    """Return the hash of every file below a folder."""
    return {path.relative_to(root): sha256_bytes(path.read_bytes()) for path in root.rglob("*") if path.is_file()}


def grade_path(root, team):
    return root / GRADES / team / "grade.json"
