"""The error of this package."""

from pcgeval.core.errors import PcgevalError


class LevelError(PcgevalError):
    """A level that cannot be converted or read.

    `str(error)` is the official converter's message, if it has one; `where` names the faulty call.
    """

    def __init__(self, message: str, where: str = "") -> None:
        """Keep the place apart from the message, so that the message stays the official one."""
        super().__init__(message)
        self.where = where

    @property
    def reason(self) -> str:
        """The message and the place in one line, for a person."""
        return f"{self} ({self.where})" if self.where else str(self)
