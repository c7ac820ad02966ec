"""Running programs that nobody trusts: bubblewrap shows them a machine with nothing on it but what they need."""

import contextlib
import itertools
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self
from weakref import WeakSet

from pcgeval.sandbox.confined import Confined, Ending
from pcgeval.sandbox.leash import NamespaceLeash, SessionLeash
from pcgeval.sandbox.limits import Allowance, SandboxError, limiting_command, portable_limiting_command, tool
from pcgeval.sandbox.mounts import folder_mounts, interpreter_paths, open_to_all, system_mounts
from pcgeval.sandbox.seccomp import filter_program

__all__ = ["Allowance", "Confined", "Ending", "Sandbox", "SandboxError", "open_sandbox"]

TRUST_PROGRAMS = "PCGEVAL_TRUST_PROGRAMS"  # set to 1 by `make final-eval TRUST_PROGRAMS=1`
TRUST_MEANS = (
    "Trusted programs run as you: they can read and change all that you can and use the network and other processes; "
    "only their time, output, memory, processor time, open files and the size of a file are limited."
)
PROBE_SECONDS = 20
CLOSING_SECONDS = 5.0
ISOLATION = (
    *("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"),
    *("--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL"),
)
# Users that nobody is: one for each sandbox that root starts, so that the kernel counts the processes of each apart.
FIRST_USER, USERS = 61_184, 4_336
_users = itertools.count(secrets.randbelow(USERS))


@dataclass(frozen=True, eq=False)
class Sandbox:
    """Start programs; as a context manager, stop at the end those that still run.

    Attributes:
        allowance: What each program may use.
        contained: Whether bubblewrap holds programs; else they run as trusted processes.
        network: Whether contained programs reach all that this machine reaches, its own servers too.
    """

    allowance: Allowance
    contained: bool
    network: bool = False
    _running: "WeakSet[Confined]" = field(default_factory=WeakSet, init=False, repr=False)
    _closed: threading.Event = field(default_factory=threading.Event, init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def __enter__(self) -> Self:
        """Return the sandbox."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop all programs that still run, wait until they are cleared away, and start no more."""
        self._closed.set()
        with self._lock:
            running = list(self._running)
        for confined in running:
            confined.kill()
        for confined in running:
            with contextlib.suppress(SandboxError):  # it ended from outside, perhaps by the signal that also ended us
                confined.wait(CLOSING_SECONDS)

    def start(
        self,
        command: list[str],
        *,
        folder: Path,
        readable: tuple[Path, ...] = (),
        writable: tuple[Path, ...] = (),
        descriptors: tuple[int, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Confined:
        """Start a command in a program's folder, with standard input empty.

        In the sandbox the folder is `/submission`: its files are read-only, new ones beside them are gone afterwards;
        the paths below keep their names. The command's own interpreter is visible without being named. HOME and TMPDIR
        are an empty folder that is gone afterwards.

        Args:
            command: Program and arguments; the program by its absolute path, or one that lies in /usr/bin.
            folder: The program's folder, where it is started.
            readable: Other paths that it may read.
            writable: Folders that it may change; started by root, they are made over to the sandbox's user.
            descriptors: Open descriptors that it inherits under the same numbers; no others are.
            environment: Variables beside the usual ones, which they replace; nothing of ours is handed on.

        Raises:
            SandboxError: A path cannot be shown to the program, it cannot be started, or the sandbox was closed.
        """
        if self._closed.is_set():
            raise SandboxError(f"{folder}: nothing is started any more. Run again to go on.")
        program = Path(command[0])
        own = environment or {}
        if not self.contained:
            return self._kept(_start_trusted(self.allowance, command, folder, descriptors, own))
        seen = (*readable, *interpreter_paths(program))
        _check_paths(seen, writable)
        user = FIRST_USER + next(_users) % USERS
        if _is_root():
            _hand_over(writable, user)
        with contextlib.ExitStack() as undo:
            shown = _shown_folder(folder, undo)
            line = [
                *(tool("bwrap"), *ISOLATION, *([] if self.network else ["--unshare-net"]), *_rights()),
                *system_mounts(self.allowance.scratch_bytes, network=self.network),
                *folder_mounts(shown, seen, writable, self.allowance.scratch_bytes),
                *limiting_command(self.allowance),
                *_as_user(user),
                *command,
            ]
            process, reports = _start_bubblewrap(line, descriptors, _environment(program, own))
            leash = NamespaceLeash(process, reports)
            return self._kept(Confined(process, leash, self.allowance, undo.pop_all().close))

    def _kept(self, confined: Confined) -> Confined:
        with self._lock:
            self._running.add(confined)
        if self._closed.is_set():  # meanwhile
            confined.kill()
        return confined


def open_sandbox(allowance: Allowance, trust_programs: bool, *, network: bool = False) -> Sandbox:
    """Return a sandbox that is known to work here.

    Args:
        allowance: What each program may use.
        trust_programs: Run programs without a sandbox where there is none; where there is one, it is used all the same.
        network: Leave the network open.

    Raises:
        SandboxError: There is no bubblewrap, or it may not work here, and programs are not trusted. Or it works, but
            this machine is too busy or has too little memory for a program that does nothing.
    """
    sandbox = Sandbox(allowance, contained=True, network=network)
    try:
        ending = _try_out(sandbox)
    except SandboxError as error:
        if not trust_programs:
            raise SandboxError(
                f"{error} Or give --trust-programs to run them without a sandbox. {TRUST_MEANS}"
            ) from error
        return Sandbox(allowance, contained=False, network=True)
    if ending.reason is not None:
        raise SandboxError(
            f"The sandbox was tried out with a program that does nothing, and this {ending.reason}. "
            "Run again when the machine has less to do and memory to spare."
        )
    return sandbox


def _try_out(sandbox: Sandbox) -> Ending:
    """Run a program that does nothing, with this Python, exactly as others will be run."""
    if not sys.platform.startswith("linux"):
        raise SandboxError(f"Programs are contained with Linux's namespaces, and this is {sys.platform}. Use Linux.")
    for name in ("bwrap", "choom", "prlimit", "setpriv"):
        tool(name)
    with tempfile.TemporaryDirectory() as folder:
        try:
            ending = sandbox.start([sys.executable, "-I", "-c", ""], folder=Path(folder)).wait(PROBE_SECONDS)
        except SandboxError as error:
            raise SandboxError(f"{error} {_advice()}") from error
    if ending.code != 0 and ending.reason is None:
        told = ending.error_tail.strip() or f"exit code {ending.code}"
        raise SandboxError(f"bubblewrap does not work here: {told}. {_advice()}")
    return ending


def _advice() -> str:
    if _is_root():
        return "In a container, start it with the right to make namespaces (`docker run --privileged`)."
    return (
        "Ordinary users need user namespaces for it: `sysctl kernel.unprivileged_userns_clone=1` (Debian), "
        "`sysctl kernel.apparmor_restrict_unprivileged_userns=0` or an AppArmor profile for bwrap (Ubuntu)."
    )


def _is_root() -> bool:
    return os.geteuid() == 0


def _rights() -> tuple[str, ...]:
    """Return the options for the rights that are needed: root makes no user namespace, but becomes somebody else."""
    return ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID") if _is_root() else ("--unshare-user",)


def _as_user(user: int) -> list[str]:
    """Return the command that gives up root: the kernel's limit on processes does not hold for root."""
    if not _is_root():
        return []
    return [tool("setpriv"), f"--reuid={user}", f"--regid={user}", "--clear-groups", "--inh-caps=-all", "--"]


def _check_paths(readable: Sequence[Path], writable: Sequence[Path]) -> None:
    for path in (*readable, *writable):
        if not path.is_absolute() or path in (Path("/"), Path.home(), *Path.home().parents):
            raise SandboxError(f"{path}: not shown to programs: not absolute, or all of a home. Name a folder in it.")
        if not path.exists():
            raise SandboxError(f"{path}: does not exist, so it cannot be shown to a program. Make it first.")
        if _is_root() and path in readable and not open_to_all(path):
            raise SandboxError(
                f"{path}: only its owner may read it, and root runs programs as another user. "
                f"Open it: `chmod -R go+rX {path}`."
            )


def _shown_folder(folder: Path, undo: contextlib.ExitStack) -> Path:
    """Return what is mounted for a folder: a readable copy of it where the user that root becomes may not list it."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise SandboxError(f"{folder}: not a folder. Name the program's folder.")
    if not _is_root() or open_to_all(folder):
        return folder
    copy = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="pcgeval-program-"))) / "copy"
    try:
        shutil.copytree(folder, copy, symlinks=True, ignore=_neither_file_nor_folder)
    except (OSError, shutil.Error) as error:
        raise SandboxError(f"{folder}: cannot be copied ({error}). Open it: `chmod -R go+rX {folder}`.") from error
    for path in _all_below(copy):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
    return copy


def _neither_file_nor_folder(folder: str, names: list[str]) -> list[str]:
    paths = (Path(folder, name) for name in names)
    return [path.name for path in paths if not (path.is_symlink() or path.is_file() or path.is_dir())]


def _hand_over(folders: Iterable[Path], user: int) -> None:
    for folder in folders:
        for path in _all_below(folder):
            os.chown(path, user, user, follow_symlinks=False)


def _all_below(folder: Path) -> Iterator[Path]:
    """Yield a folder and all in it; links are yielded, not followed."""
    yield folder
    for inside, folders, files in os.walk(folder):
        yield from (Path(inside, name) for name in (*folders, *files))


def _environment(program: Path, own: Mapping[str, str], scratch: str = "/tmp") -> dict[str, str]:  # noqa: S108
    programs = [str(program.parent)] if program.is_absolute() else []
    return {
        "PATH": ":".join([*programs, "/usr/local/bin", "/usr/bin", "/bin"]),
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
        **own,
    }


def _start_bubblewrap(
    line: list[str], descriptors: tuple[int, ...], environment: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int]:
    """Start bubblewrap with two pipes of ours: the filter of system calls, and its reports, whose end is returned."""
    reports, reports_end = os.pipe()
    options = ["--json-status-fd", str(reports_end)]
    lent = [reports_end]
    if (calls := filter_program()) is not None:
        lent.append(_pipe_holding(calls))
        options += ["--seccomp", str(lent[-1])]
    try:
        return _popen([line[0], *options, *line[1:]], Path("/"), (*descriptors, *lent), environment), reports
    except OSError as error:
        os.close(reports)
        raise SandboxError(f"{line[0]} cannot be started ({error.strerror}). Install bubblewrap.") from error
    finally:
        for descriptor in lent:
            os.close(descriptor)


def _pipe_holding(content: bytes) -> int:
    """Return the reading end of a pipe with some bytes, fewer than a pipe holds."""
    reading, writing = os.pipe()
    os.write(writing, content)
    os.close(writing)
    return reading


def _start_trusted(
    allowance: Allowance, command: list[str], folder: Path, descriptors: tuple[int, ...], own: Mapping[str, str]
) -> Confined:
    with contextlib.ExitStack() as undo:
        scratch = undo.enter_context(tempfile.TemporaryDirectory(prefix="pcgeval-program-", ignore_cleanup_errors=True))
        line = [*portable_limiting_command(allowance), *command]
        try:
            process = _popen(line, folder, descriptors, _environment(Path(command[0]), own, scratch))
        except OSError as error:
            raise SandboxError(f"{command[0]} cannot be started in {folder} ({error.strerror}).") from error
        return Confined(process, SessionLeash(process), allowance, undo.pop_all().close)


def _popen(
    line: list[str], folder: Path, descriptors: tuple[int, ...], environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment,
        pass_fds=descriptors,
        start_new_session=True,  # Ctrl-C is ours to act on
    )
