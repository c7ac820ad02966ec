"""One typed model for each file of the results: the official tables, and ranking.json with its result hash.

The result hash is one over everything that decides a ranking, by parts, so that a difference names its part. A part of
files is their `tree_sha256`; any other part is the SHA-256 of canonical JSON, and so is the hash over the parts. It
is the same on every machine: times, links to DVC's cache and addresses of servers do not count.
"""

import csv
import io
import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, Field, ValidationError

from pcgeval.core.errors import FileError
from pcgeval.core.files import cached, sha256_json, tree_sha256
from pcgeval.formats.layout import LOCKS, PACKAGE_FILE, STATE, SUBMISSIONS, competition_files, recording_file, stage_dir
from pcgeval.formats.params import Params
from pcgeval.formats.stages import REMAKE, Exact, FilePart, Sha256, Share, StageFile, read_stage_file, refusal

# what decides a ranking: stages, the packages that they load, and settings
DECIDING_STAGES = ("generate", "extract", "convert", "simulate", "classify", "diversity", "score", "rank")
DECIDING_PACKAGES = (
    *("core", "formats", "parallel", "submissions", "levels", "llm", "sandbox"),
    *("generation", "evaluator", "similarity", "scoring"),
)
_DECIDING_PARAMS = {"competition", "teams", "models", "limits", "physics", "similarity", "diversity", "scoring"}
NOT_DECIDING: dict[str, Any] = {  # where, how fast and with how much patience something is computed
    "models": {"__all__": {"host", "base_url", "keep_alive", "stream", "concurrency"}},
    "similarity": {"batch", "device"},
    "limits": {"outage_seconds"},
}
_RECENT_SECONDS = 2.0  # in which a clock may show two changes of a file as one


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


def result_hash(params: Params, ranking: RankingFile, root: Path = Path(), *, trust_times: bool = False) -> ResultHash:
    """Return the result hash of a ranking in a competition's folder; raise FileError if a file cannot be read.

    With `trust_times`, the files of a part are not read if size, times and inode of each are as at an earlier call.
    """
    content = ranking.model_dump(by_alias=True)
    parts = {
        part: _part_hash(root, paths, root / STATE / "hashes" / part if trust_times else None)
        for part, paths in _deciding_files(params).items()
    }
    parts["params"] = sha256_json(params.model_dump(mode="json", include=_DECIDING_PARAMS, exclude=NOT_DECIDING))
    parts["ranking"] = sha256_json({key: value for key, value in content.items() if key != "result"})
    return ResultHash(sha256=sha256_json(parts), parts=dict(sorted(parts.items())))


def _deciding_files(params: Params) -> dict[str, list[Path]]:
    """Return the files and folders that decide a ranking, by the parts of the result hash."""
    pairs = list(product(params.models, params.teams))
    recorded = [(model, team) for model, team in pairs if params.models[model].backend == "recorded"]
    source = Path("src", "pcgeval")
    return {
        "classifier": [Path(params.similarity.model)],  # a classifier of the hub is named by params.yaml alone
        "submissions": [SUBMISSIONS / team for team in params.teams],
        "locks": [LOCKS / f"{team}.txt" for team in params.teams],
        "recordings": [recording_file(*pair) for pair in recorded],
        "trials": [stage_dir("raw", *pair) for pair in pairs],
        "measurements": [
            stage_dir(stage, *pair) for stage in ("stability", "similarity", "diversity") for pair in pairs
        ],
        "source": [
            PACKAGE_FILE,  # in place of the source where pcgeval is installed
            source / "__init__.py",
            source / "pipeline.py",
            *(source / package for package in DECIDING_PACKAGES),
            *(Path("stages", f"{stage}.py") for stage in DECIDING_STAGES),
        ],
    }


def _part_hash(root: Path, paths: Iterable[Path], state: Path | None) -> str:
    """Return the hash of a part of files; `state` is the file that keeps it with their sizes, times and inodes."""

    def names() -> Iterator[str]:
        return (name for path in paths for name in competition_files(root, path))

    def hashed() -> bytes:
        return tree_sha256(root, names()).encode("ascii")

    with suppress(OSError):  # `tree_sha256` names a file that cannot be read
        stats = [(name, (root / name).stat()) for name in sorted({*names()})] if state else []
        times = [at for _, stat in stats for at in (stat.st_mtime, stat.st_ctime)]
        if state and max(times, default=0.0) < time.time() - _RECENT_SECONDS:
            made_from = [(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for name, stat in stats]
            return cached(state, made_from, hashed).decode("ascii")
    return hashed().decode("ascii")


def result_doubts(params: Params, ranking: RankingFile, root: Path = Path()) -> list[str]:
    """Return the differences between a ranking's result hash and the present folder, as clauses.

    Raises:
        FileError: A file cannot be read.
    """
    if ranking.result is None:
        return ["it has no result hash: the stage rank did not write it"]
    now = result_hash(params, ranking, root, trust_times=True)
    others = [part for part in now.parts if part != "ranking" and now.parts[part] != ranking.result.parts.get(part)]
    if others:
        return [f"it comes from other {', '.join(others)}"]
    return [] if now == ranking.result else ["it was altered after the stage rank wrote it"]
