"""Limit the disk space and the number of files of a program; the sandbox itself limits only the size of each file."""

import errno
import os
import shutil
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from pcgeval.sandbox.process import MEGABYTE, ExitStatus, SandboxedProcess, SandboxError

MIN_FREE_BYTES = 200 * MEGABYTE
WATCH_SECONDS = 0.2
READING_SECONDS = 10.0  # to read the last output


@dataclass(frozen=True)
class DiskLimits:
    """The disk space and the number of files and folders that a program may use."""

    total_bytes: int = 2_000 * MEGABYTE
    files: int = 50_000

    def __str__(self) -> str:
        """Return the limits in words that follow "more than"."""
        return f"{self.files} files or {self.total_bytes / MEGABYTE:g} MB"


def check_room(folder: Path) -> None:
    """Raise SandboxError if the disk is too full to start a program."""
    if _free_bytes(folder) < MIN_FREE_BYTES:
        raise SandboxError(f"{folder}: less than {MIN_FREE_BYTES / MEGABYTE:g} MB are free. Make room there.")


def disk_use(folder: Path, most: DiskLimits | None = None) -> tuple[int, int]:
    """Return the bytes and the number of files and folders in a folder; stop counting once they exceed `most`.

    A folder that cannot be listed counts as empty, and one that lies too deep to be opened by its path as endless.
    """
    files = size = 0
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    with suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if most is not None and (size > most.total_bytes or files > most.files):
                        return size, files
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return size, sys.maxsize
    return size, files


def exceeds(folder: Path, most: DiskLimits) -> bool:
    """Return whether a folder holds more than it may."""
    size, files = disk_use(folder, most)
    return size > most.total_bytes or files > most.files


def wait_within(process: SandboxedProcess, seconds: float, folder: Path, most: DiskLimits) -> tuple[ExitStatus, str]:
    """Wait until a program ends, and stop it when it is late, its folder exceeds the limits or the disk is nearly full.

    Return how it ended and what it printed.
    """
    ended = threading.Event()

    def watch() -> None:
        pause = WATCH_SECONDS
        while not ended.wait(pause):
            started = monotonic()
            if _free_bytes(folder) < MIN_FREE_BYTES:  # deleted files that are still open also take space
                process.kill(f"left less than {MIN_FREE_BYTES / MEGABYTE:g} MB of the disk free")
            if exceeds(folder, most):
                process.kill(f"made more than {most}")
            pause = max(WATCH_SECONDS, 10 * (monotonic() - started))

    watcher = threading.Thread(target=watch, name="disk watcher", daemon=True)
    watcher.start()
    try:
        status = process.wait(seconds)
    finally:
        process.kill()
        ended.set()
        watcher.join()
    return status, process.output(READING_SECONDS)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder.parent).free  # a program may have taken away all rights to the folder itself
