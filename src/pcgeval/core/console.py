"""How commands and stages speak to people: progress on stderr, one clear message for a fault, and exit codes."""

import os
import signal
import sys
import time
from collections.abc import Callable

from rich.console import Console

from pcgeval.core.errors import PcgevalError

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
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is signal.SIG_DFL:  # nohup has it ignored
            signal.signal(each, signal.default_int_handler)  # all ways to stop a run are like Ctrl-C
    code = guarded(lambda: main(*sys.argv[1:]))
    sys.stdout.flush()
    sys.stderr.flush()
    if code == EXIT_INTERRUPTED:
        os._exit(code)  # a thread may be in the middle of a model's call, for which a usual end would wait or crash
    sys.exit(code)


class Progress:
    """Counts finished items on stderr: a live line on a terminal, a plain line every few seconds elsewhere."""

    def __init__(self, title: str, total: int, *, every: float = 5.0) -> None:
        """Start counting; `every` is the shortest time between plain lines, in seconds."""
        self.title, self.total, self.every = title, total, every
        self.done = self.failed = self.tokens = self._kept = 0
        self._started = self._spoken = time.monotonic()

    def step(self, note: str = "", *, tokens: int = 0, failed: bool = False, kept: bool = False) -> None:
        """Count one finished item.

        Args:
            note: What a person would want to know about it.
            tokens: What a model read and wrote for it.
            failed: Whether it came to nothing.
            kept: Whether an earlier run did it, so that it says nothing about the rate.
        """
        self.done += 1
        self.tokens += tokens
        self.failed += failed
        self._kept += kept
        now = time.monotonic()
        if self.done == self.total or now - self._spoken >= (0.2 if _console.is_terminal else self.every):
            self._spoken = now
            self._speak(note, now)

    def _speak(self, note: str, now: float) -> None:
        parts = [f"{self.title}: {self.done}/{self.total}", *self._rate(now - self._started)]
        if self.tokens:
            parts.append(f"{self.tokens} tokens")
        if self.failed:
            parts.append(f"{self.failed} failed")
        line = f"{', '.join(parts)}{f' ({note})' if note else ''}"
        line = "".join(each if each.isprintable() else " " for each in line)  # a reason may quote a hostile program
        end = "\r" if _console.is_terminal and self.done < self.total else "\n"
        if _console.is_terminal:
            line = line[: _console.width - 1].ljust(_console.width - 1)  # covers the line before, also a longer one
        _console.print(line, end=end, markup=False)

    def _rate(self, seconds: float) -> list[str]:
        new = self.done - self._kept
        if not new:
            return []
        rate = new / max(seconds, 1e-9)
        words = [f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"]
        if self.done < self.total:
            words.append(f"about {duration((self.total - self.done) / rate)} left")
        return words


def duration(seconds: float) -> str:
    """Return a time as a person says it: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
