"""How commands and stages speak to people: progress on stderr, one clear message for a fault, and exit codes."""

import sys
import time
from collections.abc import Callable

from rich.console import Console

from pcgeval.errors import PcgevalError

EXIT_CHECK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # the shell's convention for Ctrl-C

_console = Console(stderr=True, highlight=False, soft_wrap=True)


def say(text: str) -> None:
    """Print a line for people on stderr."""
    _console.print(text, markup=False)


def guarded(action: Callable[[], int | None]) -> int:
    """Run an action and return an exit code; a fault that the user can mend becomes a message, not a traceback."""
    try:
        return action() or 0
    except PcgevalError as error:
        say(f"error: {error}")
        return EXIT_BAD_INPUT
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        say(f"error: {place}{error.strerror or error}. Check the disk's space and permissions, then run again.")
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        say("stopped; what was finished is kept, run again to go on")
        return EXIT_INTERRUPTED


def run_stage(main: Callable[..., None]) -> None:
    """Run a stage script's main function with the command line's words, and end the process."""
    sys.exit(guarded(lambda: main(*sys.argv[1:])))


class Progress:
    """Counts finished items on stderr: a live line on a terminal, a plain line every few seconds elsewhere."""

    def __init__(self, title: str, total: int, *, every: float = 5.0) -> None:
        """Start counting; `every` is the shortest time between plain lines, in seconds."""
        self.title, self.total, self.every = title, total, every
        self.done = 0
        self._started = self._spoken = time.monotonic()

    def step(self, note: str = "") -> None:
        """Count one finished item; `note` says what a person would want to know about it."""
        self.done += 1
        now = time.monotonic()
        if self.done == self.total or now - self._spoken >= (0.2 if _console.is_terminal else self.every):
            self._spoken = now
            self._speak(note, now)

    def _speak(self, note: str, now: float) -> None:
        rate = self.done / max(now - self._started, 1e-9)
        left = (self.total - self.done) / rate
        remaining = f", about {left:.0f} s left" if self.done < self.total else ""
        line = f"{self.title}: {self.done}/{self.total}{remaining}{f' ({note})' if note else ''}"
        end = "\r" if _console.is_terminal and self.done < self.total else "\n"
        _console.print(line, end=end, markup=False)
