"""One typed model for each file between stages, and the choice of what a stage does again.

Official files keep their official field names, which are the aliases here. The official tools may have written them:
unknown fields are ignored, and fields that no stage reads may be missing. Messages name the refused field and value.

`changed_teams` keeps a hash for each model and team, or other part of the work, in `.cache/stages`: over the package,
the names, sizes, times and inodes of the files that the work read and wrote, by which DVC tells too whether a file
changed, and what else decides it. While all are the same, the work is not done again. You may delete the folder.
"""

import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, TypeAdapter, ValidationError

from pcgeval.core.errors import FileError
from pcgeval.core.files import file_states, mark_written, rewritten_folder, sha256_json, write_json, write_text
from pcgeval.core.packages import installed_release
from pcgeval.core.text import plain
from pcgeval.core.untrusted import UntrustedFileError, read_bytes
from pcgeval.formats.blocks import BlockType
from pcgeval.formats.failures import Failure, FailureStage
from pcgeval.formats.layout import FAILURES_FILE, TRIALS_FILE, StageDir, Trial, stage_dir, trial_file, trial_number
from pcgeval.formats.params import Params

MAX_FILE_BYTES = 64_000_000  # 1 000 trials of a letter with 768 numbers each take a quarter of it
SLACK = 1e-6  # single-precision probabilities can come out a little above 1
_LARGEST = Decimal("1e400")  # no product of floats is larger, or has more than 2 000 places
RECOGNISED_STABILITY = 0.9
REMAKE = "Run `dvc repro` to make it again."
Content = TypeVar("Content")

CACHE = Path(".cache", "stages")
_TICK_SECONDS = 0.02  # in which a clock may show two changes of a file as one
Place = tuple[str, ...]  # a model and a team, a team, or nothing where the work is done as a whole
Paths = Callable[..., Iterable[Path]]  # files and folders of a place


def _check_zero(value: Decimal) -> Decimal:
    if not value and abs(value.adjusted()) > 2000:  # which pydantic does not count
        raise ValueError("a zero should have no more than 2000 decimal places")
    return value


Share = Annotated[float, Field(ge=-SLACK, le=1 + SLACK)]
Exact = Annotated[
    Decimal,
    Field(ge=-_LARGEST, le=_LARGEST, decimal_places=2000, allow_inf_nan=False),
    AfterValidator(_check_zero),
    PlainSerializer(plain),
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
StageName = Literal["generate", "extract", "convert", "simulate", "classify"]  # the stages that a trial goes through
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)


class FilePart(BaseModel):
    """A part of a stage's JSON file: strict and frozen. Unknown fields are ignored."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", populate_by_name=True, allow_inf_nan=False, defer_build=True
    )


class StageFile(FilePart):
    """A JSON file that one stage writes and others read."""

    indent: ClassVar[int | None] = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file; raise FileError with the first refused field if it has another shape."""
        return read_stage_file(path, cls.model_validate_json)

    def write(self, path: Path) -> None:
        """Write the file as canonical JSON, atomically."""
        write_json(path, self.model_dump(by_alias=True), indent=self.indent)


def read_stage_file(path: Path, parse: Callable[[bytes], Content], limit: int = MAX_FILE_BYTES) -> Content:
    """Read a file that a stage wrote, with a parser such as one of pydantic.

    Raises:
        FileError: It is missing, no regular file, unreadable or too large, or has another shape.
    """
    try:
        return parse(read_bytes(path, limit, follow_link=True))  # DVC may link its cache
    except UntrustedFileError as error:
        raise FileError(f"{path}: {error.reason}. {REMAKE}") from error
    except ValidationError as error:
        raise refusal(path, error) from error


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


class TrialFailure(FilePart):
    """One entry of `failures.json`: a trial that a stage or one before it has no file of, and why."""

    letter: str
    trial: int
    failure: Failure


_FAILURES = TypeAdapter(tuple[TrialFailure, ...], config=ConfigDict(defer_build=True))


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
    return {Trial(entry.letter, entry.trial): entry.failure for entry in read_stage_file(path, _FAILURES.validate_json)}


class TrialOutcome(FilePart):
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


_OUTCOMES = TypeAdapter(tuple[TrialOutcome, ...], config=ConfigDict(defer_build=True))


def failed(trial: Trial, failure: Failure) -> TrialOutcome:
    """Return the outcome of a trial that failed."""
    return TrialOutcome(letter=trial.letter, trial=trial.number, failure=failure)


def write_outcomes(folder: Path, outcomes: Iterable[TrialOutcome]) -> None:
    """Write `trials.json` into the stability folder of a model and a team."""
    ordered = sorted(outcomes, key=lambda outcome: outcome.key)
    write_json(folder / TRIALS_FILE, [outcome.model_dump(by_alias=True) for outcome in ordered])


def read_outcomes(folder: Path) -> dict[Trial, TrialOutcome]:
    """Read `trials.json` from the stability folder of a model and a team; raise FileError if it is no such file."""
    return {outcome.key: outcome for outcome in read_stage_file(folder / TRIALS_FILE, _OUTCOMES.validate_json)}


def rate(values: Sequence[float]) -> float:
    """Return the mean of a letter's values; 0 without any, where the official division by zero would write NaN."""
    return math.fsum(values) / len(values) if values else 0.0


def is_likeliest(similarity: float | None, probabilities: Collection[float]) -> bool:
    """Return whether no letter is more probable than the one with this probability; False without a picture."""
    return similarity is not None and bool(probabilities) and all(similarity >= other for other in probabilities)


def is_recognised(stability: float | None, similarity: float | None, probabilities: Collection[float]) -> bool:
    """Return whether a level shows its letter: the asked one is the likeliest, and at least 90 % of its blocks stay."""
    return stability is not None and stability >= RECOGNISED_STABILITY and is_likeliest(similarity, probabilities)


class StabilityEntry(FilePart):
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


class SimilarityEntry(FilePart):
    """One picture: the probability of the letter that was asked for (`label`)."""

    name: str = Field(alias="id")
    label: str | None = None
    similarity: Share


class LabelProbability(FilePart):
    """The probability that the classifier gives one letter."""

    id: int | None = None
    label: str
    probability: Share = Field(alias="softmax_prob")


class PicturePrediction(FilePart):
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

    rate: float = Field(alias="diversityRate", ge=-SLACK)


class SimulatedLevel(FilePart):
    """The end of one level, in the order of its blocks: x and y in metres, angle in radians."""

    best_of: int | None = None  # which of the simulations is reported, from 1
    types: tuple[BlockType, ...]
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


class BlockPath(FilePart):
    """The path of one block: it starts at the first key frame and moves evenly from one to the next.

    After the last one a living block stays and a broken one vanishes.
    """

    block: int = Field(ge=0)  # its place in the level, from 0
    keys: tuple[KeyFrame, ...] = Field(min_length=1)


class ReplayedTrial(FilePart):
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


@contextmanager
def changed_teams(
    params: Params,
    root: Path,
    folders: Sequence[Path],
    keep: Path,
    *,
    reads: Paths,
    writes: Paths,
    made_from: Callable[..., object],
    places: Iterable[Place] | None = None,
) -> Iterator[list[Place]]:
    """Yield the models and teams whose work is to be done, then remove every file that was written for none of them.

    A place that is taken from the list is done again by the next run, and so are all of the list after an error, after
    which nothing is removed.

    Args:
        params: The competition.
        root: Its folder.
        folders: The stage's output folders; the first one names the stage.
        keep: The stage's input folder; without it, FileError is raised.
        reads: What the work for a model and a team reads, below the root.
        writes: What it writes.
        made_from: Whatever else decides it.
        places: What is done apart; by default, all models and teams.
    """
    state = root / CACHE / folders[0].name
    known = state.read_bytes().decode("ascii", errors="replace").splitlines() if state.is_file() else []
    code, places = installed_release(), [*(product(params.models, params.teams) if places is None else places)]
    read = {place: file_states(root / path for path in reads(*place)) for place in places}

    def written(place: Place) -> tuple[str, dict[str, str]]:
        files = file_states(root / path for path in writes(*place))
        return sha256_json([code, repr(made_from(*place)), read[place], files]), files

    with ExitStack() as outputs:
        for folder in folders:
            outputs.enter_context(rewritten_folder(root / folder, keep=root / keep))
        done = {}
        for place in places:
            digest, files = written(place)
            if digest in known:
                done[place] = digest
                mark_written(files)
        to_do = [place for place in places if place not in done]
        yield to_do
    if to_do:
        time.sleep(_TICK_SECONDS)  # so that whoever changes a file from now on changes its time
        done |= {place: written(place)[0] for place in to_do}
    write_text(state, "".join(f"{digest}\n" for digest in done.values()))


def trial_contents(
    params: Params, root: Path, stage: StageDir, places: Iterable[Place]
) -> dict[tuple[str, str, Trial], bytes]:
    """Return the content of each file that a stage wrote for a trial of some models and teams."""
    return {
        (model, team, trial): path.read_bytes()
        for model, team in places
        for trial in params.trials()
        if (path := trial_file(root / stage_dir(stage, model, team), stage, team, trial)).is_file()
    }
