"""Limit the disk space and the number of files of a program; the sandbox limits the size of each file alone."""

import errno
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from pcgeval.sandbox.process import MEGABYTE, SandboxedProcess, SandboxError

MIN_FREE_BYTES = 200 * MEGABYTE
WATCH_SECONDS = 0.2


@dataclass(frozen=True)
class DiskLimits:
    """The disk space and the number of files that a program may use."""

    total_bytes: int = 2_000 * MEGABYTE
    files: int = 50_000  # and folders

    def __str__(self) -> str:
        """Return the limits in words that follow "more than"."""
        return f"{self.files} files or {self.total_bytes / MEGABYTE:g} MB"


@dataclass(frozen=True)
class DiskUse:
    """The space and number of a folder's files, or of those counted until there were too many."""

    total_bytes: int
    files: int  # and folders


def check_room(folder: Path) -> None:
    """Raise SandboxError where the disk is too full for a program to be started."""
    if _free_bytes(folder) < MIN_FREE_BYTES:
        raise SandboxError(f"{folder}: less than {MIN_FREE_BYTES / MEGABYTE:g} MB are free. Make room there.")


def disk_use(folder: Path, most: DiskLimits | None = None) -> DiskUse:
    """Count what is in a folder, until it is more than `most`.

    What cannot be listed counts as empty; where folders lie too deep to be opened by their paths, there is no end.
    """
    count = size = 0
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    count += 1
                    with suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if most is not None and (count > most.files or size > most.total_bytes):
                        return DiskUse(size, count)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return DiskUse(size, sys.maxsize)
    return DiskUse(size, count)


@contextmanager
def limited_disk(process: SandboxedProcess, folder: Path, most: DiskLimits) -> Iterator[None]:
    """Stop a running program once its folder holds more than it may, or the disk is nearly full."""
    ended = threading.Event()

    def watch() -> None:
        pause = WATCH_SECONDS
        while not ended.wait(pause):
            started = monotonic()
            if _free_bytes(folder) < MIN_FREE_BYTES:  # also by files that have no name any more
                process.kill(f"left less than {MIN_FREE_BYTES / MEGABYTE:g} MB of the disk free")
            use = disk_use(folder, most)
            if use.files > most.files or use.total_bytes > most.total_bytes:
                process.kill(f"made more than {most}")
            pause = max(WATCH_SECONDS, 10 * (monotonic() - started))

    watcher = threading.Thread(target=watch, name="disk watcher", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder.parent).free  # of the folder itself a program may have taken away all rights
