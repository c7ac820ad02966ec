"""The content of the page as one tree: evaluation, team, model, letter, trial.

A score stands on the page in points: 100 points are the totals of all teams together, so that the points of a team's
trials add up to those of a letter, of a model, and to the team's normalised total.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import NamedTuple

from pcgeval.core.layout import Trial
from pcgeval.core.params import Params
from pcgeval.core.stage_files import (
    BlockPath,
    LabelProbability,
    LetterRow,
    OfficialWeight,
    RankedTeam,
    RankingFile,
    SimulatedTrial,
    TrialOutcome,
)
from pcgeval.core.trials import FLAG_KINDS, FlagKind, TrialUsage
from pcgeval.evaluator.level_score import LevelScore
from pcgeval.report.conversation import ConversationMessage
from pcgeval.report.formats import shortened
from pcgeval.rubric.grades import JudgeOutput
from pcgeval.submissions.load import Submission

LONGEST_REASON = 240  # characters
MOST_REASONS = 10
SHOWCASE = 3  # levels on the first screen
FAILURE_WORDS = {  # by the stage in which a trial failed
    "generate": "reply failed",
    "extract": "no code",
    "convert": "no valid level",
    "simulate": "not simulated",
    "classify": "not classified",
}


@dataclass(frozen=True)
class TrialResult:
    """One trial of a team with a model.

    What a trial did not reach is None: a failed one has no similarity, and no level or stability if it failed before
    the simulation; the trials of a disqualified team have no score.
    """

    trial: Trial
    outcome: TrialOutcome
    level: SimulatedTrial | None  # the blocks at the end of the simulation
    paths: tuple[BlockPath, ...]  # the ways of the blocks that moved visibly or broke
    stability: float | None
    similarity: float | None
    probabilities: tuple[LabelProbability, ...]  # the most likely letter first
    score: Decimal | None  # the official one
    reply: str  # the start of the response
    code: str  # the calls that were extracted from it, a line each
    usage: TrialUsage | None  # None without a record

    @property
    def failed_stage(self) -> str | None:
        """The stage in which the trial failed; None if it did not."""
        return self.outcome.failed_stage

    @property
    def reason(self) -> str:
        """Why the trial failed, without the stage."""
        reason = self.outcome.reason or "no reason was recorded"
        return shortened(reason.removeprefix(f"{FAILURE_WORDS.get(self.failed_stage or '')}: "), LONGEST_REASON)

    @property
    def likeness(self) -> float:
        """Stability times similarity, without the weight, which differs between models."""
        return (self.stability or 0) * (self.similarity or 0)

    @cached_property
    def flag_kinds(self) -> tuple[FlagKind, ...]:
        """The kinds of its flags, each once."""
        return tuple(kind for kind in FLAG_KINDS if self.usage and self.usage.flag(kind))

    @property
    def is_fragile(self) -> bool:
        """Whether the jittered starts end with different stabilities."""
        return self.level is not None and len(set(self.level.starts)) > 1

    @property
    def why_zero(self) -> str | None:
        """Why a trial that did not fail scores 0; None if it failed or scores."""
        if self.stability == 0:
            is_empty = self.level is None or not self.level.types
            return "zero: the level is empty" if is_empty else "zero: no block stayed in place"
        if self.similarity == 0:
            article = "an" if self.trial.letter in "AEFHILMNORSX" else "a"
            return f"zero: nothing of {article} {self.trial.letter} in it"
        return None


class _WithTrials:
    trials: tuple[TrialResult, ...]

    @property
    def failed(self) -> int:
        """The number of failed trials."""
        return sum(trial.failed_stage is not None for trial in self.trials)


@dataclass(frozen=True)
class LetterResult(_WithTrials):
    """One letter of a team with a model; `scores` is None for a disqualified team."""

    letter: str
    weight: OfficialWeight
    scores: LetterRow | None
    trials: tuple[TrialResult, ...]

    @property
    def best(self) -> TrialResult | None:
        """The trial with the highest stability times similarity; None if all failed."""
        levels = (trial for trial in self.trials if not trial.failed_stage)
        return max(levels, key=lambda trial: trial.likeness, default=None)

    @property
    def why_zero(self) -> str | None:
        """Why a letter with scoring trials scores 0 all the same, or None."""
        if self.scores is None or self.scores.diversity or not any(trial.score for trial in self.trials):
            return None
        if len(self.trials) - self.failed < 2:
            return "zero: a single level has no diversity"
        return "zero: the classifier sees no difference between the levels"


@dataclass(frozen=True)
class ModelResult(_WithTrials):
    """One model's part of a team's result."""

    name: str  # the model's key in params.yaml
    score: Decimal | None  # the official prompt score; None for a disqualified team
    letters: tuple[LetterResult, ...]
    engine_sha256: str  # of what simulated its levels, see `core.level_table`
    classifier_sha256: str | None  # of the classifier's files; None if it is not known

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:  # type: ignore[override]
        """All trials in order."""
        return tuple(trial for letter in self.letters for trial in letter.trials)

    @property
    def fates(self) -> dict[str, int]:
        """The number of trials that became a level (`level`) and that each stage lost (`lost-STAGE`)."""
        lost = Counter(trial.failed_stage for trial in self.trials)
        return {"level": lost[None]} | {f"lost-{stage}": lost[stage] for stage in FAILURE_WORDS}


class SourceFile(NamedTuple):
    """One file of a program: its name relative to the program's folder, its length in bytes, and its SHA-256."""

    name: str
    size: int
    sha256: str


class ProgramSource(NamedTuple):
    """The start of a program's entry, that of its README if it has one, and all its files."""

    entry: str
    readme: str | None
    files: tuple[SourceFile, ...]


class FlaggedTrials(NamedTuple):
    """The trials of a team and model with one kind of flag.

    `details` are the first details, the trial in which a detail came first, and the conversation of that trial.
    """

    model: str
    kind: FlagKind
    trials: int
    details: tuple[tuple[str, TrialResult, tuple[ConversationMessage, ...]], ...]


@dataclass(frozen=True)
class TeamResult(_WithTrials):
    """The results of one team; `program` is None for a prompt."""

    row: RankedTeam
    title: str  # the submission's, which no other team has
    submission: Submission
    submission_sha256: str
    program: ProgramSource | None
    grade: JudgeOutput
    models: tuple[ModelResult, ...]
    flags: tuple[FlaggedTrials, ...]

    @property
    def name(self) -> str:
        """The name of the team's folder."""
        return self.row.team

    @property
    def is_disqualified(self) -> bool:
        """Whether the team is listed without scores."""
        return self.row.status == "disqualified"

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:  # type: ignore[override]
        """All trials with all models."""
        return tuple(trial for model in self.models for trial in model.trials)

    @property
    def flagged(self) -> int:
        """The number of trials with a flag."""
        return sum(bool(trial.flag_kinds) for trial in self.trials)

    @property
    def outside_sandbox(self) -> int:
        """The number of trials in which the team's program ran without a sandbox."""
        return sum(trial.usage is not None and not trial.usage.contained for trial in self.trials)

    @cached_property
    def best_levels(self) -> dict[str, tuple[ModelResult, TrialResult]]:
        """The model and trial with the highest stability times similarity by letter; only letters with a level."""
        best: dict[str, tuple[ModelResult, TrialResult]] = {}
        for model in self.models:
            for letter in model.letters:
                level, (_, before) = letter.best, best.get(letter.letter, (None, None))
                if level and (before is None or level.likeness > before.likeness):
                    best[letter.letter] = (model, level)
        return best

    @property
    def showcase(self) -> list[tuple[ModelResult, TrialResult]]:
        """The team's best levels of different letters, the best first."""
        scoring = [level for level in self.best_levels.values() if level[1].likeness]
        return sorted(scoring, key=lambda level: -level[1].likeness)[:SHOWCASE]


@dataclass(frozen=True)
class Evaluation:
    """A whole evaluated round; the teams stand in the order of the ranking, models and letters in that of params.

    `reference` are hand-made levels.
    """

    params: Params
    ranking: RankingFile
    teams: tuple[TeamResult, ...]
    reference: Mapping[str, LevelScore]

    @cached_property
    def scored_teams(self) -> tuple[TeamResult, ...]:
        """The teams that are not disqualified."""
        return tuple(team for team in self.teams if not team.is_disqualified)

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        """The trials of all teams."""
        return tuple(trial for team in self.teams for trial in team.trials)

    @property
    def leader(self) -> TeamResult | None:
        """The winner or, without one, the team with the highest total; None without a scored team."""
        return next((team for team in self.teams if team.row.winner), next(iter(self.scored_teams), None))

    def best_levels(self, letter: str) -> list[tuple[TeamResult, ModelResult, TrialResult]]:
        """Return the best level of a letter of each scored team that has one which scores, the best first."""
        levels = [(team, *team.best_levels[letter]) for team in self.scored_teams if letter in team.best_levels]
        return sorted((level for level in levels if level[2].likeness), key=lambda level: -level[2].likeness)

    @property
    def verdict(self) -> str:
        """Who won by how much, in one sentence."""
        winners = [team for team in self.scored_teams if team.row.winner]
        ranked = [team for team in self.scored_teams if team.row.status == "ranked"]
        baseline = next((team for team in self.scored_teams if team.name == self.ranking.baseline), None)
        if len(winners) == 1:
            winner = winners[0]
            others = [team for team in self.scored_teams if team is not winner]
            gap = (winner.row.normalised or 0) - (others[0].row.normalised or 0) if others else 0
            more = f", {gap:.2f} more than {others[0].title}" if gap > 0 else ""
            return f"{winner.title} wins with {winner.row.normalised:.2f} of 100 points{more}."
        if not winners and ranked and baseline:
            best = f"The best team, {ranked[0].title}, has {ranked[0].row.normalised:.2f} of 100 points"
            return f"No team beats the baseline. {best}; {baseline.title} has {baseline.row.normalised:.2f}."
        return self.ranking.reason

    @cached_property
    def _totals(self) -> Decimal:
        return sum((team.row.total for team in self.scored_teams if team.row.total), Decimal(0)) or Decimal(1)

    def points(self, score: Decimal | None) -> float | None:
        """Return a model's score, which is a part of its team's total, in points."""
        return None if score is None else float(100 * score / self._totals)

    def letter_points(self, letter: LetterResult) -> float | None:
        """Return the points that a letter with one model gives its team."""
        if letter.scores is None:
            return None
        return self.points(letter.scores.score / len(self.params.competition.characters))

    def trial_points(self, letter: LetterResult, trial: TrialResult) -> float | None:
        """Return the points that a trial of a letter gives its team: none without diversity."""
        if letter.scores is None or trial.score is None:
            return None
        shares = len(letter.trials) * len(self.params.competition.characters)
        return self.points(trial.score * letter.scores.diversity / shares)


def commonest_failures(trials: Iterable[TrialResult]) -> list[tuple[str, str, int]]:
    """Return the commonest failures: words of the stage, reason without the place in brackets after it, number."""
    failed = [trial for trial in trials if trial.failed_stage]
    reasons = Counter((FAILURE_WORDS[trial.failed_stage or ""], trial.reason.split(" (")[0]) for trial in failed)
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [(words, reason, number) for (words, reason), number in ordered[:MOST_REASONS]]
