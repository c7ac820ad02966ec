"""One typed model for each file of the results: the official tables, and ranking.json."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field, ValidationError

from pcgeval.core.errors import FileError
from pcgeval.formats.stages import REMAKE, Exact, FilePart, Sha256, Share, StageFile, read_stage_file, refusal


class OfficialWeight(FilePart):
    """The weight of one letter in `constants.json`, and its three factors."""

    letter: str = Field(alias="character")
    weight: Exact
    stability: Exact = Field(alias="weightStability")
    similarity: Exact = Field(alias="weightSimilarity")
    diversity: Exact = Field(alias="weightDiversity")


class ConstantsFile(StageFile):
    """`constants.json`: the sum of all prompt scores, and the weights of the letters."""

    total: Exact = Field(alias="competitionScore")
    weights: tuple[OfficialWeight, ...]

    def to_text(self) -> str:
        """Return the file byte for byte as the official script writes it."""
        return json.dumps(self.model_dump(by_alias=True), separators=(",", ":"), ensure_ascii=False)


class TrialRow(FilePart):
    """One line of `trial_scores.csv`."""

    team: str = Field(alias="teamName")
    letter: str = Field(alias="character")
    trial: int
    score: Exact = Field(alias="trial_score")
    stability: Exact = Field(alias="stabilityScore")
    similarity: Exact = Field(alias="similarityScore")
    diversity: Exact = Field(alias="diversityScore")


class LetterRow(FilePart):
    """One line of `character_scores.csv`: the letter's score, its mean stability and similarity, its diversity."""

    team: str = Field(alias="teamName")
    letter: str = Field(alias="character")
    score: Exact = Field(alias="characterScore")
    stability: Exact = Field(alias="nonWeightedAverageStabilityScore")
    similarity: Exact = Field(alias="nonWeightedAverageSimilarityScore")
    diversity: Exact = Field(alias="diversityScore")


class PromptRow(FilePart):
    """One line of `prompt_scores_ranks.csv`: a team's share of all scores in percent, its score and its rank."""

    team: str
    normalised: Exact = Field(alias="normalizedPromptScore")
    score: Exact = Field(alias="promptScore")
    rank: int


Row = TypeVar("Row", TrialRow, LetterRow, PromptRow)


def csv_text(kind: type[Row], rows: Sequence[Row]) -> str:
    """Return an official table byte for byte: texts quoted, whole numbers not, and no line feed after the last line."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(_columns(kind))
    writer.writerows(row.model_dump().values() for row in rows)
    return text.getvalue().removesuffix("\n")


def _columns(kind: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in kind.model_fields.items()]


def read_csv(kind: type[Row], path: Path) -> tuple[Row, ...]:
    """Read an official table; raise FileError if it is no CSV file, or has other columns or values."""
    place, rows = str(path), []
    try:
        lines = io.StringIO(read_stage_file(path, bytes).decode("utf-8"), newline="")
        reader = csv.DictReader(lines, restkey=_columns(kind)[0], strict=True)  # fields too many are no valid text
        for row in reader:
            place = f"{path}:{reader.line_num}"
            rows.append(kind.model_validate_strings(row))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{place}: not a CSV file in UTF-8 ({error}). {REMAKE}") from error
    except ValidationError as error:
        raise refusal(place, error) from error
    return tuple(rows)


class TeamModelScore(FilePart):
    """A team's result with one model; counts that come from the records of trials are None without records."""

    score: Exact
    normalised: Exact  # percent of all teams' scores with the model
    failed_trials: int = Field(ge=0, le=10**9)
    trials: int | None = None  # failed ones too
    recognised: int | None = None  # trials, see `is_recognised`; None where no file has the probabilities
    flagged_trials: int | None = None
    blocks: int | None = None  # of all responses
    supplied: int | None = None  # blocks that stood in the submission's messages before the model named them
    supplied_levels: int | None = None  # of trials that did not fail: they stood there whole, call for call
    failures: dict[str, int] = Field({})  # trials by the kind of their failure, see `formats.failures`
    answered_by: tuple[str, ...] = ()  # how the answering models call themselves, as far as the server says it


class ScoreInterval(NamedTuple):
    """The central 90 % of a team's resampled shares of all points, in percent."""

    low: float
    high: float


class RankedTeam(FilePart):
    """One line of the ranking; a disqualified team has no totals and no models, and only a ranked team has a rank.

    `would_have` is the line of a disqualified team if it were ranked; None where that cannot be computed.
    """

    team: str
    status: Literal["ranked", "baseline", "disqualified"]
    rank: int | None
    winner: bool
    total: Exact | None
    normalised: Exact | None  # percent of all teams' totals: the share of all points
    interval: ScoreInterval | None
    models: dict[str, TeamModelScore]
    trials: int | None = None  # with all models, as are the next three counts
    recognised: int | None = None
    best_levels: int | None = None  # the best of each letter, where one scores above 0
    supplied_best_levels: int | None = None  # of these, call for call the submission's
    prompt_length: int | None = None  # characters; of equal totals the shorter prompt is ahead
    disqualified: str | None  # the reason
    would_have: "RankedTeam | None" = None

    @property
    def recognised_words(self) -> str | None:
        """The recognised trials as a person reads them, such as `8 of 234`; None if they are not known."""
        return None if self.recognised is None else f"{self.recognised} of {self.trials}"

    @property
    def supplied_words(self) -> str | None:
        """The supplied ones of the best levels, such as `22 of 26`; None without records or levels."""
        return f"{self.supplied_best_levels} of {self.best_levels}" if self.best_levels else None

    @property
    def counted(self) -> "RankedTeam":
        """The line with the team's counts of trials, which a disqualified team has in `would_have`."""
        return self.would_have or self

    @property
    def failed_trials(self) -> int:
        """The failed trials with all models."""
        return sum(model.failed_trials for model in self.models.values())

    @property
    def supplied_share(self) -> float | None:
        """The share of blocks that the submission supplied; None without records or blocks."""
        blocks = sum(model.blocks or 0 for model in self.models.values())
        return sum(model.supplied or 0 for model in self.models.values()) / blocks if blocks else None


class RankingRules(FilePart):
    """The rules that the ranking was made by."""

    version: int
    letters: str
    trials: int
    official_quirks: bool


class RankingIntervals(FilePart):
    """Settings of the intervals."""

    level: Share
    resamples: int
    seed: int


class ResultHash(FilePart):
    """One hash over everything that decides a ranking: the SHA-256 of the hashes of its parts, see `result_hash`."""

    sha256: Sha256
    parts: dict[str, Sha256]


class RankingFile(StageFile):
    """`ranking.json`, the best team first."""

    indent: ClassVar[int | None] = 1

    winners: tuple[str, ...]
    reason: str  # one sentence about the winners
    baseline: str | None
    rules: RankingRules
    engine: str
    classifier: str
    packages: dict[str, tuple[str, ...]] = Field({})  # all versions of each package that measured a level
    intervals: RankingIntervals | None
    teams: tuple[RankedTeam, ...]
    result: ResultHash | None = None  # None where `rescore` made the ranking
