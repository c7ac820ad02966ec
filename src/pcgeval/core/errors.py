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


def listed(source: object, faults: Sequence[str]) -> str:
    """Return the message about all that is wrong with something: its name, the count, and the first two hundred."""
    lines = [f"{source}: {len(faults)} fault{'s' if len(faults) > 1 else ''}", *faults[:_SHOWN_FAULTS]]
    if len(faults) > _SHOWN_FAULTS:
        lines.append(f"and {len(faults) - _SHOWN_FAULTS} more. Fix these first.")
    return "\n  ".join(lines)
