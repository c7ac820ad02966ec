"""The error of this package."""

from pcgeval.core.errors import PcgevalError
from pcgeval.core.failures import Failure, failure


class LevelError(PcgevalError):
    """A level that cannot be extracted, converted or read.

    `str(error)` is the official converter's message, if it has one; `failure` is the failure of a trial.
    """

    def __init__(self, message: str | Failure, failed: Failure | None = None) -> None:
        """Keep the failure apart from the message, so that the message stays the official one."""
        super().__init__(str(message))
        if isinstance(message, Failure):
            failed = message
        self.failure = failed or failure("level-unreadable", fault=str(message))
