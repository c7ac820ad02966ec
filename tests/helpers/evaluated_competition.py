"""The small competition of `workspace`, evaluated by the stages' own functions in this process, without DVC."""

from contextlib import chdir
from pathlib import Path

from workspace import make_workspace

from pcgeval.checks.gathering import evidence_stage
from pcgeval.core.files import unsynced
from pcgeval.core.layout import (
    OFFICIAL_RESULTS,
    STAGE_DIRS,
    SUBMISSIONS,
    recorded_trials_file,
    recording_file,
    replays_file,
    stage_dir,
    trials,
)
from pcgeval.core.params import Params, load_params
from pcgeval.evaluator.stage import simulate_stage
from pcgeval.generation.generate import generate_stage
from pcgeval.judge.stage import grade_stage
from pcgeval.levels.stages import convert_stage, extract_stage
from pcgeval.llm.backends import open_backend
from pcgeval.scoring.stages import rank_stage, score_stage
from pcgeval.similarity.diversity import diversity_stage
from pcgeval.similarity.stage import classify_stage
from pcgeval.submissions.load import load_submission

STAGES = ("generate", "extract", "convert", "simulate", "classify", "diversity", "evidence", "score", "rank", "grade")


def make_evaluated(folder: Path) -> Path:
    """Lay out the competition and run every stage but the report."""
    make_workspace(folder)
    evaluate(folder)
    return folder


def evaluate(folder: Path, since: str = "generate") -> None:
    """Run the stages from one on: what was altered before it is then what all later files follow from."""
    with chdir(folder), unsynced():
        params = load_params()
        stages = STAGES[STAGES.index(since) :]
        for model in params.models:
            for team in params.teams:
                _evaluate(params, model, team, stages)
            if "score" in stages:
                score_stage(params, model, OFFICIAL_RESULTS / model)
        if "rank" in stages:
            rank_stage(params)
        for team in params.teams:
            grade_stage(params, team)


def _evaluate(params: Params, model: str, team: str, stages: tuple[str, ...]) -> None:
    raw, intermediate, levels, images, stability, similarity, diversity = (
        stage_dir(name, model, team) for name in STAGE_DIRS
    )
    all_trials, rules = list(trials(params)), params.competition
    run = {
        "generate": lambda: generate_stage(
            params,
            model,
            load_submission(SUBMISSIONS / team),
            open_backend(params.models[model], recording_file(model, team)),
            raw,
            lambda *_: None,
            recorded_trials=recorded_trials_file(model, team),
        ),
        "extract": lambda: extract_stage(raw, intermediate, team, all_trials),
        "convert": lambda: convert_stage(intermediate, levels, team, all_trials),
        "simulate": lambda: simulate_stage(
            levels,
            stability,
            images,
            team,
            all_trials,
            physics=params.physics,
            replays=replays_file(model, team),
            processes=1,
        ),
        "classify": lambda: classify_stage(images, similarity, team, all_trials, params.similarity),
        "diversity": lambda: diversity_stage(
            similarity, diversity, team, rules.trials, rules.characters, params.diversity.vectors
        ),
        "evidence": lambda: evidence_stage(params, model, team),
    }
    for stage in stages:
        if stage in run:
            run[stage]()
