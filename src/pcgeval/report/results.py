"""The content of the page as one tree: evaluation, team, model, letter, trial.

A score stands on the page as a share: in percent of all points, which are the totals of all teams together. The shares
of a team's trials add up to those of a letter, of a model, and to the team's normalised total.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from operator import attrgetter
from statistics import fmean
from typing import NamedTuple

from pcgeval.formats.failures import Failure
from pcgeval.formats.layout import Trial
from pcgeval.formats.params import Params
from pcgeval.formats.results import LetterRow, OfficialWeight, RankedTeam, RankingFile
from pcgeval.formats.stages import FilePart, SimulatedLevel
from pcgeval.formats.trial_view import TrialView
from pcgeval.formats.trials import FLAG_KINDS, FlagKind
from pcgeval.rubric.output import JudgeOutput
from pcgeval.submissions.load import Submission

MOST_REASONS = 10
MOST_DETAILS = 3  # different ones, of one kind of flag with one model
SHOWCASE = 3  # levels on the first screen
NUMBERS = {2: "two", 3: "three"}
MEASURES = ("stability", "similarity", "diversity")


@dataclass(frozen=True)
class LetterResult:
    """One letter of a team with a model; `scores` is None for a disqualified team."""

    letter: str
    weight: OfficialWeight
    scores: LetterRow | None
    trials: tuple[TrialView, ...]

    @property
    def best(self) -> TrialView | None:
        """The level that a person would choose; None if all trials failed."""
        return max(self._levels, key=attrgetter("merit"), default=None)

    @property
    def _levels(self) -> list[TrialView]:
        return [trial for trial in self.trials if not trial.failure]

    def why_zero(self, trial: TrialView) -> str | None:
        """Return why a trial of the letter adds nothing; None if it adds something or the team has no scores."""
        if trial.failure:
            return f"failed: {trial.failure.type.title}"
        if self.scores is None or (trial.score and self.scores.diversity):
            return None
        if not trial.stability:
            return "no block stayed in place" if trial.level and trial.level.types else "the level is empty"
        if not trial.similarity:
            return "similarity 0: the classifier does not see the letter"
        levels = len(self._levels)
        if levels == 1:
            return "one level alone has no diversity"
        return f"{NUMBERS.get(levels, levels)} equal levels have no diversity"


@dataclass(frozen=True)
class ModelResult:
    """One model's part of a team's result."""

    name: str  # the model's key in params.yaml
    score: Decimal | None  # the official prompt score; None for a disqualified team
    letters: tuple[LetterResult, ...]
    engine_sha256: str  # of what simulated its levels, see `bulk.level_table`
    classifier_sha256: str | None  # of the classifier's files; None if it is not known

    @cached_property
    def trials(self) -> tuple[TrialView, ...]:
        """All trials in order."""
        return tuple(trial for letter in self.letters for trial in letter.trials)

    @property
    def failed(self) -> int:
        """The number of failed trials."""
        return sum(trial.failure is not None for trial in self.trials)


class ProgramSource(NamedTuple):
    """The start of a program's entry, that of its README if it has one, and the number and bytes of its files."""

    entry: str
    readme: str | None
    files: int
    size: int


class FlaggedTrials(NamedTuple):
    """The trials of a team and model with one kind of flag; a detail stands beside the trial in which it came first."""

    model: str
    kind: FlagKind
    trials: int
    details: tuple[tuple[str, Trial], ...]


@dataclass(frozen=True)
class TeamResult:
    """The results of one team; `program` is None for a prompt."""

    row: RankedTeam
    title: str  # the submission's, which no other team has
    submission: Submission
    submission_sha256: str
    program: ProgramSource | None
    grade: JudgeOutput
    models: tuple[ModelResult, ...]

    @property
    def name(self) -> str:
        """The name of the team's folder."""
        return self.row.team

    @property
    def is_disqualified(self) -> bool:
        """Whether the team is listed without scores."""
        return self.row.status == "disqualified"

    @cached_property
    def trials(self) -> tuple[TrialView, ...]:
        """All trials with all models."""
        return tuple(trial for model in self.models for trial in model.trials)

    @property
    def failed(self) -> int:
        """The number of failed trials."""
        return sum(model.failed for model in self.models)

    @property
    def flagged(self) -> int:
        """The number of trials with a flag."""
        return sum(bool(trial.flags) for trial in self.trials)

    @property
    def flags(self) -> list[FlaggedTrials]:
        """The flagged trials by model and kind."""
        flags = []
        for model in self.models:
            for kind in FLAG_KINDS:
                trials = [trial for trial in model.trials if kind in trial.flags]
                details: dict[str, Trial] = {}
                for trial in trials:
                    details.setdefault(trial.flags[kind].detail, trial.trial)
                if trials:
                    first = tuple(details.items())[:MOST_DETAILS]
                    flags.append(FlaggedTrials(model.name, kind, len(trials), first))
        return flags

    @property
    def outside_sandbox(self) -> int:
        """The number of trials in which the team's program ran without a sandbox."""
        return sum(trial.usage is not None and not trial.usage.contained for trial in self.trials)

    @property
    def measures(self) -> dict[str, float]:
        """The mean stability, similarity and diversity over all models and letters; empty without scores."""
        rows = [letter.scores for model in self.models for letter in model.letters if letter.scores]
        return {name: fmean(float(getattr(row, name)) for row in rows) for name in (MEASURES if rows else ())}


class ShownLevel(NamedTuple):
    """A level in a gallery."""

    team: TeamResult
    model: ModelResult
    letter: LetterResult
    trial: TrialView


class ReferenceLevel(FilePart):
    """A hand-made level: what was measured, and its blocks after the simulation."""

    stability: float
    similarity: float
    simulated: SimulatedLevel


@dataclass(frozen=True)
class Evaluation:
    """A whole evaluated round; the teams stand in the order of the ranking, models and letters in that of params.

    `reference` are hand-made levels.
    """

    params: Params
    ranking: RankingFile
    teams: tuple[TeamResult, ...]
    reference: Mapping[str, ReferenceLevel]

    @cached_property
    def scored_teams(self) -> tuple[TeamResult, ...]:
        """The teams that are not disqualified."""
        return tuple(team for team in self.teams if not team.is_disqualified)

    def own_levels(self, letter: str) -> list[ShownLevel]:
        """Return the best level of a letter that each scored team's models built themselves, the best first."""
        best = []
        for team in self.scored_teams:
            levels = [
                ShownLevel(team, model, result, trial)
                for model in team.models
                for result in model.letters
                if result.letter == letter
                for trial in result.trials
                if trial.is_own and trial.likeness
            ]
            if levels:
                best.append(max(levels, key=attrgetter("trial.merit")))
        return sorted(best, key=attrgetter("trial.merit"), reverse=True)

    @cached_property
    def showcase(self) -> list[ShownLevel]:
        """The best of these levels, of different letters, the best first."""
        best = [level for letter in self.params.competition.characters for level in self.own_levels(letter)[:1]]
        return sorted(best, key=attrgetter("trial.merit"), reverse=True)[:SHOWCASE]

    @property
    def verdict(self) -> str:
        """Who won by how much, in one sentence."""
        winners = [team for team in self.scored_teams if team.row.winner]
        ranked = [team for team in self.scored_teams if team.row.status == "ranked"]
        baseline = next((team for team in self.scored_teams if team.name == self.ranking.baseline), None)
        if len(winners) == 1:
            points = f"{winners[0].title} wins with {winners[0].row.normalised:.2f} % of all points"
            other = next((team for team in self.scored_teams if team is not winners[0]), None)
            gap = (winners[0].row.normalised or 0) - (other.row.normalised or 0) if other else 0
            return f"{points}, {gap:.2f} more than {other.title}." if other and gap > 0 else f"{points}."
        if not winners and ranked and baseline:
            best = f"The best team, {ranked[0].title}, has {ranked[0].row.normalised:.2f} % of all points"
            return f"No team beats the baseline. {best}; {baseline.title} has {baseline.row.normalised:.2f} %."
        return self.ranking.reason

    @cached_property
    def _totals(self) -> Decimal:
        return sum((team.row.total for team in self.scored_teams if team.row.total), Decimal(0)) or Decimal(1)

    def points(self, score: Decimal | None) -> float | None:
        """Return a model's score, which is a part of its team's total, in percent of all points."""
        return None if score is None else float(100 * score / self._totals)

    def letter_points(self, letter: LetterResult) -> float | None:
        """Return the share of all points that a letter with one model gives its team."""
        if letter.scores is None:
            return None
        return self.points(letter.scores.score / len(self.params.competition.characters))

    @cached_property
    def letter_shares(self) -> dict[tuple[str, str], list[float]]:
        """The share of all points that each letter gives, by scored team and model."""
        return {
            (team.name, model.name): [self.letter_points(letter) or 0.0 for letter in model.letters]
            for team in self.scored_teams
            for model in team.models
        }

    def trial_points(self, letter: LetterResult, trial: TrialView) -> float | None:
        """Return the share of all points that a trial of a letter gives its team: none without diversity."""
        if letter.scores is None or trial.score is None:
            return None
        shares = len(letter.trials) * len(self.params.competition.characters)
        return self.points(trial.score * letter.scores.diversity / shares)


def shares_by_model(row: RankedTeam) -> dict[str, Decimal]:
    """Return a team's scores with each model in percent of all points; they add up to its normalised total."""
    if row.normalised is None or row.total is None:
        return {}
    unit = row.normalised / (row.total or 1)
    return {model: unit * result.score for model, result in row.models.items()}


def commonest_failures(trials: Iterable[TrialView]) -> list[tuple[str, str, int]]:
    """Return the commonest kinds of failures: the kind's title, the sentence of the first trial, and the number."""
    kinds: dict[str, list[Failure]] = {}
    for trial in trials:
        if trial.failure:
            kinds.setdefault(trial.failure.kind, []).append(trial.failure)
    ordered = sorted(kinds.values(), key=lambda failures: (-len(failures), failures[0].kind))
    return [(failures[0].type.title, failures[0].sentence, len(failures)) for failures in ordered[:MOST_REASONS]]
