"""Wait in bubblewrap and start programs there, each in namespaces of its own: `python -c SOURCE SETTINGS`, this file.

It uses the standard library alone, because the sandbox shows nothing of pcgeval. bubblewrap hides the host; what this
process adds keeps one program from the next: processes, network, temporary files and memory of a program end with it.
No team's code runs in this process or is imported by it, and no request is read by it: `pcgeval` sends one at a time
over a socket, which a child reads, closes itself off by, and becomes process 1 of the program's namespaces for.
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import gc
import json
import os
import resource
import stat
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

# Readable files in /proc: libraries choose their instructions by them, and ask for settings of the kernel; beside these
# lie counters of all that the host does
SHOWN_IN_PROC = """
    cpuinfo filesystems version sys/kernel/cap_last_cap sys/kernel/ngroups_max sys/kernel/osrelease sys/kernel/pid_max
    sys/vm/max_map_count sys/vm/overcommit_memory
"""
READ_FILE, REFER = 1 << 2, 1 << 13  # rights of Landlock: read files, and move them from one folder to another
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, by the same numbers on every machine
CAPABILITIES_VERSION = 0x20080522  # linux/capability.h
NEW_MOUNTS, NEW_IPC, NEW_PROCESSES, NEW_NETWORK = 0x0002_0000, 0x0800_0000, 0x2000_0000, 0x4000_0000  # linux/sched.h
READ_ONLY, NO_SUID, NO_DEVICES, NO_EXEC, REMOUNT, BIND, WITH_ALL_BELOW = 1, 2, 4, 8, 32, 4096, 16384  # linux/mount.h
SET_DUMPABLE, SET_FILTER = 4, (22, 2)  # linux/prctl.h
SET_FLAGS, IS_UP = 0x8914, 1  # of a network interface; linux/sockios.h and linux/if.h
START_CHECKS = 1000  # a millisecond apart
LENGTH = struct.Struct("I")  # of a request, before it
MOST_DESCRIPTORS = 253  # that one message of a socket takes
libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library; raise OSError if it fails."""
    result: int = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return result


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str = "") -> None:
    """Mount a file system or, as a bind, a path."""
    name = None if kind is None else kind.encode()
    call("mount", os.fsencode(source), os.fsencode(target), name, ctypes.c_ulong(flags), options.encode())


def await_bubblewrap() -> None:
    """Wait until bubblewrap's first process sleeps: from then on it ends with bubblewrap, and that with pcgeval."""
    for _ in range(START_CHECKS):
        with open("/proc/1/stat") as status:
            if status.read().rpartition(")")[2].split()[0] == "S":
                return
        time.sleep(0.001)


def protect_devices() -> None:
    """Mount devices read-only: they take what is written to them, but a program leaves no time of change on them."""
    for name in os.listdir("/dev"):
        if stat.S_ISCHR(os.stat(path := f"/dev/{name}").st_mode):
            flags = os.statvfs(path).f_flag & (NO_SUID | NO_DEVICES | NO_EXEC)
            mount("none", path, flags=BIND | REMOUNT | READ_ONLY | flags)


def serve(settings: dict[str, Any]) -> _socket.socket:
    """Start a child for each request; return in that child, as process 1 of a new PID namespace, with the socket."""
    control = _socket.socket(fileno=settings["control"])
    await_bubblewrap()
    protect_devices()
    ours = os.open("/proc/self/ns/pid", os.O_RDONLY)
    gc.collect()
    gc.freeze()  # children share the memory of what is here
    while control.recv(1, _socket.MSG_PEEK):  # nothing if pcgeval has closed the room, or has ended
        call("unshare", NEW_PROCESSES)
        if not (child := os.fork()):
            return control
        call("setns", ours, NEW_PROCESSES)
        control.send(b"ended %d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os._exit(0)


def receive(control: _socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return a request and its descriptors."""
    control.send(b"started\n")  # the socket tells pcgeval by which process
    length, messages, *_ = control.recvmsg(LENGTH.size, _socket.CMSG_SPACE(MOST_DESCRIPTORS * 4))
    text = bytearray()
    while len(text) < LENGTH.unpack(length)[0]:
        text += control.recv(LENGTH.unpack(length)[0] - len(text))
    return json.loads(text), [fd for *_, data in messages for (fd,) in struct.iter_unpack("i", data)]


def renew_folders(settings: dict[str, Any]) -> None:
    """Put an empty folder in memory over each scratch folder, with the paths of the host in it that are shown there."""
    shown = [(path, os.open(path, os.O_PATH)) for path in settings["shown"]]
    parts = []
    for folder in settings["scratch"]:
        if folder == settings["folder"]:
            os.chdir(folder)  # from here on, names without a path are of the folder below the new one
            parts = os.listdir()
        mount("tmpfs", folder, "tmpfs", NO_SUID | NO_DEVICES, f"mode=1777,size={settings['scratch_bytes']}")
    for name in parts:
        if os.path.islink(name):
            os.symlink(os.readlink(name), f"{settings['folder']}/{name}")
        else:
            bind(name, f"{settings['folder']}/{name}", os.path.isdir(name))
    for path, descriptor in shown:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        bind(f"/proc/self/fd/{descriptor}", path, stat.S_ISDIR(os.fstat(descriptor).st_mode))


def bind(source: str, target: str, is_folder: bool) -> None:
    """Show a path of the host at another, with the rights that it has there."""
    if not os.path.exists(target):
        os.mkdir(target) if is_folder else os.close(os.open(target, os.O_CREAT, 0o644))
    mount(source, target, flags=BIND | WITH_ALL_BELOW)


def renew_proc(has_landlock: bool) -> None:
    """Show the program's processes, and nothing of the host such as its load; Landlock denies reading other files."""
    mount("proc", "/proc", "proc", NO_SUID | NO_DEVICES | NO_EXEC)
    shown = {name.split("/")[0] for name in SHOWN_IN_PROC.split()} if has_landlock else {*SHOWN_IN_PROC.split()}
    for name in os.listdir("/proc"):
        path = f"/proc/{name}"
        if name.isdecimal() or os.path.islink(path) or name in shown:
            continue
        if os.path.isdir(path):
            mount("tmpfs", path, "tmpfs", READ_ONLY)
        elif not has_landlock:
            mount("/dev/null", path, flags=BIND)
            mount("none", path, flags=BIND | REMOUNT | READ_ONLY | NO_DEVICES)  # a device that cannot be opened


def hide_processes() -> None:
    """Deny reading what /proc shows of processes, such as the host's paths in `mountinfo`, and of the host.

    Mounts cannot cover folders that appear and vanish with processes. Landlock (Linux 5.19, landlock(7)) allows reading
    by a list of everything else.
    """
    handled = struct.pack("Q", READ_FILE | REFER)
    rules = call("syscall", CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    readable = [f"/{name}" for name in os.listdir("/") if name != "proc"]
    readable += [f"/proc/{name}" for name in SHOWN_IN_PROC.split()]
    for path, right in [("/", REFER), *((path, READ_FILE) for path in readable)]:
        if os.path.exists(path):  # some systems have links to folders that are not installed
            place = os.open(path, os.O_PATH)
            call("syscall", ADD_RULE, rules, 1, struct.pack("=Qi", right, place), 0)
            os.close(place)
    call("syscall", RESTRICT_SELF, rules, 0)
    os.close(rules)


def close_off(settings: dict[str, Any], user: int) -> None:
    """Leave the namespaces of other programs, and give up all rights for good."""
    call("unshare", NEW_MOUNTS | NEW_IPC | (0 if settings["network"] else NEW_NETWORK))
    if not settings["network"]:
        any_socket = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
        fcntl.ioctl(any_socket.fileno(), SET_FLAGS, struct.pack("16sH14x", b"lo", IS_UP))
        any_socket.close()
    has_landlock = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1) >= 2  # its version; 1 denies moving files
    umask = os.umask(0o022)  # the program may belong to another user
    renew_folders(settings)
    renew_proc(has_landlock)
    os.umask(umask)
    os.chdir(settings["folder"])
    with open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")  # where memory runs out, the kernel ends this program first
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    call("capset", struct.pack("=Ii", CAPABILITIES_VERSION, 0), bytes(24))
    call("prctl", SET_DUMPABLE, 0, 0, 0, 0)  # the program may belong to the same user, and must not read this process
    if has_landlock:
        hide_processes()
    if instructions := bytes.fromhex(settings["filter"]):
        place = ctypes.create_string_buffer(instructions, len(instructions))
        call("prctl", *SET_FILTER, struct.pack("@HP", len(instructions) // 8, ctypes.addressof(place)), 0, 0)


def keep_descriptors(received: list[int], numbers: list[int]) -> None:
    """Give descriptors their numbers, and close all others but the standard input."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, max(numbers) + 1) for descriptor in received]
    for descriptor, number in zip(high, numbers, strict=True):
        os.dup2(descriptor, number)
    start = 1
    for number in sorted(numbers):
        os.closerange(start, number)
        start = number + 1
    os.closerange(start, 1 << 16)


def become_program(settings: dict[str, Any], control: _socket.socket) -> dict[str, Any]:
    """Return the request in the program's process; this one ends as that does, and its whole namespace with it."""
    try:
        request, descriptors = receive(control)
        close_off(settings, request["user"])
    except Exception as error:  # noqa: BLE001 - whatever it is, the program did not run
        control.send(f"failed {error}".encode() + b"\n")
        os._exit(1)
    control.close()
    if program := os.fork():
        os.closerange(0, 1 << 16)
        while True:
            ended, status = os.wait()
            if ended == program:
                code = os.waitstatus_to_exitcode(status)
                os._exit(128 - code if code < 0 else code)
    os.setsid()
    call("prctl", SET_DUMPABLE, 1, 0, 0, 0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # on one that is shared, a lock would stay for the next program
    keep_descriptors(descriptors, [1, 2, *request["descriptors"]])
    set_limits(request["limits"])
    return request


def set_limits(limits: dict[str, int]) -> None:
    """Set the kernel's limits by their names, such as RLIMIT_AS."""
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, name), (limit, limit))


def run_command(command: list[str], environment: Mapping[str, str]) -> NoReturn:
    """Become a command."""
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


def run_file(command: list[str], environment: dict[str, str], module: str) -> None:
    """Go on as Python does for `python FILE`, in a process that has imported `module` already."""
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, sys.orig_argv = command[1:], command
    path = os.path.abspath(command[1])
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    for name in ("ctypes", "fcntl", "resource", "struct"):  # of this file; the program may have modules of these names
        sys.modules.pop(name, None)
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__dict__.update(__file__=path, __builtins__=sys.modules["builtins"])
    sys.modules[module].begin()
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except Exception as error:  # noqa: BLE001 - whatever the program raises
        sys.excepthook(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        sys.exit(1)


def main() -> None:
    """Wait for requests and run what each asks for, or without a sandbox become a command with limits."""
    settings = json.loads(sys.argv[1])
    if "control" not in settings:
        set_limits(settings["limits"])
        run_command(settings["command"], os.environ)
    sys.path[:] = filter(None, sys.path)  # never the working folder, which will be a team's
    request = become_program(settings, serve(settings))
    if request["module"]:
        run_file(request["command"], request["environment"], request["module"])
    else:
        run_command(request["command"], request["environment"])


if __name__ == "__main__":
    main()
