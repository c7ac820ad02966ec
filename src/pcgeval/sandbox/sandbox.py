"""Run untrusted programs with bubblewrap, which shows them only the parts of the machine that they need."""

import itertools
import os
import platform
import re
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Self
from weakref import WeakSet

from pcgeval.sandbox import launcher
from pcgeval.sandbox.bubblewrap import (
    bubblewrap,
    folder_options,
    interpreter_paths,
    is_root,
    open_to_all,
    system_options,
)
from pcgeval.sandbox.process import (
    MEGABYTE,
    SCRATCH_FOLDERS,
    ExitStatus,
    ResourceLimits,
    SandboxedProcess,
    SandboxError,
)
from pcgeval.sandbox.seccomp import filter_program

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
LAUNCHER = (str(Path(sys.executable).resolve()), "-I", "-S", "-c", Path(launcher.__file__).read_text("utf-8"))
PROBE_SECONDS = 20
CLOSING_SECONDS = 5.0
# User ids that no account has, one for each program that root starts: the kernel counts the processes of each user.
FIRST_USER, USERS = 61_184, 4_336
_users = itertools.count(secrets.randbelow(USERS))
# Libraries map far more addresses than they use (PyTorch some 4 GB), so the kernel's limit on addresses only stops a
# single huge request; the memory in use is watched from outside.
SPARE_ADDRESSES = 8_000 * MEGABYTE
FIRST_KERNEL_TO_COUNT = (5, 14)  # since then each user namespace counts the processes of a user separately


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
            with suppress(SandboxError):  # it ended from outside, perhaps by the signal that also ended us
                process.wait(CLOSING_SECONDS)

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
        with ExitStack() as undo, ExitStack() as lent:
            reports = None
            if self.contained:
                cwd, scratch = Path("/"), SCRATCH_FOLDERS[0]
                readable = (*readable, *interpreter_paths(Path(command[0])))
                line, reports, lent_ends = self._containment(folder.resolve(), readable, writable, undo, lent)
                descriptors = (*descriptors, *lent_ends)
            else:
                cwd, line = folder, [*LAUNCHER, *self._resource_limits(), "--"]
                temporary = tempfile.TemporaryDirectory(prefix="pcgeval-program-", ignore_cleanup_errors=True)
                scratch = undo.enter_context(temporary)
            try:
                process = subprocess.Popen(
                    [*line, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=cwd,
                    env=_variables(Path(command[0]), scratch) | dict(environment or {}),
                    pass_fds=descriptors,
                    start_new_session=True,  # Ctrl-C is ours to act on
                )
            except OSError as error:
                fault = f"{line[0]} cannot be started in {cwd} ({error.strerror}). Check both paths."
                raise SandboxError(fault) from error
            lent.close()
            running = SandboxedProcess(process, self.limits, undo.pop_all().close, reports)
        with self._lock:
            if self._running is not None:
                self._running.add(running)
                return running
        running.kill()
        raise SandboxError(f"{folder}: the sandbox is closed and starts no more programs. Run again to continue.")

    def _containment(
        self,
        folder: Path,
        readable: tuple[Path, ...],
        writable: tuple[Path, ...],
        undo: ExitStack,
        lent: ExitStack,
    ) -> tuple[list[str], IO[bytes], list[int]]:
        """Return the start of a command line that contains the rest of it, bubblewrap's reports, and what it inherits.

        `undo` closes what is ours once the program has ended, `lent` what bubblewrap inherits once it has started.
        """
        if not folder.is_dir():
            raise SandboxError(f"{folder}: not a folder. Name the program's folder.")
        for path in (folder, *readable, *writable):
            if path in (Path("/"), Path.home(), *Path.home().parents):
                raise SandboxError(f"{path}: contains a home folder, which programs must not see. Name a folder in it.")
            if is_root() and path not in writable and path.exists() and not open_to_all(path):
                raise SandboxError(
                    f"{path}: only its owner may read it, and root runs programs as another user. "
                    f"Open it: `chmod -R go+rX {path}`, and `umask 022` for new files."
                )
        become_user = []
        if is_root():  # the kernel's limit on processes does not hold for root
            user = FIRST_USER + next(_users) % USERS
            become_user = [f"user={user}"]
            for path in writable:
                subprocess.run(["chown", "-hR", f"{user}:{user}", "--", str(path)], check=True)
        reading, reports_end = os.pipe()
        reports = undo.enter_context(os.fdopen(reading, "rb"))
        lent.callback(os.close, reports_end)
        lifeline, held_while_alive = os.pipe()  # if we are killed now, the launcher finds it cut, and ends
        undo.callback(os.close, held_while_alive)
        lent.callback(os.close, lifeline)
        inherited, calls = [lifeline, reports_end], []
        if (instructions := filter_program()) is not None:
            filter_end, writing = os.pipe()
            lent.callback(os.close, filter_end)
            os.write(writing, instructions)  # fewer bytes than a pipe holds
            os.close(writing)
            inherited.append(filter_end)
            calls = ["--seccomp", str(filter_end)]
        line = [
            *(bubblewrap(), "--json-status-fd", str(reports_end), *calls),
            *system_options(self.limits.scratch_bytes, network=self.network),
            *folder_options(folder, readable, writable),
            *(*LAUNCHER, *self._resource_limits(), *become_user, f"lifeline={lifeline}", "--"),
        ]
        return line, reports, inherited

    def _resource_limits(self) -> list[str]:
        """Return the kernel's limits as the launcher takes them; those that count all that a user runs are left out."""
        limits = {"CORE": 0, "FSIZE": self.limits.file_bytes, "NOFILE": self.limits.open_files}
        if self.contained:
            limits["AS"] = self.limits.memory_bytes + SPARE_ADDRESSES
            kernel = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
            if is_root() or kernel >= FIRST_KERNEL_TO_COUNT:
                limits["NPROC"] = self.limits.processes
        return [f"RLIMIT_{name}={limit}" for name, limit in limits.items()]


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
        raise SandboxError(f"Programs are contained with Linux's namespaces, and this is {sys.platform}. Use Linux.")
    if os.environ.get(NO_SANDBOX) == "1":
        raise SandboxError(f"The sandbox is switched off. Unset {NO_SANDBOX} to contain programs.")
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


def _variables(program: Path, scratch: str) -> dict[str, str]:
    return {
        "PATH": ":".join([*([str(program.parent)] if program.is_absolute() else []), "/usr/local/bin:/usr/bin:/bin"]),
        "HOME": scratch,
        "TMPDIR": scratch,
        "USER": "sandbox",
        "LOGNAME": "sandbox",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONNOUSERSITE": "1",
        "OMP_NUM_THREADS": "1",  # a thread per core would use up the processes, and results would depend on the machine
        "OPENBLAS_NUM_THREADS": "1",
    }
