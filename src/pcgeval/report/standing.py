"""Why a team stands where it stands: its figures beside the others', and the ranking under other circumstances."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import fmean, median
from string import ascii_lowercase

from pcgeval.core.stage_files import RankedTeam
from pcgeval.report.results import Evaluation, LetterResult, ModelResult, TeamResult
from pcgeval.scoring.alternatives import Alternatives, Gain, Totals, alternatives, places
from pcgeval.scoring.decimals import from_float
from pcgeval.scoring.inputs import CompetitionResults, Entry, LetterResults, ScoringRules, TeamResults

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
class GainWorth:
    """A team's normalised total and rank after a gain; `rank` is None for a team that has none."""

    gain: Gain
    normalised: float
    more: float
    rank: int | None


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
    gains: tuple[GainWorth, ...]


@dataclass(frozen=True)
class Firmness:
    """How firm a team's rank is.

    Attributes:
        groups: The names of the groups, `a` first, of teams whose intervals all overlap; none if its own overlaps none.
        unweighted: Its rank if all letters weighed the same.
        without_model: Its rank without each model.
    """

    team: TeamResult
    groups: str
    unweighted: int
    without_model: Mapping[str, int]


def standings(evaluation: Evaluation, found: Alternatives) -> dict[str, Standing]:
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
                    median(each[name] for each in figures.values()),
                    figures[other.name][name] if other else None,
                )
                for name, own in figures[team.name].items()
            ),
            best=_first(shares, lambda each: each.points),
            lost=_first(shares, lambda each: each.other_points - each.points),
            gains=tuple(
                GainWorth(
                    gain,
                    totals[team.name],
                    totals[team.name] - found.held[team.name],
                    None if team.row.rank is None else ranks_among(evaluation, totals)[team.name],
                )
                for gain, totals in found.gains[team.name].items()
            ),
        )
    return standing


def firmness(evaluation: Evaluation, found: Alternatives) -> tuple[Firmness, ...]:
    """Return how firm the ranks of the ranked teams are, in their order."""
    ranked = [team for team in evaluation.scored_teams if team.row.rank is not None]
    groups = overlapping([team.row for team in ranked])
    unweighted = ranks_among(evaluation, found.unweighted)
    without = {model: ranks_among(evaluation, totals) for model, totals in found.without_model.items()}
    return tuple(
        Firmness(
            team,
            ", ".join(ascii_lowercase[number] for number, group in enumerate(groups) if team.name in group),
            unweighted[team.name],
            {model: without[model][team.name] for model in evaluation.params.models if model in without},
        )
        for team in ranked
    )


def compared_letters(
    evaluation: Evaluation, model: str, place: int
) -> list[tuple[TeamResult, ModelResult, LetterResult]]:
    """Return the letter at a place in the alphabet of the round as each team made it with a model, the best first."""
    found = [
        (team, each, each.letters[place]) for team in evaluation.teams for each in team.models if each.name == model
    ]
    return sorted(found, key=lambda each: each[2].scores.score if each[2].scores else Decimal(-1), reverse=True)


def alternatives_of(evaluation: Evaluation) -> Alternatives:
    """Score the round again under other circumstances, from what its page shows of the trials."""
    competition, scoring = evaluation.params.competition, evaluation.params.scoring
    rules = ScoringRules(competition.characters, competition.trials, baseline=scoring.baseline)
    results = {
        model: {
            team.name: TeamResults({letter.letter: _results(letter) for letter in team.models[place].letters})
            for team in evaluation.scored_teams
        }
        for place, model in enumerate(evaluation.params.models)
    }
    return alternatives(CompetitionResults(results), rules)


def ranks_among(evaluation: Evaluation, totals: Totals) -> dict[str, int]:
    """Return the ranks that totals would give the ranked teams."""
    ranked = {team.name for team in evaluation.scored_teams if team.row.rank is not None}
    return places({team: total for team, total in totals.items() if team in ranked})


def overlapping(rows: Sequence[RankedTeam]) -> list[set[str]]:
    """Return the largest groups of two teams or more whose intervals all overlap, the highest intervals first."""
    spans = [(row.team, row.interval) for row in rows if row.interval]
    groups: list[set[str]] = []
    for low in sorted({interval.low for _, interval in spans}, reverse=True):
        # intervals that all overlap have a point in common, and the highest of their lower ends is one
        group = {team for team, interval in spans if interval.low <= low <= interval.high}
        if len(group) > 1 and not any(group <= each for each in groups):
            groups = [each for each in groups if not each < group] + [group]
    return groups[: len(ascii_lowercase)]


def _results(letter: LetterResult) -> LetterResults:
    stability, similarity = (
        tuple(
            Entry(trial.trial.number, from_float(value))
            for trial in letter.trials
            if (value := getattr(trial, name)) is not None
        )
        for name in ("stability", "similarity")
    )
    return LetterResults(stability, similarity, letter.scores.diversity if letter.scores else None)


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
    return tuple(each for each in sorted(shares, key=key, reverse=True)[:MOST_LETTERS] if key(each) > 0)
