"""Where a submission's reproduce.sh is run before it is judged."""

from pathlib import Path
from typing import Protocol

from pcgeval.core.reproduction import ReproductionRun


class Computer(Protocol):
    """A place where strangers' code may run."""

    def reproduce(self, submission: Path, into: Path) -> ReproductionRun:
        """Copy a submission into the folder `into` and run its reproduce.sh there."""
