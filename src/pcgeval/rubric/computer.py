"""Where a submission's reproduce.sh is run before it is judged."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


class Run(Protocol):
    """What became of reproduce.sh, as `ReproductionRun` describes it; any class with these attributes will do."""

    @property
    def folder(self) -> Path: ...
    @property
    def log(self) -> str: ...
    @property
    def exit_code(self) -> int | None: ...
    @property
    def reason(self) -> str | None: ...
    @property
    def seconds(self) -> float: ...
    @property
    def started_at(self) -> float: ...


@dataclass(frozen=True)
class ReproductionRun:
    """What became of reproduce.sh.

    Attributes:
        folder: The copy of the submission in which it ran, with its results and reproduce.log.
        log: What it printed.
        exit_code: How it ended; None if it was stopped or could not be run.
        reason: Why it was stopped or could not be run.
        seconds: How long it ran.
        started_at: When it began, in seconds since 1970: result files from then on are its own.
    """

    folder: Path
    log: str
    exit_code: int | None
    reason: str | None
    seconds: float
    started_at: float


class Computer(Protocol):
    """A place where strangers' code may run."""

    def reproduce(self, submission: Path, into: Path) -> Run:
        """Copy a submission into the folder `into` and run its reproduce.sh there."""
