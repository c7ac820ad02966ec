"""The result of running a submission's reproduce.sh, shared by the sandbox that runs it and the judge."""

from dataclasses import dataclass
from pathlib import Path

REPRODUCE_SCRIPT, REPRODUCE_LOG = "reproduce.sh", "reproduce.log"
STARTED = f"[pcgeval] {REPRODUCE_SCRIPT} started at "  # an ISO time follows; so begins the log of a run in our sandbox


@dataclass(frozen=True)
class ReproductionRun:
    """What became of a run.

    Attributes:
        folder: A copy of the submission as it was after the run, with reproduce.log.
        log: What it printed, cut in the middle if it is long, what was not copied, and how it ended. Without times, so
            that a run that does the same has the same log; the file reproduce.log begins and ends with them.
        exit_code: The script's, 128 + the signal's number for a signal; None if it was stopped or never started.
        reason: Why it was stopped or never started, or what explains its exit code.
        seconds: How long it ran.
        started_at: Seconds since 1970 by the clock of the disk. What the run wrote is as old or newer; all that was
            handed in is made to look older.
    """

    folder: Path
    log: str
    exit_code: int | None
    reason: str | None
    seconds: float
    started_at: float
