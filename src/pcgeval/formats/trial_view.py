"""One view of a trial, with everything that the stages wrote about it: for checks, the page, `explain` and `status`."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from pcgeval.core.errors import FileError
from pcgeval.formats.failures import Failure
from pcgeval.formats.layout import (
    EXTENSIONS,
    SIMULATIONS_FILE,
    STAGE_DIRS,
    StageDir,
    Trial,
    letter_file,
    replays_file,
    stage_dir,
    summaries_file,
    trial_file,
)
from pcgeval.formats.stages import (
    BlockPath,
    LabelProbability,
    PicturePrediction,
    ReplaysFile,
    SimilarityEntry,
    SimilarityFile,
    SimulatedTrial,
    SimulationsFile,
    StabilityEntry,
    StabilityFile,
    TrialOutcome,
    by_trial,
    is_recognised,
    read_outcomes,
)
from pcgeval.formats.trials import (
    FLAG_KINDS,
    Flag,
    FlagKind,
    TrialRecord,
    TrialSummary,
    TrialUsage,
    read_record,
    read_summaries,
    record_path,
)

_Measurements = tuple[dict[int, StabilityEntry], dict[int, SimilarityEntry], dict[int, PicturePrediction]]
_Content = TypeVar("_Content")
MOST_SUPPLIED = 0.5  # of the blocks of a level that counts as the model's own


@dataclass(frozen=True)
class TrialView:
    """One trial of a team with a model.

    What a trial did not reach is None: a failed one has no similarity, and no level or stability if it failed before
    the simulation; the trials of a disqualified team have no score.
    """

    trial: Trial
    outcome: TrialOutcome | None  # None before the stage simulate
    level: SimulatedTrial | None  # the blocks at the end of the simulation
    paths: tuple[BlockPath, ...]  # the ways of the blocks that moved visibly or broke
    stability: float | None
    similarity: float | None
    probabilities: tuple[LabelProbability, ...]  # the most likely letter first
    usage: TrialUsage | None  # None without a record
    score: Decimal | None = None  # the official one
    reply: str = ""  # the start of the response
    code: str = ""  # the start of the calls that were extracted from it, a line each

    @property
    def failure(self) -> Failure | None:
        """Why the trial failed; None if it did not."""
        return self.outcome.failure if self.outcome else None

    @property
    def likeness(self) -> float:
        """Stability times similarity, without the weight, which differs between models."""
        return (self.stability or 0) * (self.similarity or 0)

    @property
    def is_recognised(self) -> bool:
        """Whether it shows its letter."""
        probabilities = [probability.probability for probability in self.probabilities]
        return is_recognised(self.stability, self.similarity, probabilities)

    @property
    def merit(self) -> tuple[bool, float]:
        """What a person sees in it, the higher the better: whether it is recognised, then the likeness."""
        return self.is_recognised, self.likeness

    @property
    def is_own(self) -> bool:
        """Whether less than half of its blocks are known to be supplied by the submission."""
        return not self.usage or (self.usage.supplied.share or 0) < MOST_SUPPLIED

    @cached_property
    def flags(self) -> dict[FlagKind, Flag]:
        """The first flag of each kind."""
        flags = {kind: self.usage.flag(kind) for kind in FLAG_KINDS} if self.usage else {}
        return {kind: flag for kind, flag in flags.items() if flag}

    @property
    def is_fragile(self) -> bool:
        """Whether the jittered starts end with different stabilities."""
        return self.level is not None and len(set(self.level.starts)) > 1


class TrialFiles:
    """The files of a team's trials with a model, each read when it is needed first.

    Attributes:
        folders: The folder of each stage.
    """

    def __init__(self, model: str, team: str, root: Path = Path(), *, during_run: bool = False) -> None:
        """Name the trials. With `during_run`, a file that is missing or half written counts as empty."""
        self.model, self.team, self._root, self._during_run = model, team, root, during_run
        self.folders = {name: root / stage_dir(name, model, team) for name in STAGE_DIRS}
        self._letters: dict[str, _Measurements] = {}

    @cached_property
    def outcomes(self) -> dict[Trial, TrialOutcome]:
        """The outcomes of all trials that reached the stage simulate."""
        return self._read(read_outcomes, self.folders["stability"], {})

    @cached_property
    def simulations(self) -> SimulationsFile:
        """The engine, the physics and the simulated levels."""
        empty = SimulationsFile(engine="")
        return self._read(SimulationsFile.read, self.folders["stability"] / SIMULATIONS_FILE, empty)

    @cached_property
    def _levels(self) -> dict[Trial, SimulatedTrial]:
        return {Trial(level.letter, level.trial): level for level in self.simulations.trials}

    @cached_property
    def _paths(self) -> dict[Trial, tuple[BlockPath, ...]]:
        file = self._read(ReplaysFile.read, self._root / replays_file(self.model, self.team), ReplaysFile())
        return {Trial(replay.letter, replay.trial): replay.paths for replay in file.trials}

    @cached_property
    def _summaries(self) -> dict[Trial, TrialSummary]:
        return self._read(read_summaries, self._root / summaries_file(self.model, self.team), {})

    def official(self, trial: Trial) -> dict[StageDir, Path]:
        """Return the official files of a trial by their stages."""
        return {name: trial_file(self.folders[name], name, self.team, trial) for name in EXTENSIONS}

    def record_file(self, trial: Trial) -> Path:
        """Return the place of a trial's record."""
        return record_path(self.folders["raw"], self.team, trial)

    def record(self, trial: Trial) -> TrialRecord | None:
        """Read the record of a trial; None, with `during_run`, if the response was made elsewhere."""
        return self._read(read_record, self.record_file(trial), None)

    def view(self, trial: Trial, *, drawn: bool = True) -> TrialView:
        """Return what the stages measured of a trial; unless it is to be drawn, without level and paths."""
        if trial.letter not in self._letters:
            self._letters[trial.letter] = self._measurements(trial.letter)
        levels, pictures, predictions = self._letters[trial.letter]
        stability, similarity = levels.get(trial.number), pictures.get(trial.number)
        prediction, summary = predictions.get(trial.number), self._summaries.get(trial)
        return TrialView(
            trial=trial,
            outcome=self.outcomes.get(trial),
            level=self._levels.get(trial) if drawn else None,
            paths=self._paths.get(trial, ()) if drawn else (),
            stability=stability.score if stability else None,
            similarity=similarity.similarity if similarity else None,
            probabilities=prediction.likeliest if prediction else (),
            usage=summary.usage if summary else None,
        )

    def _measurements(self, letter: str) -> _Measurements:
        stability, similarity = (letter_file(self.folders[name], letter) for name in ("stability", "similarity"))
        levels = self._read(StabilityFile.read, stability, StabilityFile(levels=()))
        pictures = self._read(SimilarityFile.read, similarity, SimilarityFile(trials=()))
        return by_trial(levels.levels), by_trial(pictures.trials), by_trial(pictures.predictions)

    def _read(self, read: Callable[[Path], _Content], path: Path, empty: _Content) -> _Content:
        try:
            return read(path)
        except FileError:
            if self._during_run:
                return empty
            raise
