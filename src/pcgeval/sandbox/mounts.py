"""What a program sees of the machine's files: the system's libraries, its interpreter, its folder, a private /tmp."""

import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

SUBMISSION = PurePosixPath("/submission")
MOST_PARTS = 1000  # directly in a program's folder: each is a mount
SYSTEM_FOLDERS = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")  # mostly links into /usr
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")  # where libraries are, and which of several
NETWORK_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/pki")  # names, certificates
DEVICES = ("/dev/null", "/dev/random", "/dev/urandom", "/dev/full")  # not /dev/zero: memory that nobody would see


def system_mounts(scratch_bytes: int, *, network: bool) -> list[str]:
    """Return bubblewrap's options for the system's files, processes, devices and an empty /tmp of limited size."""
    files = (*SYSTEM_FILES, *(NETWORK_FILES if network else ()))
    return [
        *("--ro-bind", "/usr", "/usr"),
        *(option for folder in SYSTEM_FOLDERS for option in _system_folder(Path(folder))),
        *("--perms", "0755", "--dir", "/etc"),
        *(option for path in files for option in ("--ro-bind-try", path, path)),
        *("--proc", "/proc"),
        *("--perms", "0755", "--tmpfs", "/dev"),
        *(option for path in DEVICES for option in ("--dev-bind", path, path)),
        *("--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/tmp", "/dev/shm"),  # noqa: S108 - in the sandbox
        *("--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", "/tmp"),  # noqa: S108
    ]


def folder_mounts(folder: Path, readable: Iterable[Path], writable: Iterable[Path], scratch_bytes: int) -> list[str]:
    """Return the options for the program's folder and for paths that keep their names, and close all else but /tmp."""
    kept = [path for path in dict.fromkeys(readable) if not path.is_relative_to("/usr")]
    return [
        *(option for path in (*kept, *writable) for option in _parents(path)),
        *(option for path in kept for option in ("--ro-bind", str(path), str(path))),
        *(option for path in writable for option in ("--bind", str(path), str(path))),
        *_program_folder(folder, scratch_bytes),
        *("--chdir", str(SUBMISSION)),
        *("--remount-ro", "/dev", "--remount-ro", "/"),
    ]


def _program_folder(folder: Path, scratch_bytes: int) -> list[str]:
    """Return the options for a folder of which every part is read-only, but beside which new files can be made.

    Programs keep logs and caches where they are started; what they write is gone afterwards.
    """
    parts = sorted(folder.iterdir())
    if len(parts) > MOST_PARTS:
        return ["--ro-bind", str(folder), str(SUBMISSION)]
    options = ["--perms", "1777", "--size", str(scratch_bytes), "--tmpfs", str(SUBMISSION)]
    for part in parts:
        inside = str(SUBMISSION / part.name)
        if part.is_symlink():
            options += ["--symlink", str(part.readlink()), inside]
        elif part.is_file() or part.is_dir():
            options += ["--ro-bind", str(part), inside]
    return options


def interpreter_paths(command: Path) -> list[Path]:
    """Return the folders that an interpreter needs: its environment, and the installation that this was made from.

    A command that belongs to no Python installation outside /usr needs none.
    """
    environment = command.parent.parent
    settings = environment / "pyvenv.cfg"
    if not command.is_absolute():
        return []
    if not settings.is_file():
        return _installation(command.resolve().parent)
    homes = [
        Path(value.strip())
        for line in settings.read_text(encoding="utf-8", errors="replace").splitlines()
        for key, _, value in [line.partition("=")]
        if key.strip() == "home"
    ]
    return [environment, *(path for home in (*homes, command.resolve().parent) for path in _installation(home))]


def open_to_all(path: Path) -> bool:
    """Return whether users other than its owner may read a file or list a folder."""
    mode = path.stat().st_mode
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    return mode & needed == needed


def _installation(programs: Path) -> list[Path]:
    """Return the installation of a folder `bin`, nothing where that is the system's own or no Python is seen in it."""
    prefix = programs.parent
    try:
        is_python = prefix.is_absolute() and any((prefix / "lib").glob("python3*/os.py"))
    except OSError:
        is_python = False
    is_system = prefix == Path("/") or prefix.is_relative_to("/usr")
    return [prefix] if is_python and programs.name == "bin" and not is_system else []


def _system_folder(folder: Path) -> list[str]:
    if folder.is_symlink():
        return ["--symlink", str(folder.readlink()), str(folder)]
    return ["--ro-bind-try", str(folder), str(folder)]


def _parents(path: Path) -> list[str]:
    """Make the folders above a path visible to all, empty but for what lies there."""
    return [
        option
        for parent in reversed(path.parents)
        if parent != Path("/") and parent != Path("/tmp")  # noqa: S108 - the sandbox's own
        for option in ("--perms", "0755", "--dir", str(parent))
    ]
