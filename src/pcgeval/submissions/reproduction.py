"""Name the files of a reproduction, and define its result and the interface of the computer that runs it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

REPRODUCE_SCRIPT, REPRODUCE_LOG = "reproduce.sh", "reproduce.log"
CREATION_TIME = f"{REPRODUCE_LOG}.creation_time"  # PaperBench: when reproduce.sh was started, in seconds since 1970


@dataclass(frozen=True)
class ReproductionRun:
    """The result of running a submission's reproduce.sh."""

    folder: Path  # a copy of the submission as it was after the run, with reproduce.log
    log: str  # the output, cut in the middle if it is long, the files left out, and how it ended; without times
    exit_code: int | None  # the script's, 128 + the signal's number for a signal; None if it was stopped or not started
    reason: str | None  # why it was stopped or never started, or which signal ended it
    seconds: float  # how long it ran
    # seconds since 1970 by the clock of the disk: the files of the run are as old or newer, those handed in look older
    started_at: float


class Computer(Protocol):
    """An environment that may run untrusted code.

    An attribute `identity`, a text, may name the settings that decide how a run ends: a run that was kept counts for
    the same identity only.
    """

    def reproduce(self, submission: Path, into: Path) -> ReproductionRun:
        """Copy a submission into the folder `into` and run its reproduce.sh there."""


def computer_identity(computer: Computer) -> str:
    """Return the identity of a computer; empty if it has none."""
    return str(getattr(computer, "identity", ""))
