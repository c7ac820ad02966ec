"""The ids of the page's places, so that links and places agree. Names of teams and models are safe in ids."""

from pcgeval.core.conduct import FlagKind
from pcgeval.core.layout import Trial
from pcgeval.report.results import ModelResult, TeamResult


def team_id(team: TeamResult) -> str:
    """Return the id of a team's levels."""
    return f"team-{team.row.team}"


def grade_id(team: TeamResult) -> str:
    """Return the id of a team's rubric grade."""
    return f"grade-{team.row.team}"


def model_id(team: TeamResult, model: ModelResult) -> str:
    """Return the id of a team's levels with a model."""
    return f"{team.row.team}.{model.model}"


def letter_id(team: TeamResult, model: ModelResult, letter: str) -> str:
    """Return the id of the levels of one letter."""
    return f"{model_id(team, model)}.{letter}"


def trial_id(team: TeamResult, model: ModelResult, trial: Trial) -> str:
    """Return the id of a trial's picture; only flagged trials have one."""
    return f"{letter_id(team, model, trial.letter)}.{trial.number}"


def flag_id(team: TeamResult, model: ModelResult, kind: FlagKind) -> str:
    """Return the id of the line about the trials with one kind of flag."""
    return f"{model_id(team, model)}.{kind}"
