"""What a tree of processes uses, read from /proc while it runs; processes that end meanwhile count as nothing."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """Processes and threads, and their resident memory; memory that several share counts for each of them."""

    processes: tuple[int, ...]
    tasks: int
    memory_bytes: int


def usage_of_tree(root: int, most_tasks: int) -> Usage:
    """Return what a process and all its descendants use; counting ends beyond `most_tasks`, so that it always ends."""
    found: list[int] = []
    tasks = memory = 0
    waiting = [root]
    while waiting and tasks <= most_tasks:
        process = waiting.pop()
        found.append(process)
        tasks += len(_tasks(process))
        memory += _resident_bytes(process)
        waiting += _children(process)
    return Usage(tuple(found), tasks, memory)


def shared_once_bytes(processes: Iterable[int]) -> int:
    """Return the resident memory of processes with each shared page counted once; slow, the kernel walks the pages."""
    return sum(_proportional_bytes(process) for process in processes)


def scratch_files(process: int) -> int:
    """Return how many files a process could make in /tmp and in its program's folder; 0 if that cannot be seen.

    Until bubblewrap has given it a root of its own, a process sees the host's disk, of which nothing is counted.
    """
    try:
        root = os.open(PROC / str(process) / "root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        if os.path.samestat(os.fstat(root), Path("/").stat()):
            return 0
        # below the descriptor: whatever the process does meanwhile, this is the root that was compared
        return sum(_files_in_memory(PROC / "self" / "fd" / str(root) / folder) for folder in ("tmp", "submission"))
    finally:
        os.close(root)


def _files_in_memory(folder: Path) -> int:
    try:
        space = os.statvfs(folder)
    except OSError:
        return 0
    return 0 if space.f_flag & os.ST_RDONLY else space.f_files - space.f_ffree


def _tasks(process: int) -> list[Path]:
    try:
        return list((PROC / str(process) / "task").iterdir())
    except OSError:
        return []


def _children(process: int) -> list[int]:
    return [int(child) for task in _tasks(process) for child in _read(task / "children").split()]


def _resident_bytes(process: int) -> int:
    fields = _read(PROC / str(process) / "statm").split()
    return int(fields[1]) * PAGE_BYTES if fields else 0


def _proportional_bytes(process: int) -> int:
    for line in _read(PROC / str(process) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return _resident_bytes(process)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
