"""Messages and progress on stderr, and the exit codes of commands and stages."""

import os
import signal
import sys
from collections.abc import Callable

from pcgeval.core.errors import PcgevalError
from pcgeval.core.packages import missing_package
from pcgeval.core.text import printable_text

EXIT_CHECK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # the shell's convention for Ctrl-C
GARBAGE = 100_000  # new objects between two searches for cycles, which took a fifth of a report's time
INSIDE_RUN = "PCGEVAL_RUN"  # set for the processes of `pcgeval run`, which reports an interruption itself


def print_stderr(text: str) -> None:
    """Print a message for people; control characters, which may quote a hostile text, become U+FFFD."""
    sys.stderr.write(f"{printable_text(text)}\n")


def exit_code_of(action: Callable[[], int | None], command: str) -> int:
    """Run a command's action and return its exit code; an error that the user can fix becomes a message."""
    try:
        return action() or 0
    except ModuleNotFoundError as error:
        missing = missing_package(error, command)
        if missing is None:
            raise
        print_stderr(f"error: {missing}")
    except (PcgevalError, OSError) as error:
        print_stderr(f"error: {error_message(error)}")
    except KeyboardInterrupt:
        if INSIDE_RUN not in os.environ:
            print_stderr("stopped; what was finished is kept, run again to continue")
        return EXIT_INTERRUPTED
    return EXIT_BAD_INPUT


def error_message(error: PcgevalError | OSError) -> str:
    """Return the message about an error that the user can fix."""
    if isinstance(error, PcgevalError):
        return str(error)
    name = error.filename2 or error.filename  # the first one is that of a replaced file
    place = f"{name}: " if name else ""
    return f"{place}{error.strerror or error}. Check the disk's space and permissions, then run again."


def raise_on_sigterm() -> None:
    """Let SIGTERM and SIGHUP act like Ctrl-C: a KeyboardInterrupt in the main thread."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, signal.default_int_handler)
