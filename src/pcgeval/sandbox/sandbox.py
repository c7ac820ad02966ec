"""Run untrusted programs with bubblewrap, which shows them only the parts of the machine that they need."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Self
from weakref import WeakSet

import psutil

from pcgeval.sandbox.bubblewrap import bubblewrap, interpreter_paths
from pcgeval.sandbox.process import SCRATCH_FOLDERS, ExitStatus, ResourceLimits, SandboxedProcess, SandboxError
from pcgeval.sandbox.room import IS_CLOSED, SOURCE, Room

__all__ = ["ExitStatus", "ResourceLimits", "Sandbox", "SandboxError", "SandboxedProcess", "open_sandbox"]

TRUST_PROGRAMS = "PCGEVAL_TRUST_PROGRAMS"  # set to 1 by `make final-eval TRUST_PROGRAMS=1`
NO_SANDBOX = "PCGEVAL_NO_SANDBOX"  # 1: as on a machine where no sandbox can start
TRUST_MEANS = (
    "Trusted programs run as you: they can read and change all that you can and use the network and other processes; "
    "only their time, output, memory, open files and the size of a file are limited."
)
ADVICE = (
    "In a container, start it with the right to make namespaces (`docker run --privileged`). Ordinary users need user "
    "namespaces: `sysctl kernel.unprivileged_userns_clone=1` (Debian), "
    "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile for bwrap (Ubuntu)."
)
PROBE_SECONDS = 20
CLOSING_SECONDS = 5.0


class Sandbox:
    """Start programs; as a context manager, stop the running ones at the end."""

    def __init__(self, limits: ResourceLimits, *, contained: bool, network: bool = False) -> None:
        """Set what each program may use.

        Contained programs run in bubblewrap, others as trusted processes. An open network lets contained programs reach
        everything that this machine reaches, its own servers too.
        """
        self.limits, self.contained, self.network = limits, contained, network
        self._lock = threading.Lock()
        self._running: WeakSet[SandboxedProcess] | None = WeakSet()  # None once the sandbox is closed
        self._rooms: list[Room] = []
        self._keeper = ThreadPoolExecutor(1, "rooms")  # opens them, as they end with the thread that does

    def __enter__(self) -> Self:
        """Return the sandbox."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all running programs, wait until they are gone, and start no more."""
        with self._lock:
            running, self._running = list(self._running or ()), None
        for process in running:
            process.kill()
        for process in running:
            process.has_ended(CLOSING_SECONDS)
        for room in self._rooms:
            room.close()
        self._keeper.shutdown()

    def start(
        self,
        command: list[str],
        *,
        folder: Path,
        readable: tuple[Path, ...] = (),
        writable: tuple[Path, ...] = (),
        descriptors: tuple[int, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> SandboxedProcess:
        """Start a command in a program's folder, with empty standard input.

        In the sandbox the folder is `/submission`: its files are read-only, and new files beside them are gone
        afterwards. The paths below keep their names. HOME and TMPDIR are an empty folder that is gone afterwards.

        Args:
            command: Program and arguments; the program by its absolute path, or one that lies in /usr/bin.
            folder: The program's folder, where it starts.
            readable: Other paths that it may read; an environment of its Python needs no mention.
            writable: Folders that it may change; root gives them to the sandbox's user.
            descriptors: The only descriptors that it inherits, under the same numbers.
            environment: Variables beside the usual ones, which they replace. The program gets none of ours.

        Raises:
            SandboxError: A path cannot be shown to the program, it cannot be started, or the sandbox was closed.
        """
        variables = self.variables(Path(command[0])) | dict(environment or {})
        if self.contained:
            paths = (*readable, *interpreter_paths(Path(command[0])))
            room = Room(folder, self.limits, network=self.network, readable=paths, writable=writable)
            return self._watched(room.start(command, variables, descriptors, is_last=True))
        return self._watched(
            SandboxedProcess(_TrustedChild(command, folder, variables, descriptors, self.limits), self.limits)
        )

    def open_room(
        self, folder: Path, readable: tuple[Path, ...] = (), python: tuple[str, Mapping[str, str]] | None = None
    ) -> Room:
        """Return a room for programs of a folder, one after the other, that closes with the sandbox; see Room."""
        network = self.network
        opening = self._keeper.submit(Room, folder, self.limits, network=network, readable=readable, python=python)
        room = opening.result()
        with self._lock:
            if self._running is not None:
                self._rooms.append(room)
                return room
        room.close()
        raise SandboxError(IS_CLOSED)

    def _watched(self, running: SandboxedProcess) -> SandboxedProcess:
        """Stop a program that started just now with the sandbox; raise SandboxError if that is closed."""
        with self._lock:
            if self._running is not None:
                self._running.add(running)
                return running
        running.kill()
        raise SandboxError(IS_CLOSED)

    @staticmethod
    def variables(program: Path) -> dict[str, str]:
        """Return the variables that every program gets."""
        return {
            "PATH": ":".join(
                [*([str(program.parent)] if program.is_absolute() else []), "/usr/local/bin:/usr/bin:/bin"]
            ),
            "HOME": SCRATCH_FOLDERS[0],
            "TMPDIR": SCRATCH_FOLDERS[0],
            "USER": "sandbox",
            "LOGNAME": "sandbox",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONNOUSERSITE": "1",
            # a thread per core would use up the processes, and results would depend on the machine
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }


class _TrustedChild:
    """A program without a sandbox; a process of it that starts a new session escapes."""

    fault = ""
    wake = None

    def __init__(
        self,
        command: list[str],
        folder: Path,
        variables: Mapping[str, str],
        descriptors: tuple[int, ...],
        limits: ResourceLimits,
    ) -> None:
        """Start it."""
        self._home = tempfile.TemporaryDirectory(prefix="pcgeval-program-", ignore_cleanup_errors=True)
        settings = json.dumps({"command": command, "limits": limits.of_kernel()})
        line = [str(Path(sys.executable).resolve()), "-I", "-S", "-c", SOURCE, settings]
        try:
            self._process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env={**variables, "HOME": self._home.name, "TMPDIR": self._home.name},
                pass_fds=descriptors,
                start_new_session=True,  # Ctrl-C is ours to act on
            )
        except OSError as error:
            self._home.cleanup()
            fault = f"{line[0]} cannot be started in {folder} ({error.strerror}). Check both paths."
            raise SandboxError(fault) from error
        assert self._process.stdout and self._process.stderr  # noqa: S101, PT018 - pipes
        self.outputs = self._process.stdout.fileno(), self._process.stderr.fileno()
        self.code: int | None = None
        self.first: psutil.Process | None = psutil.Process(self._process.pid)

    def is_over(self) -> bool:
        """Tell whether its first process has ended."""
        self.code = self._process.poll()
        return self.code is not None

    def kill(self) -> None:
        """Kill its session."""
        with suppress(ProcessLookupError, PermissionError):  # macOS: not permitted if all are zombies
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Wait for the killed process."""
        with self._process:
            self.code = self._process.wait()
        self._home.cleanup()


def open_sandbox(limits: ResourceLimits, trust_programs: bool, *, network: bool = False) -> Sandbox:
    """Return a sandbox that is known to work here; where none works, `trust_programs` runs programs without one.

    Raises:
        SandboxError: None works and programs are not trusted, or this machine is too busy for an empty program.
    """
    sandbox = Sandbox(limits, contained=True, network=network)
    try:
        status = _try_out(sandbox)
    except SandboxError as error:
        if trust_programs:
            return Sandbox(limits, contained=False, network=True)
        raise SandboxError(
            f"{error} Or run them without a sandbox: `try` and `grade` with --trust-programs, all else with "
            f"{TRUST_PROGRAMS}=1. {TRUST_MEANS}"
        ) from error
    if status.code is None:
        raise SandboxError(f"The sandbox cannot be used now: an empty program {status.reason}. Run again later.")
    return sandbox


def programs_are_trusted() -> bool:
    """Return whether programs may run without a sandbox where there is none."""
    return os.environ.get(TRUST_PROGRAMS) == "1"


def _try_out(sandbox: Sandbox) -> ExitStatus:
    """Run an empty program with this Python, as other programs will run."""
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"Programs are contained with Linux's namespaces, and this is {sys.platform}. Use Linux; for a Mac, "
            "docs/competition.md shows how to do so in a virtual machine."
        )
    if os.environ.get(NO_SANDBOX) == "1":
        raise SandboxError(f"The sandbox is switched off. Unset {NO_SANDBOX} to contain programs.")
    here = Path.cwd().resolve()
    for shown in (Path("/usr"), Path(sys.base_prefix).resolve()):
        if here.is_relative_to(shown):
            raise SandboxError(f"{here}: programs may read all of {shown}. Move this folder elsewhere.")
    bubblewrap()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        try:
            status = sandbox.start([sys.executable, "-I", "-c", ""], folder=Path(folder)).wait(PROBE_SECONDS)
        except SandboxError as error:
            raise SandboxError(f"{error} {ADVICE}") from error
    if status.code not in (0, None):
        fault = status.stderr_tail.strip() or f"a program {status.reason or f'ended with exit code {status.code}'}"
        raise SandboxError(f"bubblewrap does not work here: {fault}. {ADVICE}")
    return status
