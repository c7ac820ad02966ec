"""Why a team stands where it stands: its figures beside those of the others."""

from dataclasses import dataclass
from statistics import fmean, median

from pcgeval.report.results import Evaluation, LetterResult, TeamResult

MOST_LETTERS = 5
MEASURES = ("stability", "similarity", "diversity")


@dataclass(frozen=True)
class Comparison:
    """One figure of a team, from 0 to 1, beside the median of all scored teams and the best other team."""

    name: str
    value: float
    median: float
    other: float | None


@dataclass(frozen=True)
class LostLetter:
    """One letter with one model by a team and by the best other team, and the points of both."""

    model: str
    letter: LetterResult
    other: LetterResult
    points: float
    other_points: float


@dataclass(frozen=True)
class Standing:
    """A scored team among the others.

    Attributes:
        other: The team with the highest total but this one; None if it is alone.
        comparisons: The means over all models and letters, and the share of failed trials.
        lost: The letters in which the other team is furthest ahead, the furthest first.
    """

    other: TeamResult | None
    comparisons: tuple[Comparison, ...]
    lost: tuple[LostLetter, ...]


def standing_of(evaluation: Evaluation, team: TeamResult) -> Standing:
    """Return the standing of a scored team."""
    figures = {scored.name: _figures(scored) for scored in evaluation.scored_teams}
    other = next((scored for scored in evaluation.scored_teams if scored is not team), None)
    comparisons = tuple(
        Comparison(
            name,
            value,
            median(values[name] for values in figures.values()),
            figures[other.name][name] if other else None,
        )
        for name, value in figures[team.name].items()
    )
    lost = sorted(_lost_letters(evaluation, team, other), key=lambda row: row.points - row.other_points)
    return Standing(other, comparisons, tuple(lost[:MOST_LETTERS]))


def _figures(team: TeamResult) -> dict[str, float]:
    rows = [letter.scores for model in team.models for letter in model.letters if letter.scores]
    means = {name: fmean(float(getattr(row, name)) for row in rows) for name in MEASURES}
    return {**means, "failed trials": team.failed / len(team.trials)}


def _lost_letters(evaluation: Evaluation, team: TeamResult, other: TeamResult | None) -> list[LostLetter]:
    rows = []
    for model, other_model in zip(team.models, other.models if other else (), strict=False):
        for letter, other_letter in zip(model.letters, other_model.letters, strict=True):
            points, other_points = (evaluation.letter_points(result) or 0 for result in (letter, other_letter))
            if other_points > points:
                rows.append(LostLetter(model.name, letter, other_letter, points, other_points))
    return rows
