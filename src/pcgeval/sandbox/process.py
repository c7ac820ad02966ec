"""Watch a running program: limit its output, memory, processes and files, and kill all of it at once."""

import os
import platform
import re
import selectors
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psutil

from pcgeval.core.errors import PcgevalError

MEGABYTE = 1_000_000
SUBMISSION = "/submission"  # where the sandbox shows the program's folder
SCRATCH_FOLDERS = ("/tmp", "/dev/shm", SUBMISSION)  # noqa: S108 - of the sandbox: in memory, with a limited size
MAX_SCRATCH_FILES = 50_000  # in them together: an empty file costs the kernel about 1 kB that no other limit counts
MAX_SOCKETS = 1_000  # in its network: unread bytes in a socket take up to 250 kB that no other limit counts
TAIL_BYTES = 8_000
CHUNK_BYTES = 65_536
WATCH_SECONDS = 0.05
WATCH_SHARE = 0.05  # the most of one processor core that watching takes: psutil looks at all processes of the machine
GRACE_SECONDS = 5.0  # for the kernel to clear killed processes away
# Libraries map far more addresses than they use (PyTorch some 4 GB), so the kernel's limit on addresses only stops a
# single huge request; the memory in use is watched from outside.
SPARE_ADDRESSES = 8_000 * MEGABYTE
KERNEL_EVENTS = Path("/proc/vmstat")  # counters of this machine
FIRST_KERNEL_TO_COUNT = (5, 14)  # since then each user namespace counts the processes of a user separately


class SandboxError(PcgevalError):
    """Programs cannot be contained here, or the sandbox could not be set up."""


@dataclass(frozen=True)
class ResourceLimits:
    """The resources that one started program, with all processes that it starts, may use."""

    memory_bytes: int = 4_000 * MEGABYTE  # resident, of all processes together; pages that they share count once
    processes: int = 64  # and threads, at once
    scratch_bytes: int = 256 * MEGABYTE  # of each of the SCRATCH_FOLDERS, on top of `memory_bytes`
    file_bytes: int = 64 * MEGABYTE  # of a single file
    output_bytes: int = 64 * MEGABYTE  # that it prints together
    kept_output_bytes: int = 65_536  # that are kept of the beginning of its output, and as many of the end
    open_files: int = 1_024  # per process

    def of_kernel(self, uncounted: int | None = None) -> dict[str, int]:
        """Return the limits that the kernel holds; those on memory and processes for a contained program alone.

        `uncounted` is the number of our processes that count as the program's.
        """
        # a core of 1 byte is not written; one of 0 bytes would still go to a program that the kernel hands cores to
        limits = {"RLIMIT_CORE": 1, "RLIMIT_FSIZE": self.file_bytes, "RLIMIT_NOFILE": self.open_files}
        if uncounted is not None:
            limits["RLIMIT_AS"] = self.memory_bytes + SPARE_ADDRESSES
            kernel = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
            if os.geteuid() == 0 or kernel >= FIRST_KERNEL_TO_COUNT:  # else it counts all that a user runs
                limits["RLIMIT_NPROC"] = self.processes + uncounted
        return limits


@dataclass(frozen=True)
class ExitStatus:
    """How a program ended."""

    code: int | None  # its exit code, 128 + the signal's number if a signal ended it; None if it was stopped
    reason: str | None  # why it was stopped or which signal ended it, in words that follow "the program"; else None
    stderr_tail: str  # the last 8 kB that it printed on standard error
    lacked_memory: bool = False  # the kernel may have killed it, as this machine ran out of memory meanwhile


class Child(Protocol):
    """A started program, as its watcher sees it."""

    code: int | None  # once it is over: its exit code, or the negative number of a signal; None if the sandbox failed
    fault: str  # why the sandbox failed, as far as that is known
    first: psutil.Process | None  # all others descend from it; None once it has ended
    outputs: tuple[int, int]  # the reading ends of the pipes of its standard output and error

    @property
    def wake(self) -> socket.socket | None:
        """Readable when it may have ended; a program without it is in no sandbox."""

    def is_over(self) -> bool:
        """Tell whether it has ended; only the watcher asks."""

    def kill(self) -> None:
        """Kill all its processes."""

    def close(self) -> None:
        """Release what it held, after it was killed."""


def ended_from_outside(fault: str) -> SandboxError:
    """Return the error of a sandbox that failed."""
    return SandboxError(
        f"The sandbox could not be set up, or was ended from outside: {fault or 'no message'}. "
        "Check that the paths in the message exist, then run again."
    )


class SandboxedProcess:
    """A running program with all processes that it starts."""

    def __init__(self, child: Child, limits: ResourceLimits) -> None:
        """Watch a program until it ends, and close it after everything has ended."""
        self._child, self._limits = child, limits
        self._lock = threading.Lock()
        self._reason: str | None = None
        self._stderr_tail = b""
        self._first_output, self._last_output = bytearray(), bytearray()  # of standard output and error, as it came
        self._printed_bytes = 0
        self._kills_without_memory = _kills_without_memory()
        self._ended = threading.Event()
        try:
            threading.Thread(target=self._watch, name="sandbox watcher", daemon=True).start()
        except BaseException:  # such as no thread left
            self._end()
            raise

    def wait(self, timeout: float) -> ExitStatus:
        """Wait until the program ends, and stop it after `timeout` seconds.

        Raises:
            SandboxError: The sandbox itself could not be set up, or was ended from outside.
        """
        if not self._ended.wait(timeout):
            self.kill(f"was stopped after {timeout:g} s")
            self._ended.wait(3 * GRACE_SECONDS)
        tail, code = self._stderr_tail.decode("utf-8", errors="replace"), self._child.code
        if self._reason is not None and code in (None, -signal.SIGKILL):
            return ExitStatus(None, self._reason, tail)
        if code is None:
            raise ended_from_outside(self._child.fault)
        code = 128 - code if code < 0 else code
        lacked_memory = code == 128 + signal.SIGKILL and _kills_without_memory() > self._kills_without_memory
        try:
            return ExitStatus(code, f"was ended by {signal.Signals(code - 128).name}", tail, lacked_memory)
        except ValueError:
            return ExitStatus(code, None, tail)

    def has_ended(self, timeout: float) -> bool:
        """Wait for a time at most; tell whether everything has ended."""
        return self._ended.wait(timeout)

    def is_busy(self) -> bool:
        """Tell whether a thread of the program computes, waits for the disk, or would if the machine had time."""
        states, first = set(), self._child.first
        with suppress(psutil.Error, OSError):  # what ends meanwhile; elsewhere than on Linux nobody knows
            for process in [first, *first.children(recursive=True)] if first else ():
                for task in Path(f"/proc/{process.pid}/task").iterdir():
                    states.add((task / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0])
        return bool(states & {"R", "D"})

    def output(self, timeout: float) -> str:
        """Return what the program printed, once it has ended or `timeout` seconds have passed; untrusted text.

        Of long output it returns the beginning and the end, with a line between them that gives the bytes left out.
        """
        self._ended.wait(timeout)
        with self._lock:
            missing = self._printed_bytes - len(self._first_output) - len(self._last_output)
            between = f"\n[{missing} bytes left out]\n".encode() if missing else b""
            return (self._first_output + between + self._last_output).decode("utf-8", errors="replace")

    def kill(self, reason: str = "was stopped") -> None:
        """Kill all processes at once; the first reason stays, and a program that has ended keeps its status."""
        with self._lock:
            if not self._ended.is_set():
                self._reason = self._reason or reason
                self._child.kill()

    def _watch(self) -> None:
        """Read the output and check usage until the program ends, then give its pipes time to close."""
        next_check = time.monotonic() + WATCH_SECONDS
        try:
            with selectors.DefaultSelector() as pipes:
                wake = self._child.wake
                for output in self._child.outputs:
                    pipes.register(output, selectors.EVENT_READ)
                if wake:
                    pipes.register(wake, selectors.EVENT_READ)
                while not self._child.is_over():
                    started = time.monotonic()
                    if started >= next_check:
                        self._check_usage()
                        ended = time.monotonic()
                        next_check = ended + max(WATCH_SECONDS, (ended - started) / WATCH_SHARE)
                    self._read(pipes)
                if wake:
                    pipes.unregister(wake)
                self._child.kill()  # processes that it left behind hold the pipes open
                deadline = time.monotonic() + GRACE_SECONDS
                while pipes.get_map() and time.monotonic() < deadline:
                    self._read(pipes)
        finally:
            self._end()

    def _read(self, pipes: selectors.BaseSelector) -> None:
        """Keep the beginning and the end of the output; wait a moment if there is none."""
        most = self._limits.kept_output_bytes
        for key, _ in pipes.select(WATCH_SECONDS):
            if key.fileobj is self._child.wake:
                continue
            chunk = os.read(key.fd, CHUNK_BYTES)
            if not chunk:
                pipes.unregister(key.fileobj)
            with self._lock:
                if key.fd == self._child.outputs[1]:
                    self._stderr_tail = (self._stderr_tail + chunk)[-TAIL_BYTES:]
                room = most - len(self._first_output)
                self._first_output += chunk[:room]
                self._last_output += chunk[room:]
                del self._last_output[:-most]
                self._printed_bytes += len(chunk)
        if self._printed_bytes > self._limits.output_bytes:
            self.kill(f"printed more than {self._limits.output_bytes / MEGABYTE:g} MB")

    def _end(self) -> None:
        """Kill the remaining processes and release everything that the program held."""
        self._child.kill()
        self._child.close()
        self._ended.set()

    def _check_usage(self) -> None:
        """Stop the program if it uses more than it may; processes that end meanwhile count as nothing."""
        limits, first = self._limits, self._child.first
        if first is None:
            return
        processes, tasks, memory = [first], 0, 0
        with suppress(psutil.Error):
            processes += first.children(recursive=True)
        for process in processes:
            with suppress(psutil.Error):
                memory += process.memory_info().rss
                tasks += len(process.threads())  # num_threads reads a file in which the process's name can imitate it
        if tasks > limits.processes + 1:  # in the sandbox the first process is ours
            self.kill(f"had more than {limits.processes} processes and threads")
        elif memory > limits.memory_bytes and sum(map(_memory_share, processes)) > limits.memory_bytes:
            self.kill(f"used more than {limits.memory_bytes / MEGABYTE:g} MB of memory")
        elif self._child.wake and _scratch_files(first.pid) > MAX_SCRATCH_FILES:
            self.kill(f"made more than {MAX_SCRATCH_FILES} files")
        elif self._child.wake and _sockets(first.pid) > MAX_SOCKETS:
            self.kill(f"had more than {MAX_SOCKETS} sockets")


def _kills_without_memory() -> int:
    """Return how many processes the kernel has killed since it started because memory ran out; 0 if it does not say."""
    with suppress(OSError):
        if count := re.search(r"^oom_kill (\d+)$", KERNEL_EVENTS.read_text("utf-8"), re.MULTILINE):
            return int(count[1])
    return 0


def _memory_share(process: psutil.Process) -> int:
    """Return the resident memory of a process with its share of shared pages; slow, as the kernel walks all pages."""
    with suppress(psutil.NoSuchProcess):
        try:
            memory = process.memory_full_info()
        except psutil.AccessDenied:
            memory = process.memory_info()
        return int(getattr(memory, "pss", memory.rss))  # only Linux knows the share
    return 0


def _sockets(first: int) -> int:
    """Return the number of sockets in the network of a process; those of this machine's network are not counted."""
    process = Path(f"/proc/{first}")
    with suppress(OSError):
        if not (process / "ns/net").samefile("/proc/self/ns/net"):
            return int((process / "net/sockstat").read_text("utf-8").split()[2])  # of `sockets: used 12`
    return 0


def _scratch_files(first: int) -> int:
    """Return the number of files in the folders in memory of the sandbox with this first process.

    Where it sees the host's disk, that is not counted.
    """
    files = 0
    with suppress(OSError):
        root = os.open(f"/proc/{first}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.path.samestat(os.fstat(root), Path("/").stat()):
                return 0
            for folder in SCRATCH_FOLDERS:
                # below the descriptor: whatever the process does meanwhile, this is the root that was compared
                space = os.statvfs(f"/proc/self/fd/{root}{folder}")
                files += 0 if space.f_flag & os.ST_RDONLY else space.f_files - space.f_ffree
        finally:
            os.close(root)
    return files
