"""Messages and progress on stderr, and the exit codes of commands and stages."""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Self

import psutil

from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import read_json
from pcgeval.core.layout import PACKAGE_FILE
from pcgeval.core.packages import missing_package
from pcgeval.core.release import installed_release
from pcgeval.core.untrusted import printable_line, printable_text

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.status import Status

    from pcgeval.core.params import Params

EXIT_CHECK_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130  # the shell's convention for Ctrl-C
INSIDE_RUN = "PCGEVAL_RUN"  # set for the processes of `pcgeval run`, which reports an interruption itself
LINE_SECONDS = 5.0  # the shortest time between plain lines about progress
STATUS_SECONDS = 10.0  # the same about one activity
_PARENT_SECONDS = 0.5  # between two looks whether DVC still runs
_GARBAGE = 100_000  # new objects between two searches for cycles, which took a fifth of a report's time
_SHELLS = frozenset({"sh", "dash", "bash", "zsh", "fish", "ksh"})


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


def heed_signals() -> None:
    """Let SIGTERM and SIGHUP act like Ctrl-C: a KeyboardInterrupt in the main thread."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup has it ignored
            signal.signal(number, signal.default_int_handler)


def run_stage(stage: Callable[["Params"], None]) -> NoReturn:
    """Run a function of `pcgeval.pipeline` on this folder's params.yaml, and end the process."""
    heed_signals()
    gc.set_threshold(_GARBAGE)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a stage divides its work over the cores itself, at less cost
    if "DVC_STAGE" in os.environ:
        threading.Thread(target=_end_with_dvc, daemon=True).start()
    code = stage_exit_code(stage)
    sys.stdout.flush()
    sys.stderr.flush()
    if code == EXIT_INTERRUPTED:
        os._exit(code)  # a usual exit would wait for a thread that asks a model
    sys.exit(code)


def stage_exit_code(stage: Callable[["Params"], None]) -> int:
    """Run a stage on this folder's params.yaml and return its exit code; an error becomes a message."""

    def action() -> None:
        from pcgeval.core.params import load_params  # noqa: PLC0415 - a command's help needs no params

        check_package()
        stage(load_params())

    return exit_code_of(action, stage.__name__)


def check_package() -> None:
    """Raise FileError if Python imports another pcgeval than DVC hashes: src/pcgeval here, or that of pcgeval.json."""
    package, beside = Path(__file__).parents[1], Path("src", "pcgeval")
    if beside.is_dir() and not beside.samefile(package):
        raise FileError(
            f"{package}: Python imports this pcgeval, but the folder {Path.cwd()} has another one in {beside}, which "
            "its results are hashed with. Run `make setup` here and use its .venv, or set PYTHONPATH=src."
        )
    if PACKAGE_FILE.is_file() and (named := read_json(PACKAGE_FILE)) != installed_release():
        raise FileError(
            f"{PACKAGE_FILE}: this competition is run with {named}, but Python imports {installed_release()} from "
            f"{package}. Install that version, or run `pcgeval init . --upgrade` to evaluate it again with this one."
        )


def _end_with_dvc() -> None:
    """Stop this process once the DVC that started it has ended: a killed DVC leaves its stage running."""
    with contextlib.suppress(psutil.NoSuchProcess, StopIteration):  # the latter where only a shell is left
        parents = psutil.Process().parents()
        dvc = next(parent for parent in parents if parent.name() not in _SHELLS)
        while dvc.is_running() and dvc.status() != psutil.STATUS_ZOMBIE:
            time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


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
        from rich.progress import BarColumn, TextColumn  # noqa: PLC0415
        from rich.progress import Progress as Bar  # noqa: PLC0415

        if not isinstance(self._line, Bar):
            columns = BarColumn(bar_width=20), TextColumn("{task.description}", markup=False)
            self._line = Bar(*columns, console=Console(stderr=True), transient=True)
            self._line.add_task("")
        self._line.start()
        self._line.update(self._line.task_ids[0], description=text, completed=self.done, total=self.total)


def count(number: int, singular: str, plural: str = "") -> str:
    """Return `1 trial` or `2 trials`."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """Return a time in words: `40 s`, `12 min`, `3 h 20 min`."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
