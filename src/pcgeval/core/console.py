"""Messages and progress on stderr, signals, and the exit codes of commands and stages."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from pcgeval.core.errors import PcgevalError
from pcgeval.core.packages import missing_package
from pcgeval.core.text import duration, printable_line, printable_text

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.status import Status

EXIT_CHECK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # the shell's convention for Ctrl-C
GARBAGE = 100_000  # new objects between two searches for cycles, which took a fifth of a report's time
INSIDE_RUN = "PCGEVAL_RUN"  # set for the processes of `pcgeval run`, which reports an interruption itself
LINE_SECONDS = 5.0  # the shortest time between plain lines about progress
STATUS_SECONDS = 10.0  # the same about one activity


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


class StatusLine:
    """Show the current activity on stderr: as a context manager on a terminal in a line that changes, else in lines.

    Several threads may use it. At its end, it removes the changing line.
    """

    def __init__(self, seconds: float = STATUS_SECONDS) -> None:
        """Show nothing yet; `seconds` is the shortest time between lines about the same activity."""
        self._seconds = seconds
        self._activity, self._next = "", 0.0
        self._is_live = self._has_ended = False
        self._line: Status | Bar | None = None
        self._lock = threading.RLock()

    def __enter__(self) -> Self:
        """Use a line that changes on a terminal."""
        self._is_live = sys.stderr.isatty()
        return self

    def __exit__(self, *_: object) -> None:
        """End the line; threads that still run show no more."""
        self._has_ended = True
        self.clear()

    def show(self, activity: str, detail: str = "", *, stays: bool = False) -> None:
        """Show an activity with a detail; another activity, or one that `stays`, is shown at once."""
        text = printable_line(f"{activity}{detail}")
        with self._lock:
            if self._has_ended:
                return
            if self._is_live and not stays:
                self._draw(text)
            elif stays or activity != self._activity or time.monotonic() >= self._next:
                self._stop()
                print_stderr(text)
                self._activity, self._next = activity, time.monotonic() + self._seconds

    def clear(self) -> None:
        """Remove the line on a terminal, to make room for other output."""
        with self._lock:
            self._stop()

    def _draw(self, text: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - slow to import, and only a terminal needs it
        from rich.status import Status  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        if not isinstance(self._line, Status):
            self._line = Console(stderr=True).status("")
        self._line.start()
        self._line.update(Text(text))

    def _stop(self) -> None:
        if self._line is not None:
            self._line.stop()


class Progress(StatusLine):
    """Count finished items: on a terminal with a bar, else in lines."""

    def __init__(self, title: str, total: int | None, *, failed_as: str = "failed") -> None:
        """Name the items, their number if it is known, and the word for those that fail."""
        super().__init__(LINE_SECONDS)
        self.title, self.total, self.failed_as = title, total, failed_as
        self.done = self.failed = self.tokens = self._repeated = 0
        self._started = time.monotonic()
        self._activity, self._next = title, self._started + LINE_SECONDS

    def step(self, note: str = "", *, tokens: int = 0, failed: bool = False, repeated: bool = False) -> None:
        """Count one finished item, with a note about its outcome; the rate leaves out what an earlier run did."""
        with self._lock:
            self.done += 1
            self.tokens += tokens
            self.failed += failed
            self._repeated += repeated
            self._show_figures(note)

    def skip(self, items: int) -> None:
        """Count items that an earlier run finished."""
        with self._lock:
            self.done += items
            self._repeated += items
            if items:
                self._show_figures("kept")

    def _show_figures(self, note: str) -> None:
        figures = [f": {self.done}" if self.total is None else f": {self.done}/{self.total}"]
        if new := self.done - self._repeated:
            rate = new / max(time.monotonic() - self._started, 1e-9)
            figures.append(f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min")
            if self.total is not None and self.done < self.total:
                figures.append(f"about {duration((self.total - self.done) / rate)} left")
        if self.tokens:
            figures.append(f"{self.tokens} tokens")
        if self.failed:
            figures.append(f"{self.failed} {self.failed_as}")
        self.show(self.title, ", ".join(figures) + (f" ({note})" if note else ""), stays=self.done == self.total)

    def _draw(self, text: str) -> None:
        from rich.console import Console  # noqa: PLC0415 - as above
        from rich.progress import BarColumn, Progress as Bar, TextColumn  # noqa: PLC0415

        if not isinstance(self._line, Bar):
            columns = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
            self._line = Bar(*columns, console=Console(stderr=True), transient=True)
            self._line.add_task("")
        self._line.start()
        self._line.update(self._line.task_ids[0], description=text, completed=self.done, total=self.total)
