"""The files that the page shows: their shapes, and reading them so that a broken one is named.

Only what is shown is described; other keys are ignored. Sizes are bounded before anything is read.
"""

import csv
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from pcgeval.core.errors import PcgevalError
from pcgeval.levels.blocks import BlockType

MAX_BYTES = 64_000_000  # 1 000 trials of a letter with 768 numbers each take a quarter of it
_SLACK = 1e-6  # single-precision probabilities can come out a little above 1

Share = Annotated[float, Field(ge=-_SLACK, le=1 + _SLACK)]
Exact = Annotated[Decimal, Field(ge=0, le=1_000_000, allow_inf_nan=False)]
Coordinate = Annotated[float, Field(ge=-1e6, le=1e6)]
Kind = TypeVar("Kind")


class ReportError(PcgevalError):
    """Something that the page shows is missing or not what it should be."""


@dataclass(frozen=True)
class ModelCell:
    """A team's result with one model in `ranking.json`; `normalised` in percent of that model's sum."""

    score: Exact
    normalised: Exact
    failed_trials: Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class TeamRow:
    """One line of `ranking.json`, the best team first; a disqualified team has neither totals nor models."""

    team: str
    status: Literal["ranked", "baseline", "disqualified"]
    rank: int | None
    winner: bool
    total: Exact | None
    normalised: Exact | None
    interval: tuple[Coordinate, Coordinate] | None
    models: dict[str, ModelCell]
    disqualified: str | None


@dataclass(frozen=True)
class Intervals:
    """How the intervals of the normalised totals were drawn."""

    level: Share
    resamples: int
    seed: int


@dataclass(frozen=True)
class RankingFile:
    """`results/ranking.json`; `reason` is one sentence about the winners."""

    winners: tuple[str, ...]
    reason: str
    baseline: str | None
    engine: str
    classifier: str
    intervals: Intervals | None
    teams: tuple[TeamRow, ...]


@dataclass(frozen=True)
class LetterWeight:
    """One letter in `constants.json`: its weight and the three factors of it."""

    letter: Annotated[str, Field(alias="character")]
    weight: Exact
    stability: Annotated[Exact, Field(alias="weightStability")]
    similarity: Annotated[Exact, Field(alias="weightSimilarity")]
    diversity: Annotated[Exact, Field(alias="weightDiversity")]


@dataclass(frozen=True)
class Constants:
    """`constants.json` of one model."""

    weights: tuple[LetterWeight, ...]


@dataclass(frozen=True)
class TrialRow:
    """One line of `trial_scores.csv`."""

    team: Annotated[str, Field(alias="teamName")]
    letter: Annotated[str, Field(alias="character")]
    trial: int
    score: Annotated[Exact, Field(alias="trial_score")]


@dataclass(frozen=True)
class LetterRow:
    """One line of `character_scores.csv`: the letter's score, its mean stability and similarity, its diversity."""

    team: Annotated[str, Field(alias="teamName")]
    letter: Annotated[str, Field(alias="character")]
    score: Annotated[Exact, Field(alias="characterScore")]
    stability: Annotated[Exact, Field(alias="nonWeightedAverageStabilityScore")]
    similarity: Annotated[Exact, Field(alias="nonWeightedAverageSimilarityScore")]
    diversity: Annotated[Exact, Field(alias="diversityScore")]


@dataclass(frozen=True)
class SimulatedTrial:
    """One level in `simulations.json`, in the order of its blocks: x and y in metres, angle in radians, at the end."""

    letter: str
    trial: int
    types: tuple[BlockType, ...]
    positions: tuple[tuple[Coordinate, Coordinate, Coordinate], ...]
    moved: tuple[bool, ...]
    dead: tuple[bool, ...]


@dataclass(frozen=True)
class Simulations:
    """`simulations.json` of one team and model."""

    trials: tuple[SimulatedTrial, ...]


@dataclass(frozen=True)
class StabilityEntry:
    """One trial in `stability/<C>.json`; `tag` is the path of its level."""

    tag: str
    score: Share


@dataclass(frozen=True)
class StabilityFile:
    """`stability/<C>.json`."""

    raws: tuple[StabilityEntry, ...]


@dataclass(frozen=True)
class SimilarityEntry:
    """One trial in `similarity/<C>.json`: the probability of the letter that was asked for."""

    id: str
    similarity: Share


@dataclass(frozen=True)
class LabelProbability:
    """The probability that the classifier gives one letter."""

    label: str
    probability: Annotated[Share, Field(alias="softmax_prob")]


@dataclass(frozen=True)
class Probabilities:
    """All probabilities of one trial in `similarity/<C>.json`."""

    id: str
    raws: Annotated[tuple[LabelProbability, ...], Field(min_length=1)]


@dataclass(frozen=True)
class SimilarityFile:
    """`similarity/<C>.json`."""

    trials: tuple[SimilarityEntry, ...]
    similarities: tuple[Probabilities, ...]


def read_json_as(path: Path, kind: type[Kind]) -> Kind:
    """Read a JSON file of a known shape.

    Raises:
        ReportError: The file is missing, unreadable, too large or of another shape.
    """
    try:
        value: Kind = _adapter(kind).validate_json(_read(path))  # type: ignore[arg-type] # classes can be hashed
    except ValidationError as error:
        raise _refusal(path, error) from error
    return value


def read_csv_as(path: Path, kind: type[Kind]) -> tuple[Kind, ...]:
    """Read a CSV file with a header line, one value a line.

    Raises:
        ReportError: As for `read_json_as`.
    """
    try:
        rows = list(csv.DictReader(_read(path).decode("utf-8").split("\n"), strict=True))
        adapter = _adapter(kind)  # type: ignore[arg-type] # classes can be hashed
        return tuple(adapter.validate_python(row) for row in rows)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ReportError(f"{path}: not a CSV file in UTF-8 ({error}). Run `dvc repro` to make it again.") from error
    except ValidationError as error:
        raise _refusal(path, error) from error


def read_start(path: Path, characters: int) -> str:
    """Return a text, cut to so many characters and an ellipsis; what is no UTF-8 becomes U+FFFD.

    Raises:
        ReportError: The file is missing or unreadable.
    """
    text = _read(path, at_most=4 * (characters + 1)).decode("utf-8", errors="replace")
    return text if len(text) <= characters else f"{text[:characters]}…"


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _read(path: Path, at_most: int | None = None) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1 if at_most is None else at_most)
    except OSError as error:
        raise ReportError(f"{path}: cannot be read ({error.strerror}). Run `dvc repro` to make it.") from error
    if len(content) > MAX_BYTES:
        raise ReportError(f"{path}: larger than {MAX_BYTES} bytes. Run `dvc repro` to make it again.")
    return content


def _refusal(path: Path, error: ValidationError) -> ReportError:
    fault = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in fault["loc"])[:200]
    what = f"{place}: {fault['msg']}" if place else fault["msg"]
    return ReportError(f"{path}: not what its stage writes ({what[:400]}). Run `dvc repro` to make it again.")
