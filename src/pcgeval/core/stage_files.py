"""One typed model for each file between stages.

Official files keep their official field names, which are the aliases here. The official tools may have written them:
unknown fields are ignored, and fields that no stage reads may be missing. Messages name the refused field and value.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter, ValidationError

from pcgeval.core.errors import FileError
from pcgeval.core.failures import Failure, FailureStage
from pcgeval.core.files import write_json
from pcgeval.core.layout import FAILURES_FILE, TRIALS_FILE, Trial, trial_number
from pcgeval.core.untrusted import UntrustedFileError, read_bounded

MAX_FILE_BYTES = 64_000_000  # 1 000 trials of a letter with 768 numbers each take a quarter of it
_SLACK = 1e-6  # single-precision probabilities can come out a little above 1
_LARGEST = Decimal("1e400")  # no product of floats is larger, or has more than 2 000 places
REMAKE = "Run `dvc repro` to make it again."
Content = TypeVar("Content")


def plain(value: Decimal) -> str:
    """Return an exact decimal in plain notation: no exponent, no trailing zeros, no negative zero."""
    text = format(value, "f") if value else "0"  # a zero may have any exponent
    return text.rstrip("0").rstrip(".") if "." in text else text


def _check_zero(value: Decimal) -> Decimal:
    if not value and abs(value.adjusted()) > 2000:  # which pydantic does not count
        raise ValueError("a zero should have no more than 2000 decimal places")
    return value


Share = Annotated[float, Field(ge=-_SLACK, le=1 + _SLACK)]
Exact = Annotated[
    Decimal,
    Field(ge=-_LARGEST, le=_LARGEST, decimal_places=2000, allow_inf_nan=False),
    AfterValidator(_check_zero),
    PlainSerializer(plain),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
StageName = Literal["generate", "extract", "convert", "simulate", "classify"]  # the stages that a trial goes through
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)


class _Part(BaseModel):
    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", populate_by_name=True, allow_inf_nan=False, defer_build=True
    )


class StageFile(_Part):
    """A JSON file that one stage writes and others read."""

    indent: ClassVar[int | None] = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; raise FileError with the first refused field if it has another shape."""
        return parsed(path, cls.model_validate_json)

    def write(self, path: Path) -> None:
        """Write the file as canonical JSON, atomically."""
        write_json(path, self.model_dump(by_alias=True), indent=self.indent)


def parsed(path: Path, parse: Callable[[bytes], Content], max_bytes: int = MAX_FILE_BYTES) -> Content:
    """Read a file with a parser of pydantic; raise FileError if it cannot be read or has another shape."""
    try:
        return parse(read_stage_file(path, max_bytes))
    except ValidationError as error:
        raise refusal(path, error) from error


def read_stage_file(path: Path, max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Read a file that a stage wrote; raise FileError if it is missing, no regular file, unreadable or too large."""
    try:
        return read_bounded(path, max_bytes, follow_link=True)  # DVC may link its cache
    except UntrustedFileError as error:
        raise FileError(f"{path}: {error.reason}. {REMAKE}") from error


def refusal(path: Path | str, error: ValidationError, remedy: str = REMAKE) -> FileError:
    """Return an error that names the first refused field of a file, or of a line `<path>:<number>`, and its value."""
    fault = error.errors(include_url=False)[0]
    field = ".".join(map(str, fault["loc"]))[:200]
    problem = fault["msg"].replace("Invalid JSON", "not valid JSON")
    if fault["type"] not in {"missing", "json_invalid"}:
        problem += f", found {repr(fault['input'])[:80]}"
    return FileError(f"{path}: {f'{field}: ' if field else ''}{problem[:300]}. {remedy}")


@contextmanager
def other_remedy(remedy: str) -> Iterator[None]:
    """Advise something else than `dvc repro`, for files that no stage of this folder wrote."""
    try:
        yield
    except FileError as error:
        raise FileError(str(error).replace(REMAKE, remedy)) from error


class TrialFailure(_Part):
    """One entry of `failures.json`: a trial that a stage or one before it has no file of, and why."""

    letter: str
    trial: int
    failure: Failure


_FAILURES = TypeAdapter(tuple[TrialFailure, ...])


def write_failures(folder: Path, failures: Mapping[Trial, Failure]) -> None:
    """Write `failures.json` into the folder of a stage for a model and a team."""
    entries = [
        TrialFailure(letter=trial.letter, trial=trial.number, failure=replace(failure, detail=""))
        for trial, failure in sorted(failures.items())
    ]
    write_json(folder / FAILURES_FILE, [entry.model_dump() for entry in entries])


def read_failures(folder: Path) -> dict[Trial, Failure]:
    """Read `failures.json` from the folder of a stage; none where another tool filled the folder."""
    path = folder / FAILURES_FILE
    if not path.exists():
        return {}
    return {Trial(entry.letter, entry.trial): entry.failure for entry in parsed(path, _FAILURES.validate_json)}


class TrialOutcome(_Part):
    """The outcome of a trial; a failed one has its failure."""

    letter: str
    trial: int
    picture_sha256: Sha256 | None = None  # of a simulated level; None where another tool drew the picture
    failure: Failure | None = None

    @property
    def key(self) -> Trial:
        """The trial."""
        return Trial(self.letter, self.trial)

    @property
    def failed_stage(self) -> FailureStage | None:
        """The stage in which the trial failed; None if it did not."""
        return self.failure.type.stage if self.failure else None


_OUTCOMES = TypeAdapter(tuple[TrialOutcome, ...])


def failed(trial: Trial, failure: Failure) -> TrialOutcome:
    """Return the outcome of a trial that failed."""
    return TrialOutcome(letter=trial.letter, trial=trial.number, failure=failure)


def write_outcomes(folder: Path, outcomes: Iterable[TrialOutcome]) -> None:
    """Write `trials.json` into the stability folder of a model and a team."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.key)
    write_json(folder / TRIALS_FILE, [outcome.model_dump(by_alias=True) for outcome in ordered])


def read_outcomes(folder: Path) -> dict[Trial, TrialOutcome]:
    """Read `trials.json` from the stability folder of a model and a team; raise FileError if it is no such file."""
    return {outcome.key: outcome for outcome in parsed(folder / TRIALS_FILE, _OUTCOMES.validate_json)}


def rate(values: Sequence[float]) -> float:
    """Return the mean of a letter's values; 0 without any, where the official division by zero would write NaN."""
    return math.fsum(values) / len(values) if values else 0.0


class StabilityEntry(_Part):
    """One simulated level; `name` is the path of its file."""

    name: str = Field(alias="tag")
    score: Share
    total_blocks: int | None = Field(None, alias="startingObjects")
    moving_blocks: int | None = Field(None, alias="movingObjects")


class StabilityFile(StageFile):
    """`stability/<C>.json` as the Science Birds Evaluator writes it; `rate` is the mean over the levels there are."""

    indent: ClassVar[int | None] = 1

    count: int | None = Field(None, alias="dataCount")
    rate: float | None = None
    levels: tuple[StabilityEntry, ...] = Field(alias="raws")


class SimilarityEntry(_Part):
    """One picture: the probability of the letter that was asked for (`label`)."""

    name: str = Field(alias="id")
    label: str | None = None
    similarity: Share


class LabelProbability(_Part):
    """The probability that the classifier gives one letter."""

    id: int | None = None
    label: str
    probability: Share = Field(alias="softmax_prob")


class PicturePrediction(_Part):
    """The classifier's answer about one picture: 26 probabilities and, from 2025 on, an embedding of 768 numbers."""

    name: str = Field(alias="id")
    probabilities: tuple[LabelProbability, ...] = Field(alias="raws")
    embedding: tuple[float, ...] = Field((), alias="cls_embedding")

    @property
    def likeliest(self) -> tuple[LabelProbability, ...]:
        """The probabilities, the highest first."""
        return tuple(sorted(self.probabilities, key=lambda probability: (-probability.probability, probability.label)))


Entry = TypeVar("Entry", StabilityEntry, SimilarityEntry, PicturePrediction)


def by_trial(entries: Iterable[Entry]) -> dict[int, Entry]:
    """Return the entry of each trial; of several the first counts, as in the official script."""
    first: dict[int, Entry] = {}
    for entry in entries:
        if (number := trial_number(entry.name)) is not None:
            first.setdefault(number, entry)
    return first


class SimilarityFile(StageFile):
    """`similarity/<C>.json`."""

    count: int | None = None
    rate: float | None = Field(None, alias="similarityRate")
    trials: tuple[SimilarityEntry, ...]
    predictions: tuple[PicturePrediction, ...] = Field((), alias="similarities")


class DiversityFile(StageFile):
    """`diversity/<C>.json`, of which later stages read the rate."""

    rate: float = Field(alias="diversityRate", ge=-_SLACK)


class SimulatedLevel(_Part):
    """The end of one level, in the order of its blocks: x and y in metres, angle in radians."""

    best_of: int | None = None  # which of the simulations is reported, from 1
    types: tuple[Literal["RectSmall", "SquareTiny"], ...]
    positions: tuple[tuple[float, float, float], ...]
    moved: tuple[bool, ...]
    dead: tuple[bool, ...]
    starts: tuple[Share, ...] = ()  # the stability of each of `physics.starts` jittered starts


class SimulatedTrial(SimulatedLevel):
    """The end of one trial's level."""

    letter: str
    trial: int


class SimulationsFile(StageFile):
    """`simulations.json` beside the stability files: the engine, the physics and the end of every level."""

    engine: dict[str, str] | str  # name, version and the versions of its parts; a text where another tool simulated
    packages: dict[str, str] = {}  # versions of the packages that simulated and drew
    physics: dict[str, Any] = {}
    trials: tuple[SimulatedTrial, ...] = ()

    @property
    def engine_line(self) -> str:
        """The engine in one line, such as `pymunk 7.1.0 (chipmunk 7.0.3)`."""
        if isinstance(self.engine, str):
            return self.engine
        parts = [f"{key} {self.engine[key]}" for key in sorted(self.engine) if key not in {"name", "version"}]
        return f"{self.engine['name']} {self.engine['version']}" + (f" ({', '.join(parts)})" if parts else "")


# milliseconds since the start, x and y in millimetres, and the rotation in degrees; y is upwards, as in levels
KeyFrame = tuple[int, int, int, int]


class BlockPath(_Part):
    """The path of one block: it starts at the first key frame and moves evenly from one to the next.

    After the last one a living block stays and a broken one vanishes.
    """

    block: int = Field(ge=0)  # its place in the level, from 0
    keys: tuple[KeyFrame, ...] = Field(min_length=1)


class ReplayedTrial(_Part):
    """The paths of all blocks of one trial's level that moved visibly or broke."""

    letter: str
    trial: int
    paths: tuple[BlockPath, ...]


class ReplaysFile(StageFile):
    """The replays of a model and a team; a level in which nothing moved has none."""

    trials: tuple[ReplayedTrial, ...] = ()


class ClassifierFile(StageFile):
    """`classifier.json` beside the similarity files: the classifier and the versions of its packages."""

    indent: ClassVar[int | None] = 1

    name: str
    revision: str | None = None
    sha256: str
    precision: str = "float64"
    packages: dict[str, str] = {}


class OfficialWeight(_Part):
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


class TrialRow(_Part):
    """One line of `trial_scores.csv`."""

    team: str = Field(alias="teamName")
    letter: str = Field(alias="character")
    trial: int
    score: Exact = Field(alias="trial_score")
    stability: Exact = Field(alias="stabilityScore")
    similarity: Exact = Field(alias="similarityScore")
    diversity: Exact = Field(alias="diversityScore")


class LetterRow(_Part):
    """One line of `character_scores.csv`: the letter's score, its mean stability and similarity, its diversity."""

    team: str = Field(alias="teamName")
    letter: str = Field(alias="character")
    score: Exact = Field(alias="characterScore")
    stability: Exact = Field(alias="nonWeightedAverageStabilityScore")
    similarity: Exact = Field(alias="nonWeightedAverageSimilarityScore")
    diversity: Exact = Field(alias="diversityScore")


class PromptRow(_Part):
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
        lines = io.StringIO(read_stage_file(path).decode("utf-8"), newline="")
        reader = csv.DictReader(lines, restkey=_columns(kind)[0], strict=True)  # fields too many are no valid text
        for row in reader:
            place = f"{path}:{reader.line_num}"
            rows.append(kind.model_validate_strings(row))
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{place}: not a CSV file in UTF-8 ({error}). {REMAKE}") from error
    except ValidationError as error:
        raise refusal(place, error) from error
    return tuple(rows)


class TeamModelScore(_Part):
    """A team's result with one model; the last three fields are None where the responses have no records."""

    score: Exact
    normalised: Exact  # percent of the sum over all teams
    failed_trials: int = Field(ge=0, le=10**9)
    flagged_trials: int | None = None
    blocks: int | None = None  # of all responses
    supplied: int | None = None  # blocks that stood in the submission's messages before the model named them
    failures: dict[str, int] = {}  # trials by the kind of their failure, see `core.failures`
    answered_by: tuple[str, ...] = ()  # how the answering models call themselves, as far as the server says it


class ScoreInterval(NamedTuple):
    """The central 90 % of a team's resampled normalised totals, in percent."""

    low: float
    high: float


class RankedTeam(_Part):
    """One line of the ranking; a disqualified team has no totals and no models, and only a ranked team has a rank."""

    team: str
    status: Literal["ranked", "baseline", "disqualified"]
    rank: int | None
    winner: bool
    total: Exact | None
    normalised: Exact | None
    interval: ScoreInterval | None
    models: dict[str, TeamModelScore]
    prompt_length: int | None = None  # characters; of equal totals the shorter prompt is ahead
    disqualified: str | None  # the reason

    @property
    def supplied_share(self) -> float | None:
        """The share of blocks that the submission supplied; None without records or blocks."""
        blocks = sum(model.blocks or 0 for model in self.models.values())
        return sum(model.supplied or 0 for model in self.models.values()) / blocks if blocks else None


class RankingRules(_Part):
    """The rules that the ranking was made by."""

    version: int
    letters: str
    trials: int
    official_quirks: bool


class RankingIntervals(_Part):
    """Settings of the intervals of the normalised totals."""

    level: Share
    resamples: int
    seed: int


class ResultHash(_Part):
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
    packages: dict[str, tuple[str, ...]] = {}  # all versions of each package that measured a level
    intervals: RankingIntervals | None
    teams: tuple[RankedTeam, ...]
    result: ResultHash | None = None  # None where `rescore` made the ranking
