"""Locks: one run at a time works on a folder."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from pcgeval.core.errors import PcgevalError

_CLOCK_SECONDS = 60.0  # the most by which the clock of a network disk may be slow


class FolderBusyError(PcgevalError):
    """Another process works on the same folder."""


@contextmanager
def lock_folder(folder: Path, lock: Path) -> Iterator[None]:
    """Hold the lock of a folder until the process ends, however that happens; raise FolderBusyError if another does.

    The lock's file stays after the release: removing it would let two others both hold one.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    file = FileLock(lock, timeout=0)
    try:
        file.acquire()
    except Timeout:
        holder = lock.read_text(encoding="ascii", errors="replace").strip()
        is_own = holder == str(os.getpid())
        process = "this process" if is_own else f"process {holder}" if holder else "another process"
        kill = f", or stop it with `kill {holder}`" if holder and not is_own else ""
        raise FolderBusyError(f"{folder}: {process} is working on it. Wait until it ends{kill}.") from None
    try:
        lock.write_text(f"{os.getpid()}\n", encoding="ascii")
        yield
    finally:
        lock.write_text("", encoding="ascii")
        file.release()


def lock_holder(lock: Path) -> tuple[int, float] | None:
    """Return the process that holds a folder's lock and the time since when; None if none does."""
    try:
        holder, since = int(lock.read_text(encoding="ascii")), lock.stat().st_mtime
        # a killed process leaves its number in the file, which a younger process may have by now
        is_other = psutil.Process(holder).create_time() > since + _CLOCK_SECONDS
    except (OSError, ValueError, psutil.Error):
        return None
    return None if is_other else (holder, since)


def dvc_is_running(root: Path) -> bool:
    """Tell whether DVC runs a stage of a competition now, by the outputs that it has locked in `.dvc/tmp/rwlock`."""
    try:
        locked = json.loads((root / ".dvc" / "tmp" / "rwlock").read_text(encoding="utf-8")).get("write", {})
    except (OSError, ValueError):  # none, or DVC is writing it
        return False
    return any(psutil.pid_exists(holder["pid"]) for holder in locked.values())
