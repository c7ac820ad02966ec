"""A started program: what it prints is read, what it uses is watched, and all of it is ended when told to."""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from pcgeval.sandbox.leash import Leash
from pcgeval.sandbox.limits import MEGABYTE, MOST_SCRATCH_FILES, Allowance, SandboxError
from pcgeval.sandbox.usage import scratch_files, shared_once_bytes, usage_of_tree

TAIL_BYTES = 8_000
CHUNK_BYTES = 65_536
WATCH_SECONDS = 0.05
GRACE_SECONDS = 5.0  # for the kernel to clear away what was killed


@dataclass(frozen=True)
class Ending:
    """How a program ended.

    Attributes:
        code: Its exit code, 128 + the signal's number if a signal ended it; None if it was stopped.
        reason: Why it was stopped or which signal ended it, in words that follow "the program"; None if it ended by
            itself, whatever its exit code.
        error_tail: The last 8 kB that it printed on standard error.
    """

    code: int | None
    reason: str | None
    error_tail: str


class Confined:
    """A running program.

    The thread that starts it must outlive it: the kernel ends a sandbox with the thread that it was started from.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        leash: Leash,
        allowance: Allowance,
        clean_up: Callable[[], object],
    ) -> None:
        """Watch a process whose standard output and error are pipes.

        Args:
            process: bubblewrap, or without a sandbox the program itself.
            leash: The hold on all processes of the program, closed here.
            allowance: What is watched from outside: memory, processes, output, files in /tmp.
            clean_up: Called once after all has ended.
        """
        self._process = process
        self._leash = leash
        self._allowance = allowance
        self._clean_up = clean_up
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._error_tail = b""
        self._printed_bytes = 0
        self._ended = threading.Event()
        threading.Thread(target=self._watch, name="sandbox watcher", daemon=True).start()

    def wait(self, timeout: float) -> Ending:
        """Return how it ended, and stop it after `timeout` seconds.

        Raises:
            SandboxError: The sandbox itself could not be set up.
        """
        if not self._ended.wait(timeout):
            self.kill(f"was stopped after {timeout:g} s")
            self._ended.wait(3 * GRACE_SECONDS)
        tail = self._error_tail.decode("utf-8", errors="replace")
        if self._reason is not None:
            return Ending(None, self._reason, tail)
        code = self._leash.exit_code()
        if code is None:
            raise SandboxError(
                f"The sandbox could not be set up, or was ended from outside: {tail.strip() or 'no message'}. "
                "Check that the paths in the message exist and that bubblewrap works: `bwrap --ro-bind / / true`."
            )
        return Ending(code, _signal_reason(code), tail)

    def kill(self, reason: str = "was stopped") -> None:
        """End it and all it started, at once; the first reason given stays, and one that ended keeps its ending."""
        with self._lock:
            if self._process.poll() is None:
                self._reason = self._reason or reason
                self._leash.kill()

    def _watch(self) -> None:
        try:
            self._follow()
        finally:
            self._end()
            self._clean_up()
            self._ended.set()

    def _follow(self) -> None:
        """Read and look until it has ended and closed its pipes, or has had time enough to close them."""
        next_look = 0.0
        latest_end = float("inf")
        with selectors.DefaultSelector() as open_pipes:
            if self._process.stdout is not None and self._process.stderr is not None:
                open_pipes.register(self._process.stdout, selectors.EVENT_READ, self._count)
                open_pipes.register(self._process.stderr, selectors.EVENT_READ, self._keep_error)
            while self._process.poll() is None or (open_pipes.get_map() and time.monotonic() < latest_end):
                self._read(open_pipes)
                if time.monotonic() >= next_look:
                    self._look()
                    next_look = time.monotonic() + WATCH_SECONDS
                if self._process.poll() is not None and latest_end == float("inf"):
                    latest_end = time.monotonic() + GRACE_SECONDS
                    self._leash.kill()  # what it left behind holds the pipes open

    def _read(self, open_pipes: selectors.BaseSelector) -> None:
        if not open_pipes.get_map():
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(WATCH_SECONDS)
            return
        for key, _ in open_pipes.select(WATCH_SECONDS):
            if chunk := os.read(key.fd, CHUNK_BYTES):
                key.data(chunk)
            else:
                open_pipes.unregister(key.fileobj)

    def _count(self, chunk: bytes) -> None:
        self._printed_bytes += len(chunk)
        if self._printed_bytes > self._allowance.file_bytes:
            self.kill(f"printed more than {self._allowance.file_bytes / MEGABYTE:g} MB")

    def _keep_error(self, chunk: bytes) -> None:
        self._error_tail = (self._error_tail + chunk)[-TAIL_BYTES:]
        self._count(chunk)

    def _look(self) -> None:
        """Stop it if it uses more than it may."""
        allowance = self._allowance
        usage = usage_of_tree(self._leash.first, most_tasks=2 * allowance.processes)
        if usage.tasks > allowance.processes + 1:  # the first process may be bubblewrap's own
            self.kill(f"had more than {allowance.processes} processes and threads")
        elif usage.memory_bytes > allowance.memory_bytes and (
            shared_once_bytes(usage.processes) > allowance.memory_bytes
        ):
            self.kill(f"used more than {allowance.memory_bytes / MEGABYTE:g} MB of memory")
        elif self._leash.contained and max(map(scratch_files, usage.processes)) > MOST_SCRATCH_FILES:
            self.kill(f"made more than {MOST_SCRATCH_FILES} files")

    def _end(self) -> None:
        """Clear away what is left, whatever happened."""
        self._leash.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self._process.kill()  # only if bubblewrap itself hangs
        self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()
        with self._lock:
            self._leash.close()


def _signal_reason(code: int) -> str | None:
    try:
        return f"was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return None
