"""Compare a scored team with the others, to explain its rank."""

from collections.abc import Iterator
from statistics import fmean, median

from pcgeval.report.results import Evaluation, LetterResult, TeamResult

MOST_LETTERS = 5
MEASURES = ("stability", "similarity", "diversity")


def best_other(evaluation: Evaluation, team: TeamResult) -> TeamResult | None:
    """Return the scored team with the highest total but this one; None if it is alone."""
    return next((scored for scored in evaluation.scored_teams if scored is not team), None)


def comparisons(evaluation: Evaluation, team: TeamResult) -> Iterator[tuple[str, list[float]]]:
    """Yield each mean over all models and letters, and the share of failed trials, from 0 to 1.

    Its values are the team's, the median of all scored teams and, if there is one, that of the best other team.
    """
    figures = {scored.name: _figures(scored) for scored in evaluation.scored_teams}
    other = best_other(evaluation, team)
    for name, value in figures[team.name].items():
        values = [value, median(values[name] for values in figures.values())]
        yield name, [*values, figures[other.name][name]] if other else values


def _figures(team: TeamResult) -> dict[str, float]:
    rows = [letter.scores for model in team.models for letter in model.letters if letter.scores]
    means = {name: fmean(float(getattr(row, name)) for row in rows) for name in MEASURES}
    return {**means, "failed trials": team.failed / len(team.trials)}


def lost_letters(evaluation: Evaluation, team: TeamResult) -> list[tuple[str, LetterResult, LetterResult]]:
    """Return the letters in which the best other team is furthest ahead: the model, and the results of both teams."""
    other = best_other(evaluation, team)
    rows = [
        (model.name, *results)
        for model, other_model in zip(team.models, other.models if other else (), strict=False)
        for results in zip(model.letters, other_model.letters, strict=True)
    ]

    def lead(row: tuple[str, LetterResult, LetterResult]) -> float:
        return (evaluation.letter_points(row[2]) or 0) - (evaluation.letter_points(row[1]) or 0)

    return sorted((row for row in rows if lead(row) > 0), key=lead, reverse=True)[:MOST_LETTERS]


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
