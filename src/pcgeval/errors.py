"""The one base of every fault that a user can mend.

Each module defines its own subclass beside the code that raises it. The message says what was wrong, which value,
where (team, letter and trial, or file and line) and ends with what to do. The commands print it without a traceback.
"""


class PcgevalError(Exception):
    """A fault in the input or the surroundings; commands print the message and exit with code 2."""
