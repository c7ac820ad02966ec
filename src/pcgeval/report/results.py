"""Everything that the page shows, as one tree: evaluation, team, model, letter, trial."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property

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
)
from pcgeval.core.trials import FLAG_KINDS, FlagKind, TrialUsage
from pcgeval.report.conversation import ConversationMessage
from pcgeval.report.formats import shortened
from pcgeval.rubric.grades import GradedTaskNode, JudgeOutput
from pcgeval.scoring.seal import Seal
from pcgeval.submissions.load import Submission

MOST_DETAILS = 3  # different ones, of one kind of flag with one model
MOST_REASONS = 10
FAILURE_WORDS = {  # by the stage in which a trial failed
    "generate": "reply failed",
    "extract": "no code",
    "convert": "no valid level",
    "simulate": "not simulated",
    "classify": "not classified",
}


@dataclass(frozen=True)
class Failure:
    """The stage in which a trial failed, and why."""

    stage: str
    reason: str

    @property
    def words(self) -> str:
        """The page's words for a failure in this stage."""
        return FAILURE_WORDS.get(self.stage, self.stage)


@dataclass(frozen=True)
class TrialResult:
    """One trial of a team with a model.

    What a trial did not reach is None: a failed one has no similarity, and no level or stability if it failed before
    the simulation; the trials of a disqualified team have no score.

    Attributes:
        level: The blocks at the end of the simulation.
        paths: The ways of the blocks that moved visibly or broke in it.
        probabilities: What the classifier gives the letters, the most likely first.
        reply: The start of the response.
        code: The calls that were extracted from it, a line each; empty if there are none.
        usage: The cost and the flags of the trial; None without a record.
    """

    trial: Trial
    failure: Failure | None
    level: SimulatedTrial | None
    paths: tuple[BlockPath, ...]
    stability: float | None
    similarity: float | None
    probabilities: tuple[LabelProbability, ...]
    score: Decimal | None
    reply: str
    code: str
    usage: TrialUsage | None

    @property
    def top_label(self) -> LabelProbability | None:
        """The letter that the classifier found most likely."""
        return self.probabilities[0] if self.probabilities else None

    @cached_property
    def flag_kinds(self) -> tuple[FlagKind, ...]:
        """The kinds of its flags, each once."""
        return tuple(kind for kind in FLAG_KINDS if self.usage and self.usage.flag(kind))

    @property
    def is_fragile(self) -> bool:
        """Whether its jittered starts end with different stabilities."""
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


@dataclass(frozen=True)
class LetterResult:
    """One letter of a team with a model; `scores` is None for a disqualified team."""

    letter: str
    weight: OfficialWeight
    scores: LetterRow | None
    trials: tuple[TrialResult, ...]

    @property
    def why_zero(self) -> str | None:
        """Why a letter with scoring trials scores 0 all the same, or None."""
        if self.scores is None or self.scores.diversity or not any(trial.score for trial in self.trials):
            return None
        if sum(trial.failure is None for trial in self.trials) < 2:
            return "zero: one level alone has no diversity"
        return "zero: to the classifier all levels are alike"


@dataclass(frozen=True)
class ModelResult:
    """One model's part of a team's result.

    Attributes:
        name: The model's key in params.yaml.
        letters: Letter by letter.
        engine_sha256: The hash of what simulated its levels, see `core.level_table`.
        classifier_sha256: That of the classifier's files; None if it is not known.
    """

    name: str
    letters: tuple[LetterResult, ...]
    engine_sha256: str
    classifier_sha256: str | None

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        """All trials in order."""
        return tuple(trial for letter in self.letters for trial in letter.trials)

    @property
    def failed(self) -> int:
        """The number of failed trials."""
        return sum(trial.failure is not None for trial in self.trials)

    @property
    def fates(self) -> dict[str, int]:
        """The number of trials that became a level (`made`) and that each stage lost (`lost-STAGE`)."""
        lost = Counter(trial.failure.stage for trial in self.trials if trial.failure)
        return {"made": len(self.trials) - self.failed} | {f"lost-{stage}": lost[stage] for stage in FAILURE_WORDS}


@dataclass(frozen=True)
class SourceFile:
    """One file: its name relative to the program's folder, its length in bytes, and its SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class ProgramSource:
    """A program as it was run.

    Attributes:
        entry: The file that starts it.
        entry_text: The start of that file.
        readme: The start of its README; None if there is none.
        files: All files but the organiser's notes, in byte order of their names.
    """

    entry: str
    entry_text: str
    readme: str | None
    files: tuple[SourceFile, ...]


@dataclass(frozen=True)
class TeamResult:
    """All that is known of one team; `program` is None for a prompt."""

    row: RankedTeam
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
    def title(self) -> str:
        """The title of the team's submission."""
        return shortened(self.submission.title, 100)

    @property
    def disqualified(self) -> bool:
        """Whether the team is named without being scored."""
        return self.row.status == "disqualified"

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
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

    @property
    def upper_end(self) -> float:
        """The upper end of the interval of the normalised total, or that total."""
        return max(float(self.row.normalised or 0), self.row.interval[1] if self.row.interval else 0)

    @cached_property
    def leaves(self) -> tuple[GradedTaskNode, ...]:
        """The leaves of the rubric with the team's grades."""
        return self.grade.graded_task_tree.leaves


@dataclass(frozen=True)
class FlaggedTrials:
    """The trials of a team and model with one kind of flag; `details` maps the first ones to where they came first."""

    team: TeamResult
    model: ModelResult
    kind: FlagKind
    trials: int
    details: Mapping[str, TrialResult]


@dataclass(frozen=True)
class Evaluation:
    """A whole evaluated round; the teams stand in the order of the ranking, models and letters in that of params.

    `conversations` has those of the trials that `flagged` names, by team, model and trial. `seal_differences` are
    sentences about what was changed since the `seal`.
    """

    params: Params
    ranking: RankingFile
    teams: tuple[TeamResult, ...]
    conversations: Mapping[tuple[str, str, Trial], tuple[ConversationMessage, ...]] = field(default_factory=dict)
    seal: Seal | None = None
    seal_differences: tuple[str, ...] = ()

    @cached_property
    def scored_teams(self) -> tuple[TeamResult, ...]:
        """The teams that are not disqualified."""
        return tuple(team for team in self.teams if not team.disqualified)

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        """The trials of all teams."""
        return tuple(trial for team in self.teams for trial in team.trials)

    @property
    def best_levels(self) -> dict[str, tuple[TeamResult, ModelResult, TrialResult] | None]:
        """The team, model and trial with the highest stability x similarity by letter; None where no trial scored.

        Trial scores of different models are weighted differently, so they are not compared.
        """
        scored = [
            (team, model, trial)
            for team in self.scored_teams
            for model in team.models
            for trial in model.trials
            if trial.score
        ]
        return {
            letter: max(
                (each for each in scored if each[2].trial.letter == letter),
                key=lambda each: (each[2].stability or 0) * (each[2].similarity or 0),
                default=None,
            )
            for letter in self.params.competition.characters
        }

    @cached_property
    def flagged(self) -> tuple[FlaggedTrials, ...]:
        """The flagged trials by team, model and kind of flag."""
        found = []
        for team in self.teams:
            for model in team.models:
                for kind in FLAG_KINDS:
                    details: dict[str, TrialResult] = {}
                    flagged = [trial for trial in model.trials if kind in trial.flag_kinds]
                    for trial in flagged:
                        for flag in trial.usage.flags if trial.usage else ():
                            if flag.kind == kind and len(details) < MOST_DETAILS:
                                details.setdefault(flag.detail, trial)
                    if flagged:
                        found.append(FlaggedTrials(team, model, kind, len(flagged), details))
        return tuple(found)


def commonest_failures(trials: Iterable[TrialResult]) -> list[tuple[str, str, int]]:
    """Return the commonest failures: words of the stage, reason without the place in brackets after it, number."""
    found = Counter((trial.failure.words, trial.failure.reason.split(" (")[0]) for trial in trials if trial.failure)
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    return [(words, reason, number) for (words, reason), number in ordered[:MOST_REASONS]]
