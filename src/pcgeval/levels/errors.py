"""The error of this package."""

from pcgeval.core.errors import PcgevalError
from pcgeval.core.failures import Failure, failure


class LevelError(PcgevalError):
    """A level that cannot be converted or read; `str(error)` is the official converter's message, if it has one.

    Attributes:
        failure: The failure of a trial with this level.
    """

    def __init__(self, message: str, because: Failure | None = None) -> None:
        """Take the message, and the failure unless it is that of a level that cannot be read."""
        super().__init__(message)
        self.failure = because or failure("level-unreadable", fault=message)
