"""A competition's folder as its stages leave it, made by the stages themselves from replies that a test gives."""

import shutil
from dataclasses import dataclass
from itertools import product

import yaml
from params_for_tests import small_params
from rubric_trees import RESULT, leaf, node
from workspace import REPOSITORY, evaluate, write_submission

from pcgeval.core.files import sha256_text, write_json, write_text
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import RUBRICS, SUBMISSIONS, stage_dir, summaries_file
from pcgeval.formats.trials import ChatReply, Exchange, Flag, TrialRecord, write_trial
from pcgeval.generation.summaries import summarise_trials
from pcgeval.generation.tasks import GenerationTask
from pcgeval.submissions.load import load_submission

PARAMS = small_params(
    "IT",
    teams={
        "zero-shot": {"title": "Zero-shot", "role": "baseline"},
        "builders": {"title": "The Builders"},
        "cheats": {"title": "The Cheats", "disqualified": "used a picture of the letter"},
    },
    models={
        "small": {"backend": "recorded", "name": "small:1b", "digest": "a" * 64, "options": {"temperature": 1}},
        "large": {"backend": "ollama", "name": "large:70b"},
    },
    physics={"trials": 1, "seconds": 2},
    scoring={"baseline": "zero-shot", "bootstrap": 20},
    rubric={"judge": "random", "seed": 1},
)
TOWER = "```\ndrop_block('b31', 9)\ndrop_block('b13', 9)\ndrop_block('b31', 9)\n```"
TOPPLING = "```\ndrop_block('b13', 9)\ndrop_block('b31', 10)\ndrop_block('b11', 11)\ndrop_block('b11', 11)\n```"
RUBRIC = node("root", 1, leaf("prompt"), leaf("levels", 2, RESULT))


def reply(model, team, trial):
    """Return what a model answers: the large one always builds, the small one seldom; only the builders vary."""
    if model == "large":
        return TOWER if trial.number == 1 and team == "builders" else TOPPLING
    too_wide, no_code, no_reply = "```\ndrop_block('b31', 19)\n```", "I am a language model and cannot build.", None
    return {"I1": TOPPLING, "I2": too_wide, "T1": no_code, "T2": no_reply}[f"{trial.letter}{trial.number}"]


@dataclass(frozen=True)
class Noted:
    """The record of a trial besides its reply; each flag is a kind and a detail."""

    calls: int = 1
    flags: tuple[tuple[str, str], ...] = ()
    contained: bool = True


def write_round(root, params=PARAMS, reply=reply, *, rubric=None, noted=None, programs=None):
    """Fill a folder with everything that the page is made of.

    `noted` says of a model, team and trial what is recorded besides the reply; `programs` maps teams to their files.
    """
    noted = noted or (lambda *_: Noted())
    write_text(root / "params.yaml", yaml.safe_dump(params.model_dump(mode="json"), sort_keys=False))
    for team in params.teams:
        work = (programs or {}).get(team, {"prompt.txt": f"Build <OBJECT> with drop_block, says {team}.\n"})
        write_submission(root, team, {"README.md": f"This is {team}.\n", **work})
    shutil.copytree(REPOSITORY / params.similarity.model, root / params.similarity.model, dirs_exist_ok=True)
    write_json(root / RUBRICS / params.rubric.id / "rubric.json", rubric or RUBRIC)
    for model, team in product(params.models, params.teams):
        write_replies(root, params, model, team, reply, noted)
    evaluate(root, since="extract", until="grade")


def write_replies(root, params, model, team, reply, noted):
    """Write the responses and records of one model and team as the stage generate does."""
    settings, submission = params.models[model], load_submission(root / SUBMISSIONS / team, params.teams[team])
    raw = root / stage_dir("raw", model, team)
    task = GenerationTask(submission, settings, settings.digest or "d", params.limits, params.competition.seed)
    for trial in params.trials():
        text, note = reply(model, team, trial), noted(model, team, trial)
        record = TrialRecord(
            fingerprint=task.fingerprint(trial),
            seed=1,
            model="m",
            digest="d",
            exchanges=(Exchange("key", ChatReply(text or "", 100, 20, "stop", 0.1, model=settings.name)),) * note.calls,
            response_sha256=sha256_text(text or ""),
            failure=failure("late-call", seconds=500) if text is None else None,
            flags=tuple(Flag(*flag) for flag in note.flags),
            contained=note.contained,
        )
        write_trial(raw, team, trial, text or "", record)
    summarise_trials(root / summaries_file(model, team), raw, submission, params.trials(), settings)
