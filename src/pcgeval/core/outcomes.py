"""What became of each trial in a step: `trials.json` beside the official files.

A failed trial keeps the step and the reason of its first failure through all later steps, so that the last step's
file explains every zero in the ranking.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pcgeval.core.files import FileError, read_json, write_json
from pcgeval.core.layout import TRIALS_FILE, Trial


@dataclass(frozen=True)
class Outcome:
    """One trial after one step; `reason` is None as long as nothing failed."""

    letter: str
    trial: int
    failed_step: str | None = None
    reason: str | None = None

    @property
    def key(self) -> Trial:
        """The trial that this is the outcome of."""
        return Trial(self.letter, self.trial)


def succeeded(trial: Trial) -> Outcome:
    """Return the outcome of a trial in which nothing failed so far."""
    return Outcome(trial.letter, trial.number)


def failed(trial: Trial, step: str, reason: str) -> Outcome:
    """Return the outcome of a trial that failed in a step, with the reason a person reads."""
    return Outcome(trial.letter, trial.number, step, reason)


def write_outcomes(folder: Path, outcomes: Iterable[Outcome]) -> None:
    """Write `trials.json` into a step's folder for a model and a team."""
    write_json(folder / TRIALS_FILE, [asdict(outcome) for outcome in sorted(outcomes, key=lambda each: each.key)])


def read_outcomes(folder: Path) -> dict[Trial, Outcome]:
    """Read `trials.json` from a step's folder.

    Raises:
        FileError: The file is missing or is not a list of outcomes.
    """
    path = folder / TRIALS_FILE
    try:
        outcomes = [Outcome(**entry) for entry in read_json(path)]
    except TypeError as error:
        raise FileError(f"{path}: not a list of trials ({error}). Run `dvc repro` to make it again.") from error
    return {outcome.key: outcome for outcome in outcomes}
