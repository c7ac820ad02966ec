"""The one base of every fault that a user can fix.

Each module defines its own subclass beside the code that raises it. The message says what was wrong, which value,
where (team, letter and trial, or file and line) and ends with what to do. The commands print it without a traceback.
"""

from collections.abc import Sequence

_SHOWN_FAULTS = 200


class PcgevalError(Exception):
    """A fault in the input or the surroundings; commands print the message and exit with code 2."""


class FileError(PcgevalError):
    """A file that should be there is missing, unreadable or malformed."""


class FaultsError(PcgevalError):
    """Something with faults; `faults` has all of them, the message the first two hundred."""

    def __init__(self, source: object, faults: Sequence[object]) -> None:
        """Compose the message: the name of what is faulty, the count, and the faults."""
        lines = [f"{source}: {len(faults)} fault{'s' if len(faults) > 1 else ''}", *map(str, faults[:_SHOWN_FAULTS])]
        if len(faults) > _SHOWN_FAULTS:
            lines.append(f"and {len(faults) - _SHOWN_FAULTS} more. Fix these first.")
        super().__init__("\n  ".join(lines))
        self.faults = tuple(faults)
