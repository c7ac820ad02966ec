"""What the page shows, as one tree: evaluation, team, model, letter, trial."""

from dataclasses import dataclass
from decimal import Decimal

from pcgeval.core.conduct import FLAG_KINDS, Conduct, FlagKind
from pcgeval.core.layout import Trial
from pcgeval.core.outcomes import Outcome
from pcgeval.core.params import Params
from pcgeval.levels.blocks import BlockType
from pcgeval.report.program_source import ProgramSource
from pcgeval.report.reading import LetterRow, LetterWeight, RankingFile, TeamRow
from pcgeval.rubric.grades import JudgeOutput
from pcgeval.rubric.history import GradeChange, KeptGrade
from pcgeval.submissions.load import Submission


@dataclass(frozen=True)
class DrawnBlock:
    """One block at the end of its simulation: centre in metres (y upwards), angle in radians."""

    type: BlockType
    x: float
    y: float
    angle: float
    moved: bool
    dead: bool


@dataclass(frozen=True)
class Seen:
    """The letter that the classifier found most likely, and how likely."""

    label: str
    probability: float


@dataclass(frozen=True)
class TrialResult:
    """One trial of a team with a model.

    What a trial did not reach is None: a failed one has no similarity, and no stability or blocks if it failed before
    the simulation; the trials of a disqualified team have no score. `reply` is the start of the answer, `conduct` how
    it came about; None where that was not recorded.
    """

    trial: Trial
    failure: Outcome | None
    blocks: tuple[DrawnBlock, ...] | None
    stability: float | None
    similarity: float | None
    seen: Seen | None
    score: Decimal | None
    reply: str
    conduct: Conduct | None

    @property
    def flag_kinds(self) -> tuple[FlagKind, ...]:
        """The kinds of its flags, each once."""
        return tuple(kind for kind in FLAG_KINDS if self.conduct and self.conduct.flag(kind))

    @property
    def contained(self) -> bool:
        """Whether nothing is known of it but that it ran in a sandbox, or needed none."""
        return self.conduct is None or self.conduct.contained


@dataclass(frozen=True)
class LetterResult:
    """One letter of a team with a model; `scores` is None for a disqualified team."""

    letter: str
    weight: LetterWeight
    scores: LetterRow | None
    trials: tuple[TrialResult, ...]


@dataclass(frozen=True)
class ModelResult:
    """One model's part of a team's result, letter by letter; `model` is its key in params.yaml."""

    model: str
    letters: tuple[LetterResult, ...]

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """All trials in order."""
        return tuple(trial for letter in self.letters for trial in letter.trials)


@dataclass(frozen=True)
class TeamResult:
    """All that is known of one team.

    `program` is None for a prompt. `grade_change` is what changed since the last of `kept_grades`; None without any.
    """

    row: TeamRow
    submission: Submission
    program: ProgramSource | None
    grade: JudgeOutput
    kept_grades: tuple[KeptGrade, ...]
    grade_change: GradeChange | None
    models: tuple[ModelResult, ...]

    @property
    def disqualified(self) -> bool:
        """Whether the team is named without being scored."""
        return self.row.status == "disqualified"

    @property
    def trials(self) -> tuple[TrialResult, ...]:
        """All trials with all models."""
        return tuple(trial for model in self.models for trial in model.trials)


@dataclass(frozen=True)
class Evaluation:
    """A whole evaluated round; the teams stand in the order of the ranking, models and letters in that of params."""

    params: Params
    ranking: RankingFile
    teams: tuple[TeamResult, ...]

    @property
    def scored_teams(self) -> tuple[TeamResult, ...]:
        """The teams that are not disqualified."""
        return tuple(each for each in self.teams if not each.disqualified)
