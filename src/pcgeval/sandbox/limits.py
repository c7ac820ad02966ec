"""What a program may use, and the commands that make the kernel hold it to that."""

import os
import platform
import re
import shutil
from dataclasses import dataclass

from pcgeval.core.errors import PcgevalError

MEGABYTE = 1_000_000

# Libraries map far more addresses than they use (PyTorch some 4 GB), so the kernel's limit on addresses only fences a
# single huge request; what is really used is watched from outside.
SPARE_ADDRESSES = 8_000 * MEGABYTE
MOST_SCRATCH_FILES = 50_000  # an empty file costs the kernel about 1 kB that no other limit counts


class SandboxError(PcgevalError):
    """Programs cannot be contained here, or the sandbox could not be set up."""


@dataclass(frozen=True)
class Allowance:
    """The most that one started program, with all processes it starts, may use.

    Attributes:
        memory_bytes: Resident memory of all processes together; pages that they share count once.
        processes: Processes and threads at once.
        scratch_bytes: Size of its private /tmp, and of what it writes beside its files; both lie in memory and come
            on top of `memory_bytes`.
        file_bytes: Size of a single file, and of all that it prints together.
        open_files: Open descriptors per process.
        cpu_seconds: Processor time per process, for when nobody waits for its end.
    """

    memory_bytes: int = 4_000 * MEGABYTE
    processes: int = 64
    scratch_bytes: int = 256 * MEGABYTE
    file_bytes: int = 64 * MEGABYTE
    open_files: int = 1_024
    cpu_seconds: int = 7_200


FIRST_KERNEL_TO_COUNT_APART = (5, 14)  # from here on a user's processes are counted in each user namespace by itself


def limiting_command(allowance: Allowance) -> list[str]:
    """Return the start of a command line (util-linux) that runs the rest of it with the kernel's limits.

    If the machine runs out of memory, such a program is the first that the kernel ends.
    """
    processes = [f"--nproc={allowance.processes}"] if _counts_apart() else []
    return [
        *(tool("choom"), "-n", "1000", "--"),
        tool("prlimit"),
        f"--as={allowance.memory_bytes + SPARE_ADDRESSES}",
        *processes,
        f"--fsize={allowance.file_bytes}",
        f"--nofile={allowance.open_files}",
        f"--cpu={allowance.cpu_seconds}",
        "--core=0",
        "--",
    ]


def tool(name: str) -> str:
    """Return the absolute path of a command: what starts a program must not be found in the program's own folders.

    Raises:
        SandboxError: It is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise SandboxError(
            f"Programs are contained with {name}, which is not installed. "
            "Install it: `apt install bubblewrap util-linux` (other systems name the packages alike)."
        )
    return path


def _counts_apart() -> bool:
    """Whether the kernel's limit on processes is for one sandbox, not for all that a user runs."""
    version = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    return os.geteuid() == 0 or version >= FIRST_KERNEL_TO_COUNT_APART


def portable_limiting_command(allowance: Allowance) -> list[str]:
    """Return the same for any system with a POSIX shell, but for processes: the limit counts all of a user's."""
    blocks = allowance.file_bytes // 512
    limits = f"ulimit -c 0; ulimit -f {blocks}; ulimit -n {allowance.open_files}; ulimit -t {allowance.cpu_seconds}"
    return ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh"]
