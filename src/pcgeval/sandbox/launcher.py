"""Start a program inside the sandbox: `python -I -S -c SOURCE LIFELINE REPORTS PROGRAM...`; SOURCE is this file.

It uses the standard library alone, as nothing of pcgeval is visible in the sandbox.
"""

import ctypes
import os
import select
import struct
import sys

# what stays readable of the kernel's own files in /proc: libraries choose their instructions by these
SHOWN_IN_PROC = ("cpuinfo", "filesystems", "sys", "version")
READ_FILE, REFER = 1 << 2, 1 << 13  # rights of Landlock: read files, and move them from one folder to another
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system calls, by the same numbers on every machine


def hide_processes() -> None:
    """Deny this process for good to read what /proc shows of processes, such as the host's paths in `mountinfo`.

    Their folders appear and vanish with processes and cannot be covered by mounts; Landlock (Linux 5.19, landlock(7))
    allows reading by a list of all else. Where the kernel lacks it, the files stay readable.
    """
    call = ctypes.CDLL(None).syscall
    if call(CREATE_RULESET, None, ctypes.c_size_t(0), 1) < 2:  # its version; the first denies to move files
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


def main() -> None:
    """Become the program, unless pcgeval has ended, which bubblewrap acts on only from the moment of this start on."""
    hide_processes()
    lifeline, reports = map(int, sys.argv[1:3])
    ended = select.poll()
    ended.register(lifeline)
    if ended.poll(0):
        sys.exit("pcgeval has ended")
    os.close(lifeline)
    os.close(reports)
    command = sys.argv[3:]
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
