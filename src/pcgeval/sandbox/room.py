"""A room: a sandbox of bubblewrap in which one program after the other runs, each with nothing of the one before."""

import array
import itertools
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from pcgeval.sandbox import launcher
from pcgeval.sandbox.bubblewrap import (
    bubblewrap,
    filter_program,
    folder_options,
    is_crowded,
    is_root,
    open_to_all,
    system_options,
)
from pcgeval.sandbox.process import (
    GRACE_SECONDS,
    SCRATCH_FOLDERS,
    SUBMISSION,
    ResourceLimits,
    SandboxedProcess,
    SandboxError,
    ended_from_outside,
)

SOURCE = Path(launcher.__file__).read_text("utf-8")
# User ids that no account has, one for each program that root starts: the kernel counts the processes of each user.
FIRST_USER, USERS = 61_184, 4_336
OUR_PROCESSES = 3  # beside a program where no root is at hand: they belong to its user, and count
IS_CLOSED = "The sandbox is closed and starts no more programs. Run again to continue."
_users = itertools.count(secrets.randbelow(USERS))
_SENDER = struct.Struct("3i")  # process, user and group at the other end of a socket


class Room:
    """A folder in a sandbox, in which one program at a time runs.

    Each program has processes, network, temporary files and, where root runs pcgeval, a user of its own. Nothing of it
    reaches the launcher, which neither runs nor imports code of a team. The thread that opens a room must outlive it,
    because the kernel ends bubblewrap with the thread that started it.
    """

    def __init__(
        self,
        folder: Path,
        limits: ResourceLimits,
        *,
        network: bool,
        readable: tuple[Path, ...] = (),
        writable: tuple[Path, ...] = (),
        python: tuple[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Start bubblewrap.

        `python` is an interpreter that has no packages of a team, with its environment: programs for which `start` gets
        a module go on in a copy of it.

        Raises:
            SandboxError: A path cannot be shown to the program, or bubblewrap cannot be started.
        """
        folder = folder.resolve()
        _check_paths(folder, readable, writable)
        self._limits, self._writable = limits, writable
        self._running: SandboxedProcess | None = None
        self._lock = threading.RLock()
        self._is_closed = False
        self._control, theirs = socket.socketpair()
        self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        scratch = [path for path in SCRATCH_FOLDERS if path != SUBMISSION or not is_crowded(folder)]
        settings = {
            "control": theirs.fileno(),
            "folder": SUBMISSION,
            "scratch": scratch,
            "scratch_bytes": limits.scratch_bytes,
            "shown": [str(path) for path in (*readable, *writable) if any(map(path.is_relative_to, scratch))],
            "network": network,
            "filter": filter_program().hex(),
        }
        interpreter = [python[0]] if python else [str(Path(sys.executable).resolve()), "-I", "-S"]
        line = [
            *(bubblewrap(), *system_options(network=network), *folder_options(folder, readable, writable)),
            *(*interpreter, "-c", SOURCE, json.dumps(settings)),
        ]
        with theirs:
            try:
                self._process = subprocess.Popen(
                    line,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    cwd="/",
                    env=dict(python[1]) if python else {},
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is ours to act on
                )
            except OSError as error:
                self._control.close()
                raise SandboxError(f"{line[0]} cannot be started ({error.strerror}). Check the path.") from error

    @property
    def is_open(self) -> bool:
        """Whether it takes another program."""
        return self._process.poll() is None

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        descriptors: tuple[int, ...] = (),
        *,
        module: str = "",
        is_last: bool = False,
    ) -> SandboxedProcess:
        """Start a program, once the one before has ended.

        Args:
            command: Program and arguments.
            environment: All variables that it gets.
            descriptors: The only descriptors that it inherits, under the same numbers.
            module: A module that the room's Python has imported when it started. The command is a Python and a file
                then: the file runs in a copy of that process, after `begin()` of the module.
            is_last: The room closes after this program.

        Raises:
            SandboxError: The room cannot be set up, or was ended from outside.
        """
        if self._running and not self._running.has_ended(3 * GRACE_SECONDS):
            self.close()
            raise SandboxError("A program that was killed has not ended. Run again.")
        with self._lock, ExitStack() as undo:
            if self._is_closed:
                raise SandboxError(IS_CLOSED)
            if is_last:
                undo.callback(self._shut)
            user = 0
            if is_root():  # the kernel's limit on processes does not hold for root
                user = FIRST_USER + next(_users) % USERS
                for path in self._writable:
                    subprocess.run(["chown", "-hR", f"{user}:{user}", "--", str(path)], check=True)
            request = {
                "command": list(command),
                "environment": dict(environment),
                "descriptors": descriptors,
                "limits": self._limits.of_kernel(1 if user else OUR_PROCESSES),
                "user": user,
                "module": module,
            }
            with ExitStack() as theirs:
                pipes = [os.pipe() for _ in range(2)]
                for reading, writing in pipes:
                    undo.callback(os.close, reading)
                    theirs.callback(os.close, writing)
                first = self._send(json.dumps(request).encode(), [*(writing for _, writing in pipes), *descriptors])
            (stdout, _), (stderr, _) = pipes
            child = _RoomChild(self._control, (stdout, stderr), first, self.fault, undo.pop_all().close)
            self._running = SandboxedProcess(child, self._limits)
        return self._running

    def _send(self, request: bytes, descriptors: Sequence[int]) -> psutil.Process | None:
        """Send a request; return the process that has taken it, unless that has ended."""
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
        try:
            self._control.sendmsg([struct.pack(launcher.LENGTH.format, len(request))], passed)
            self._control.sendall(request)
            said, messages, *_ = self._control.recvmsg(len(b"started\n"), socket.CMSG_SPACE(_SENDER.size))
        except OSError:
            said = b""
        if not said:
            raise ended_from_outside(self.fault())
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(_SENDER.unpack(messages[0][2])[0])
        return None

    def close(self) -> None:
        """End everything in the room, and wait."""
        with self._lock:
            self._is_closed = True
        if self._running:
            self._running.kill()
            self._running.has_ended(3 * GRACE_SECONDS)
        self._shut()

    def _shut(self) -> None:
        with self._lock:
            with suppress(psutil.NoSuchProcess):
                for first in psutil.Process(self._process.pid).children():
                    first.kill()  # and the kernel all others; bubblewrap waits for it, and ends
            self._control.close()
            with self._process:
                try:
                    self._process.wait(GRACE_SECONDS)
                except subprocess.TimeoutExpired:  # bubblewrap was killed before it had a child
                    self._process.kill()

    def fault(self) -> str:
        """End bubblewrap, and return what it or the launcher said."""
        with self._lock:
            self._process.kill()
            _, said = self._process.communicate()
        return said.decode("utf-8", errors="replace").strip()


@dataclass
class _RoomChild:
    """A program in a room; the launcher tells on the room's socket what becomes of it."""

    wake: socket.socket
    outputs: tuple[int, int]
    first: psutil.Process | None
    room_fault: Callable[[], str]
    close: Callable[[], None]
    code: int | None = None
    fault: str = ""
    _said: bytes = b""

    def is_over(self) -> bool:
        """Tell whether the launcher has said that it ended."""
        try:
            said = self.wake.recv(4096, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except ConnectionError:  # with a message that nobody read
            said = b""
        if not said:
            self.fault = self.room_fault()
            return True
        self._said += said
        for line in self._said.split(b"\n")[:-1]:
            word, _, rest = line.decode(errors="replace").partition(" ")
            if word == "failed":
                self.fault = rest
            elif word == "ended":
                code = int(rest)
                self.code = None if self.fault else code
                return True
        return False

    def kill(self) -> None:
        """Kill the first process of the namespace; the kernel kills all others."""
        with suppress(psutil.NoSuchProcess):
            if self.first:
                self.first.kill()


def _check_paths(folder: Path, readable: tuple[Path, ...], writable: tuple[Path, ...]) -> None:
    """Raise SandboxError if a path must not be shown to a program, or cannot be."""
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
