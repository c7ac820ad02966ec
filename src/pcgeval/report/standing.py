"""Compare a scored team with the others, to explain its rank."""

from collections.abc import Iterator
from statistics import fmean, median
from typing import NamedTuple

from pcgeval.report.results import Evaluation, LetterResult, TeamResult

MOST_LETTERS = 5
MEASURES = ("stability", "similarity", "diversity")


class Comparison(NamedTuple):
    """One figure of a team, from 0 to 1, beside the median of all scored teams and the best other team."""

    name: str
    value: float
    median: float
    other: float | None


class LostLetter(NamedTuple):
    """One letter with one model by a team and by the best other team, and the points of both."""

    model: str
    letter: LetterResult
    other: LetterResult
    points: float
    other_points: float


def best_other(evaluation: Evaluation, team: TeamResult) -> TeamResult | None:
    """Return the scored team with the highest total but this one; None if it is alone."""
    return next((scored for scored in evaluation.scored_teams if scored is not team), None)


def comparisons(evaluation: Evaluation, team: TeamResult) -> Iterator[Comparison]:
    """Yield a team's means over all models and letters, and its share of failed trials."""
    figures = {scored.name: _figures(scored) for scored in evaluation.scored_teams}
    other = best_other(evaluation, team)
    for name, value in figures[team.name].items():
        middle = median(values[name] for values in figures.values())
        yield Comparison(name, value, middle, figures[other.name][name] if other else None)


def _figures(team: TeamResult) -> dict[str, float]:
    rows = [letter.scores for model in team.models for letter in model.letters if letter.scores]
    means = {name: fmean(float(getattr(row, name)) for row in rows) for name in MEASURES}
    return {**means, "failed trials": team.failed / len(team.trials)}


def lost_letters(evaluation: Evaluation, team: TeamResult) -> list[LostLetter]:
    """Return the letters in which the best other team is furthest ahead, the furthest first."""
    other, rows = best_other(evaluation, team), []
    for model, other_model in zip(team.models, other.models if other else (), strict=False):
        for letter, other_letter in zip(model.letters, other_model.letters, strict=True):
            points, other_points = (evaluation.letter_points(result) or 0 for result in (letter, other_letter))
            if other_points > points:
                rows.append(LostLetter(model.name, letter, other_letter, points, other_points))
    return sorted(rows, key=lambda row: row.points - row.other_points)[:MOST_LETTERS]


def heat_map(evaluation: Evaluation, figure: str) -> dict[tuple[str, str], list[float]]:
    """Return the points or one of the measures of all letters by scored team and model."""

    def value(letter: LetterResult) -> float:
        is_points = figure == "points"
        return (evaluation.letter_points(letter) or 0.0) if is_points else float(getattr(letter.scores, figure))

    return {
        (team.name, model.name): [value(letter) for letter in model.letters]
        for team in evaluation.scored_teams
        for model in team.models
    }
