"""Name the files of a reproduction, and define its result and the interface of the computer that runs it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

REPRODUCE_SCRIPT, REPRODUCE_LOG = "reproduce.sh", "reproduce.log"
CREATION_TIME = f"{REPRODUCE_LOG}.creation_time"  # PaperBench: when reproduce.sh was started, in seconds since 1970
STARTED = f"[pcgeval] {REPRODUCE_SCRIPT} started at "  # an ISO time follows; so begins the log of a run in our sandbox


@dataclass(frozen=True)
class ReproductionRun:
    """The result of running a submission's reproduce.sh.

    Attributes:
        folder: A copy of the submission as it was after the run, with reproduce.log.
        log: The output, cut in the middle if it is long, the files left out, and how it ended. It has no times, so
            equal runs have equal logs; the file reproduce.log begins and ends with them.
        exit_code: The script's, 128 + the signal's number for a signal; None if it was stopped or never started.
        reason: Why it was stopped or never started, or which signal ended it.
        seconds: How long it ran.
        started_at: Seconds since 1970 by the clock of the disk. The files of the run are as old or newer; those that
            were handed in are made to look older.
    """

    folder: Path
    log: str
    exit_code: int | None
    reason: str | None
    seconds: float
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
