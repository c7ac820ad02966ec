"""Why a team stands where it stands: its figures beside those of the others."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean, median

from pcgeval.report.results import Evaluation, LetterResult, ModelResult, TeamResult

MOST_LETTERS = 5


@dataclass(frozen=True)
class Comparison:
    """One figure of a team beside the median of all scored teams and the best other team; shares from 0 to 1."""

    name: str
    own: float
    median: float
    other: float | None


@dataclass(frozen=True)
class LetterShare:
    """One letter with one model: what it gave a team and the best other team, in points of the normalised total."""

    model: str
    own: LetterResult
    other: LetterResult | None
    points: float
    other_points: float


@dataclass(frozen=True)
class Standing:
    """A scored team among the others.

    Attributes:
        other: The team with the highest total but this one; None if it is alone.
        best: The letters that brought it most.
        lost: The letters that brought the other team most more.
    """

    other: TeamResult | None
    comparisons: tuple[Comparison, ...]
    best: tuple[LetterShare, ...]
    lost: tuple[LetterShare, ...]


def standings(evaluation: Evaluation) -> dict[str, Standing]:
    """Return the standing of each scored team by its name."""
    teams = evaluation.scored_teams
    figures = {team.name: _figures(team) for team in teams}
    whole = sum((team.row.total for team in teams if team.row.total), Decimal(0)) or Decimal(1)
    standing = {}
    for team in teams:
        other = next((each for each in teams if each is not team), None)
        shares = list(_shares(team, other, whole))
        standing[team.name] = Standing(
            other=other,
            comparisons=tuple(
                Comparison(
                    name,
                    own,
                    median(figure[name] for figure in figures.values()),
                    figures[other.name][name] if other else None,
                )
                for name, own in figures[team.name].items()
            ),
            best=_first(shares, lambda share: share.points),
            lost=_first(shares, lambda share: share.other_points - share.points),
        )
    return standing


def compared_letters(
    evaluation: Evaluation, model: str, place: int
) -> list[tuple[TeamResult, ModelResult, LetterResult]]:
    """Return the letter at a place in the alphabet of the round as each team made it with a model, the best first."""
    found = [
        (team, each, each.letters[place]) for team in evaluation.teams for each in team.models if each.name == model
    ]
    return sorted(found, key=lambda each: each[2].scores.score if each[2].scores else Decimal(-1), reverse=True)


def _figures(team: TeamResult) -> dict[str, float]:
    """Return the means over all models and letters of what a team's scores are made of, and its share of failures."""
    rows = [letter.scores for model in team.models for letter in model.letters if letter.scores]
    means = {
        name: fmean(float(getattr(row, name)) for row in rows) for name in ("stability", "similarity", "diversity")
    }
    return means | {"failed trials": sum(trial.failure is not None for trial in team.trials) / len(team.trials)}


def _shares(team: TeamResult, other: TeamResult | None, whole: Decimal) -> Iterator[LetterShare]:
    for place, model in enumerate(team.models):
        for number, letter in enumerate(model.letters):
            beside = other.models[place].letters[number] if other else None
            points, other_points = (
                float(100 * each.scores.score / len(model.letters) / whole) if each and each.scores else 0.0
                for each in (letter, beside)
            )
            yield LetterShare(model.name, letter, beside, points, other_points)


def _first(shares: list[LetterShare], key: Callable[[LetterShare], float]) -> tuple[LetterShare, ...]:
    """Return the letters with the highest figures above 0."""
    return tuple(share for share in sorted(shares, key=key, reverse=True)[:MOST_LETTERS] if key(share) > 0)
