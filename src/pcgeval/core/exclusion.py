"""Two runs at once on the same folder exclude each other."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcgeval.core.errors import PcgevalError


class BusyError(PcgevalError):
    """Another process works on the same folder."""


@contextmanager
def only_run(folder: Path, lock: Path) -> Iterator[None]:
    """Hold the lock of a folder; it vanishes with its process, however that ends.

    Args:
        folder: What is worked on, for the message.
        lock: The lock's file. It stays when the lock is given back: removing it would let two others both hold one.

    Raises:
        BusyError: Another process holds the lock; the message names it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise BusyError(_busy(folder, file.read().strip())) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
        file.truncate(0)


def _busy(folder: Path, holder: str) -> str:
    if holder.isdecimal():
        return f"{folder}: process {holder} is at work on it. Wait until it ends, or stop it with `kill {holder}`."
    return f"{folder}: another process is at work on it. Wait until it ends."
