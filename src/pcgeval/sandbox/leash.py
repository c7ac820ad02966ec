"""The hold on a started program and on all that it starts: through its PID namespace, or without one its session."""

import contextlib
import json
import os
import select
import signal
import subprocess
from typing import Protocol

REPORT_SECONDS = 10.0  # bubblewrap reports within milliseconds


class Leash(Protocol):
    """What can be done to a program as a whole."""

    @property
    def first(self) -> int:
        """The process from which all others of the program descend."""

    @property
    def contained(self) -> bool:
        """Whether no process can get away from it."""

    def kill(self) -> None:
        """End all processes at once; nothing if they have ended."""

    def exit_code(self) -> int | None:
        """The program's exit code after its end, 128 + the signal's number for a signal; None if it never started."""

    def close(self) -> None:
        """Give back what it holds open."""


class NamespaceLeash:
    """The PID namespace that bubblewrap makes: when its first process is killed, the kernel kills all others in it."""

    contained = True

    def __init__(self, bubblewrap: subprocess.Popen[bytes], reports: int) -> None:
        """Wait for the namespace.

        Args:
            bubblewrap: The process outside; it ends after the namespace's first process.
            reports: The descriptor on which it writes lines of JSON (--json-status-fd), closed with the leash.
        """
        self._reports = reports
        self._report = _first_line(reports)
        first = self._reported("child-pid")
        self.first = bubblewrap.pid if first is None else first
        self._handle = _handle(self.first)

    def kill(self) -> None:
        """End all processes at once; nothing if they have ended."""
        if self._handle is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)

    def exit_code(self) -> int | None:
        """The program's exit code after its end; None if bubblewrap could not start it."""
        return self._reported("exit-code")

    def close(self) -> None:
        """Take the last report and give back what it holds open."""
        while chunk := os.read(self._reports, 4096):
            self._report += chunk
        for descriptor in (self._reports, self._handle):
            if descriptor is not None:
                os.close(descriptor)
        self._handle = None

    def _reported(self, name: str) -> int | None:
        entries = [json.loads(line) for line in self._report.splitlines() if line.strip()]
        return next((entry[name] for entry in entries if name in entry), None)


class SessionLeash:
    """The session of a trusted program; a process that starts a session of its own gets away."""

    contained = False

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        """Hold a process that leads its session."""
        self._process = process
        self.first = process.pid

    def kill(self) -> None:
        """End all processes of the session at once; nothing if they have ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # macOS: not permitted when all are zombies
            os.killpg(self.first, signal.SIGKILL)

    def exit_code(self) -> int | None:
        """The program's exit code after its end, 128 + the signal's number for a signal."""
        code = self._process.returncode
        return 128 - code if code is not None and code < 0 else code

    def close(self) -> None:
        """Nothing is held open."""


def _handle(process: int) -> int | None:
    """Return a descriptor that stands for a process whatever becomes of its number; None if it has ended."""
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        return None


def _first_line(descriptor: int) -> bytes:
    """Read a line, or less if the other end is closed or nothing comes."""
    line = b""
    while not line.endswith(b"\n") and select.select([descriptor], [], [], REPORT_SECONDS)[0]:
        chunk = os.read(descriptor, 4096)
        if not chunk:
            break
        line += chunk
    return line
