"""The one fault of this package."""

from pcgeval.core.errors import PcgevalError


class LevelError(PcgevalError):
    """A level that cannot be made or read; nothing of it is kept.

    `str(error)` is the official converter's message where there is one; `where` names the call that it is about.
    """

    def __init__(self, message: str, where: str = "") -> None:
        """Keep the place apart from the message, so that the message stays the official one."""
        super().__init__(message)
        self.where = where

    @property
    def reason(self) -> str:
        """The message and the place in one line, for a person."""
        return f"{self} ({self.where})" if self.where else str(self)
