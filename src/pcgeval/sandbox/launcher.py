"""Start a program with its limits: `python -I -S -c SOURCE NAME=NUMBER... -- PROGRAM...`; SOURCE is this file.

It uses the standard library alone, because the sandbox shows nothing of pcgeval. The names are resources such as
RLIMIT_AS, and in the sandbox `user`, the id to become, and `lifeline`, a pipe whose other end pcgeval holds open.
"""

import ctypes
import os
import resource
import select
import struct
import sys
import time

# Readable files in /proc beside /proc/sys: libraries choose their instructions by them
SHOWN_IN_PROC = ("cpuinfo", "filesystems", "sys", "version")
READ_FILE, REFER = 1 << 2, 1 << 13  # rights of Landlock: read files, and move them from one folder to another
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, by the same numbers on every machine
CAPABILITIES_VERSION = 0x20080522  # linux/capability.h
START_CHECKS = 1000  # a millisecond apart


def become_user(user: int) -> None:
    """Change from root to another user for good."""
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    ctypes.CDLL(None).capset(struct.pack("=Ii", CAPABILITIES_VERSION, 0), bytes(24))


def hide_processes() -> None:
    """Deny reading what /proc shows of processes, such as the host's paths in `mountinfo`.

    Mounts cannot cover folders that appear and vanish with processes. Landlock (Linux 5.19, landlock(7)) allows reading
    by a list of everything else. Where the kernel lacks it, the files stay readable.
    """
    call = ctypes.CDLL(None).syscall
    if call(CREATE_RULESET, None, ctypes.c_size_t(0), 1) < 2:  # its version; the first denies moving files
        return
    handled = struct.pack("Q", READ_FILE | REFER)
    rules = call(CREATE_RULESET, handled, ctypes.c_size_t(len(handled)), 0)
    readable = [f"/{name}" for name in os.listdir("/") if name != "proc"]  # noqa: PTH208 - pathlib loads a lot
    readable += [f"/proc/{name}" for name in SHOWN_IN_PROC]
    for path, right in [("/", REFER), *((path, READ_FILE) for path in readable)]:
        if os.path.exists(path):  # noqa: PTH110 - some systems have links to folders that are not installed
            place = os.open(path, os.O_PATH)
            call(ADD_RULE, rules, 1, struct.pack("=Qi", right, place), 0)
            os.close(place)
    call(RESTRICT_SELF, rules, 0)
    os.close(rules)


def await_bubblewrap() -> None:
    """Wait until bubblewrap's first process sleeps: from then on it ends with bubblewrap, and that with pcgeval."""
    for _ in range(START_CHECKS):
        with open("/proc/1/stat") as status:  # noqa: PTH123 - as above
            if status.read().rpartition(")")[2].split()[0] == "S":
                return
        time.sleep(0.001)


def main() -> None:
    """Set the limits and become the program."""
    end = sys.argv.index("--")
    command, settings = sys.argv[end + 1 :], dict(argument.split("=") for argument in sys.argv[1:end])
    user, lifeline = int(settings.pop("user", 0)), int(settings.pop("lifeline", -1))
    for name, limit in settings.items():
        resource.setrlimit(getattr(resource, name), (int(limit), int(limit)))
    if lifeline >= 0:  # in the sandbox
        with open("/proc/self/oom_score_adj", "w") as score:  # noqa: PTH123 - as above
            score.write("1000")  # where memory runs out, the kernel ends this program first
        if user:
            become_user(user)
        await_bubblewrap()
        hide_processes()
        ended = select.poll()
        ended.register(lifeline)
        if ended.poll(0):  # while bubblewrap was starting
            sys.exit("pcgeval has ended")
        os.close(lifeline)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
