"""Lock a folder, so that two runs never work on it at once, or one thing, so that nothing is done twice."""

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from pcgeval.core.errors import PcgevalError

_CLOCK_SECONDS = 60.0  # by which the clock of a disk elsewhere may be slow
_POLL_SECONDS = 0.02  # between two tries to get a lock


class FolderBusyError(PcgevalError):
    """Another process works on the same folder."""


@contextmanager
def lock_folder(folder: Path, lock: Path) -> Iterator[None]:
    """Hold the lock of a folder; it is released when the process ends, however that happens.

    Args:
        folder: The folder that is worked on, for the message.
        lock: The lock's file. It stays when the lock is released: removing it would let two others both hold one.

    Raises:
        FolderBusyError: Another process holds the lock; the message names it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = FileLock(lock, timeout=0)
    try:
        file.acquire()
    except Timeout:
        holder = lock.read_text(encoding="ascii", errors="replace").strip()
        if holder.isdecimal():
            fault = f"process {holder} is working on it. Wait until it ends, or stop it with `kill {holder}`."
        else:
            fault = "another process is working on it. Wait until it ends."
        raise FolderBusyError(f"{folder}: {fault}") from None
    try:
        lock.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        lock.write_text("", encoding="ascii")
        file.release()


def lock_holder(lock: Path) -> tuple[int, float] | None:
    """Return the process that holds a folder's lock and the time since when; None if none does. It stays untouched."""
    try:
        holder, since = int(lock.read_text(encoding="ascii")), lock.stat().st_mtime
        # a killed process leaves its number in the file, and the system may have given it to another process since
        is_other = psutil.Process(holder).create_time() > since + _CLOCK_SECONDS
    except psutil.AccessDenied:  # it is there, and another user's
        return holder, since
    except (OSError, ValueError, OverflowError, psutil.NoSuchProcess):
        return None
    return None if is_other else (holder, since)


def dvc_is_running(root: Path) -> bool:
    """Tell whether DVC runs a stage of a competition now, by the outputs that it has locked in `.dvc/tmp/rwlock`."""
    try:
        locked = json.loads((root / ".dvc" / "tmp" / "rwlock").read_text(encoding="utf-8")).get("write", {})
        return any(psutil.pid_exists(holder["pid"]) for holder in locked.values())
    except (OSError, ValueError, AttributeError, KeyError, TypeError):  # none yet, or DVC is just writing it
        return False


@contextmanager
def lock_briefly(lock: Path, seconds: float) -> Iterator[None]:
    """Wait for a lock among threads and processes and hold it; its file is removed after use.

    A process that is killed leaves the file, unlocked, for the next one that wants the lock.

    Args:
        lock: The lock's file.
        seconds: The longest wait.

    Raises:
        TimeoutError: The lock was held all that time.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = FileLock(lock, timeout=seconds, poll_interval=_POLL_SECONDS)
    try:
        file.acquire()
    except Timeout:
        raise TimeoutError(errno.ETIMEDOUT, f"was locked for {seconds:g} s", str(lock)) from None
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)  # while it is held: who opened the removed file notices and opens a new one
        file.release()
