"""Hostile programs, run for real in the sandbox: what stops each of them, and that the next program runs."""

import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import psutil
import pytest

from pcgeval.sandbox.bubblewrap import interpreter_paths
from pcgeval.sandbox.sandbox import ExitStatus, ResourceLimits, Sandbox, open_sandbox

pytestmark = pytest.mark.needs_sandbox

LIMITS = ResourceLimits(
    200_000_000, processes=24, scratch_bytes=16_000_000, file_bytes=4_000_000, output_bytes=4_000_000, open_files=64
)
SECONDS = 20.0  # for programs that end by themselves


class Arena:
    """A host with a program on it, another team's submission beside it, and secrets that it should not see."""

    def __init__(self, sandbox: Sandbox, root: Path) -> None:
        self.sandbox, self.root, self.marker = sandbox, root, root / "marker"
        self.folder, self.other = (root / "submissions" / team for team in ("hostile", "other"))
        for folder in (self.folder, self.other):
            folder.mkdir(parents=True)
            (folder / "main.py").write_text("# the prompt of a team\n")
        for path in (root, *root.rglob("*")):
            path.chmod(0o777)  # what stops a program is the sandbox, not the modes of our files

    def run(
        self, source: str, *arguments: object, seconds: float = SECONDS, descriptors: tuple[int, ...] = ()
    ) -> ExitStatus:
        """Run a program; none of its processes is left afterwards, and an honest program runs after it."""
        alive, held_while_alive = os.pipe()
        ending = self._start(source, *arguments, seconds=seconds, descriptors=(*descriptors, held_while_alive))
        os.close(held_while_alive)
        assert os.read(alive, 1) == b"", "a process of the sandbox outlived it"
        os.close(alive)
        assert not self.marker.exists()
        assert self._start("import sys; print('honest', file=sys.stderr)") == ExitStatus(0, None, "honest\n")
        return ending

    def prints(self, source: str, *arguments: object, descriptors: tuple[int, ...] = ()) -> str:
        """Run a program that can `say` things and try things, and return what it said on standard error."""
        ending = self.run(PRELUDE + dedent(source), *arguments, descriptors=descriptors)
        assert ending.code == 0, ending
        return ending.stderr_tail

    def _start(
        self, source: str, *arguments: object, seconds: float = SECONDS, descriptors: tuple[int, ...] = ()
    ) -> ExitStatus:
        (self.folder / "main.py").write_text(dedent(source))
        command = [sys.executable, "main.py", *map(str, arguments)]
        return self.sandbox.start(command, folder=self.folder, descriptors=descriptors).wait(seconds)


PRELUDE = """
import mmap, os, pathlib, subprocess, sys, time
def say(*words):
    print(*words, file=sys.stderr)
def attempt(name, action):
    try:
        action()
        say(name)
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return open_sandbox(LIMITS, trust_programs=False)


@pytest.fixture
def arena(sandbox: Sandbox, tmp_path: Path) -> Arena:
    return Arena(sandbox, tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_leaked() -> Iterator[None]:
    us = psutil.Process()
    descriptors, processes = us.num_fds(), {*us.children()}
    yield
    # what other tests in this process left may go meanwhile
    assert us.num_fds() <= descriptors
    assert {*us.children()} <= processes


# Programs that fail where they attack, with the error in the last line that they print

DENIED = {
    **{
        f"import os; print(os.listdir('{path}') or open('{path}').read())": "FileNotFoundError"
        for path in ("/etc/shadow", "/etc/passwd", "/var", "/sys", "/run", "/dev/zero", "/dev/mem")
    },
    "open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/x')": ("PermissionError", "OSError"),
    "open('/dev/tty')": "FileNotFoundError",
    "import socket; socket.create_connection(('192.0.2.1', 80), timeout=5)": "OSError: [Errno 101]",
    "from socket import *; socket(AF_INET, SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))": "OSError: [Errno 101]",
    "import socket; socket.getaddrinfo('example.org', 80)": "socket.gaierror",
    "import socket; socket.socket(socket.AF_VSOCK)": "OSError: [Errno 97]",
    "import socket; socket.socket(socket.AF_NETLINK)": "OSError: [Errno 97]",
    "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW)": "OSError: [Errno 97]",
    "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)": "PermissionError",
    "bytearray(50_000_000_000)": "MemoryError",
    # memory that the watch would not see
    "import mmap; mmap.mmap(-1, 10_000_000)": "PermissionError",
    "import os; os.memfd_create('hidden')": "PermissionError",
    "from threading import Timer\nfor _ in range(100): Timer(1, print).start()": "RuntimeError: can't start new thread",
}


@pytest.mark.parametrize(("source", "error"), DENIED.items())
def test_attacks_are_denied(arena, source, error):
    assert arena.run(source).stderr_tail.splitlines()[-1].startswith(error)


# Programs that are stopped for using things up

STOPPED = {
    """
    import os, time
    for _ in range(10):
        if os.fork() == 0:
            pile = bytearray(os.urandom(1_000_000)) * 40
            time.sleep(60)
    time.sleep(60)
    """: "used more than 200 MB of memory",
    # bytes that nobody reads from a socket would take memory that the watch does not see
    """
    import os, socket, time
    for _ in range(20):
        if os.fork() == 0:
            break
    sockets = []
    try:
        while True:
            sockets += socket.socketpair()
    except OSError:
        time.sleep(60)
    """: "had more than 1000 sockets",
    "import os, itertools\nfor n in itertools.count(): os.mknod(f'/tmp/{n}')": "made more than 50000 files",
    "import sys\nwhile True: sys.stderr.write('x' * 10_000)": "printed more than 4 MB",
}


@pytest.mark.parametrize(("source", "reason"), STOPPED.items())
def test_programs_over_a_limit_are_stopped(arena, source, reason):
    ending = arena.run(source)
    assert (ending.code, ending.reason) == (None, reason)
    assert len(ending.stderr_tail) in (0, 8_000)


def test_a_fork_bomb_reaches_the_limit_on_processes(arena):
    source = """
        import os
        while True:
            try:
                os.fork()
            except OSError as error:
                os.write(2, f"{error.errno}\\n".encode())
    """
    ending = arena.run(source, seconds=1.5)
    assert ending.reason in ("was stopped after 1.5 s", "printed more than 4 MB")
    assert set(ending.stderr_tail.split()) <= {"11", "1", ""}  # EAGAIN; the tail may begin within a line


def test_memory_that_processes_share_counts_once(arena):
    source = """
        import os, time
        pile = bytearray(os.urandom(1_000_000)) * 80
        for _ in range(5):
            if os.fork() == 0:
                time.sleep(0.5)
                os._exit(0)
        time.sleep(0.6)
    """
    assert arena.run(source) == ExitStatus(0, None, "")


def test_a_file_and_all_files_together_are_limited(arena):
    said = arena.prints(
        """
        for folder in ("/tmp", "."):
            written, errors = 0, []
            for number in range(10):
                try:
                    with open(f"{folder}/{number}", "wb", buffering=0) as file:
                        while True:
                            written += file.write(b"x" * 100_000)
                except OSError as error:
                    errors.append(error.errno)
            say(errors[0], errors[-1], 12_000_000 <= written <= 17_000_000)
        """
    )
    assert said == "27 28 True\n" * 2  # EFBIG, ENOSPC


# Reading

HOST_FACTS = """
/proc/loadavg /proc/meminfo /proc/interrupts /proc/sys/kernel/random/boot_id /proc/stat /proc/sys/fs/file-nr
/proc/sys/fs/inode-state /proc/sys/fs/dentry-state /proc/sys/kernel/ns_last_pid /proc/uptime /proc/vmstat /proc/cmdline
/proc/diskstats /proc/pressure/cpu /proc/kallsyms
"""
OF_PROCESSES = """
/proc/self/mountinfo /proc/mounts /proc/1/mountinfo /proc/self/cgroup /proc/thread-self/mountinfo
/proc/self/task/1/mounts /proc/self/fd/../mountinfo /proc/self/cwd/../proc/self/mountinfo
"""
LANDLOCK = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)  # the kernel's version of it; -1: none
needs_landlock = pytest.mark.skipif(LANDLOCK < 2, reason="the kernel has no Landlock (Linux 5.19), or it is off")


@pytest.mark.parametrize("paths", [HOST_FACTS, pytest.param(OF_PROCESSES, marks=needs_landlock)])
def test_the_hosts_load_hardware_and_mounts_are_hidden(arena, paths):
    """Neither the program nor a process that it starts can read them, nor can they be made readable."""
    said = arena.prints(
        """
        for path in sys.argv[1:]:
            for action in (lambda: os.chmod(path, 0o777), lambda: os.unlink(path), lambda: open(path, "rb").read(1)):
                attempt(path, action)
        subprocess.run(["head", "-qc1", *sys.argv[1:]], stdout=sys.stderr, stderr=subprocess.DEVNULL)
        """,
        *paths.split(),
    )
    assert said == ""


def test_libraries_find_their_files_in_proc(arena):
    said = arena.prints(
        """
        assert open("/proc/cpuinfo").read() and open("/proc/sys/vm/overcommit_memory").read()
        assert os.readlink("/proc/self/exe") and os.listdir("/proc/self/fd")
        assert subprocess.run(["bash", "-c", "cat <(echo piped)"], capture_output=True).stdout == b"piped\\n"
        assert mmap.mmap(os.open(sys.executable, os.O_RDONLY), 0, access=mmap.ACCESS_READ)  # shared with a file
        os.mkdir("/tmp/folder")
        open("/tmp/file", "w").close()
        os.rename("/tmp/file", "/tmp/folder/file")
        say("fine")
        """
    )
    assert said == "fine\n"


def test_no_path_and_no_link_leads_out_of_the_folder(arena):
    (arena.root / "secret").write_text("the organiser's secret")
    targets = ("/etc/passwd", arena.root / "secret", "../../secret", "/proc/1/root/etc/passwd", "/")
    for number, target in enumerate(targets):
        (arena.folder / f"link{number}").symlink_to(target)
    other = arena.other / "main.py"
    said = arena.prints(
        """
        for path in sys.argv[1:]:
            attempt(path, lambda: pathlib.Path(path).read_bytes())
        say(*os.listdir("link4"))
        """,
        *(other, "../other/main.py", "/proc/self/cwd/../other/main.py", f"/proc/1/cwd/{other}"),
        *(f"link{number}" for number in range(4)),
    )
    top = {Path(sys.prefix).parts[1], Path(sys.base_prefix).parts[1]}
    expected = {"dev", "etc", "proc", "submission", "tmp", "usr"} | top
    assert set(said.split()) - {"bin", "sbin", "lib", "lib32", "lib64", "libx32"} == expected


@pytest.mark.skipif(sys.prefix == "/usr", reason="the interpreter is the system's")
def test_the_folder_of_the_interpreter_shows_nothing_beside_it(arena):
    said = arena.prints("say(*os.listdir(sys.argv[1]))", Path(sys.prefix).parent)
    assert said.split() == [Path(sys.prefix).name]


def test_no_process_is_seen_but_the_sandboxs_own_and_none_holds_a_secret(arena, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    said = arena.prints(
        """
        processes = sorted(path for path in pathlib.Path("/proc").iterdir() if path.name.isdigit())
        for process in processes:
            for name in ("environ", "cmdline"):
                attempt("read", lambda: say((process / name).read_bytes()))
        for path in ("/proc/1/root/etc/shadow", "/proc/1/mem", "/proc/kcore"):
            attempt("opened", lambda: open(path, "rb").read(1))
        say(*processes)
        say(*os.environ)
        """
    )
    assert "sk-secret" not in said
    assert "opened" not in said
    *_, processes, environment = said.splitlines()
    assert processes == "/proc/1 /proc/2"
    assert {"PATH", "HOME", "LANG"} <= {*environment.split()}
    assert "OPENAI_API_KEY" not in environment


def test_inherited_descriptors_are_those_given(arena):
    secret, given = (os.open(arena.other / "main.py", os.O_RDONLY) for _ in range(2))
    os.set_inheritable(secret, True)
    open_ones = {*arena.prints("say(*os.listdir('/proc/self/fd'))", descriptors=(given,)).split()}
    os.close(secret)
    os.close(given)
    assert (len(open_ones), str(secret) in open_ones) == (6, False)  # with the test's own and that of the listing
    assert open_ones > {"0", "1", "2", str(given)}


# Writing


def test_a_program_writes_only_temporary_files(arena):
    (arena.folder / "prompts").mkdir()
    (arena.folder / "prompts" / "ask.txt").write_text("Build <OBJECT>.")
    said = arena.prints(
        """
        for folder in ("/", "/submission", "/usr", "/usr/bin", "/etc", "/dev", "/proc", "/proc/sys/kernel", sys.prefix,
                       sys.base_prefix, sys.argv[1], "/tmp", os.path.expanduser("~"), "/dev/shm"):
            attempt(folder, lambda: (pathlib.Path(folder) / "marker").write_text("x"))
        attempt("write", lambda: open("main.py", "w"))
        attempt("append", lambda: open("prompts/ask.txt", "a"))
        attempt("remove", lambda: os.remove("main.py"))
        attempt("replace", lambda: os.rename("main.py", "other.py"))
        attempt("add", lambda: open("prompts/more.txt", "w"))
        attempt("move", lambda: os.rename("prompts", "others"))
        attempt("chmod", lambda: os.chmod("prompts/ask.txt", 0o777))
        for device in ("/dev/null", "/dev/urandom"):
            open(device, "w").write("x")  # into nothing
            attempt("time of change", lambda: os.utime(device))
        """,
        arena.root,
    )
    assert said.split() == ["/submission", "/tmp", "/tmp", "/dev/shm"]  # noqa: S108
    assert {path.name for path in arena.folder.rglob("*")} == {"main.py", "prompts", "ask.txt"}
    assert (arena.folder / "prompts" / "ask.txt").read_text() == "Build <OBJECT>."


def test_a_run_sees_nothing_of_the_run_before(arena):
    arena.run("open('/tmp/note', 'w').write('to my next trial'); open('log.txt', 'w').write('the same')")
    tmp = Path("/tmp")  # noqa: S108 - the sandbox's, in which the interpreter may lie
    shown = {path.parts[2] for path in interpreter_paths(Path(sys.executable)) if path.is_relative_to(tmp)}
    assert arena.prints("say(os.listdir('/tmp'), os.listdir())") == f"{sorted(shown)} ['main.py']\n"


def test_start_up_files_and_pickles_run_their_code_inside_if_at_all(arena):
    for name in ("sitecustomize.py", "usercustomize.py", "hostile.pth", "hostile-nspkg.pth"):
        (arena.folder / name).write_text(f"import pathlib; pathlib.Path({str(arena.marker)!r}).write_text('x')\n")
    said = arena.prints(
        """
        import pickle
        class Hostile:
            def __reduce__(self):
                return os.system, (f"touch {sys.argv[1]}; cat /etc/shadow; echo ran >&2",)
        pickle.loads(pickle.dumps(Hostile()))
        """,
        arena.marker,
    )
    assert "cat: /etc/shadow: No such file" in said
    assert said.endswith("ran\n")


def test_commands_beside_the_interpreter_do_not_replace_ours(arena, tmp_path):
    """A wheel may bring commands along; those that start a program are not looked for among them."""
    programs, names = tmp_path / "environment" / "bin", ("bwrap", "choom", "prlimit", "setpriv")
    programs.mkdir(parents=True)
    (programs.parent / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (programs / "python").symlink_to("/bin/sh")
    for name in names:
        (programs / name).write_text("#!/bin/sh\necho hostile >&2\n")
        (programs / name).chmod(0o755)
    command = [str(programs / "python"), "-c", "; ".join(("echo honest >&2", *names))]
    ending = arena.sandbox.start(command, folder=arena.folder).wait(SECONDS)
    assert ending == ExitStatus(0, None, "honest\n" + "hostile\n" * 4)  # the program itself may use its own


# The host's servers


def test_servers_and_abstract_sockets_of_the_host_are_not_reached(arena):
    name = f"pcgeval-{os.getpid()}"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        abstract.bind(f"\0{name}")
        abstract.listen()
        said = arena.prints(
            """
            import socket
            attempt("server", lambda: socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5))
            attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect(chr(0) + sys.argv[2]))
            """,
            *(server.getsockname()[1], name),
        )
        assert said == ""
        for listening in (server, abstract):
            listening.setblocking(False)
            with pytest.raises(BlockingIOError):
                listening.accept()


# Processes


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(600)", 0),  # a daemon
        ("os.closerange(0, 1000)\ntime.sleep(0.3)\nos._exit(7)", 7),  # also the pipe to the broker
    ],
)
def test_a_program_ends_with_its_first_process_and_not_with_its_pipes(arena, source, code):
    assert arena.run(f"import os, time\n{source}").code == code


@pytest.mark.parametrize("target", ["os.getppid()", "1", "0", "-1", "int(sys.argv[1])"])
def test_signals_reach_the_programs_own_processes_only(arena, target):
    ending = arena.run(
        f"""
        import os, signal, sys
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill({target}, number)
            except OSError as error:
                print(type(error).__name__, file=sys.stderr)
        """,
        os.getpid(),
    )
    assert ending.code == (137 if target == "0" else 0)
    assert set(ending.stderr_tail.split()) <= {"PermissionError", "ProcessLookupError"}


def test_process_1_can_at_most_be_brought_down(arena):
    """Where no root is at hand it belongs to the same user as the program, which may then write to its memory."""
    ending = arena.run(
        """
        import os, sys, time
        try:
            memory = open("/proc/1/mem", "r+b", buffering=0)
        except PermissionError:
            sys.exit("denied")
        for line in open("/proc/1/maps"):
            start, end = (int(part, 16) for part in line.split()[0].split("-"))
            try:
                os.pwrite(memory.fileno(), b"\\xcc" * (end - start), start)
            except (OSError, OverflowError):
                pass
        os.fork() or os._exit(0)
        """
    )
    assert ending.stderr_tail == "denied\n" or ending.reason is not None


# System calls

SYSTEM_CALLS = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    say(os.strerror(ctypes.get_errno()) if getattr(libc, name)(*arguments) < 0 else "WORKED")
"""
OUT_OF_THE_SANDBOX = [
    "'ptrace', 16, 1, 0, 0",
    "'ptrace', 0, 0, 0, 0",
    "'process_vm_readv', 1, 0, 0, 0, 0, 0",
    "'mount', b'proc', b'/tmp', b'proc', 0, 0",
    "'mount', b'/tmp', b'/tmp', None, 4096, None",
    "'umount2', b'/proc', 2",
    "'chroot', b'/tmp'",
    "'pivot_root', b'/tmp', b'/tmp'",
    "'unshare', 0x10000000",
    "'unshare', 0x00020000",
    "'setns', 0, 0",
    "'open_by_handle_at', 0, 0, 0",
    "'reboot', 0",
    "'sethostname', b'x', 1",
    "'shmget', 1, 10_000_000, 0o1600",  # memory that the watch would not see
]
ON_X86_64 = {
    "'syscall', 298, 0, 0, -1, -1, 0": "Operation not permitted",  # perf_event_open
    "'syscall', 321, 0, 0, 0": "Operation not permitted",  # bpf
    "'syscall', 323, 0": "Operation not permitted",  # userfaultfd
    "'syscall', 425, 1, 0": "Operation not permitted",  # io_uring_setup
    "'syscall', 250, 0, 0, 0": "Operation not permitted",  # keyctl
    "'syscall', 56, 0x10000011, 0, 0, 0, 0": "Operation not permitted",  # clone with a new user namespace
    "'syscall', 435, 0, 0": "Function not implemented",  # clone3
    "'syscall', 0x40000000 + 101, 0, 0, 0, 0": "Function not implemented",  # ptrace by its x32 number
    "'syscall', 39": "WORKED",  # getpid
}


def test_system_calls_out_of_the_sandbox_are_denied(arena):
    calls = dict.fromkeys(OUT_OF_THE_SANDBOX, "Operation not permitted")
    calls |= ON_X86_64 if os.uname().machine == "x86_64" else {}
    answers = arena.prints(SYSTEM_CALLS + "".join(f"call({call})\n" for call in calls))
    assert dict(zip(calls, answers.splitlines(), strict=True)) == calls


def test_there_is_no_right_to_use_or_to_gain(arena):
    said = arena.prints(
        """
        import ctypes
        libc = ctypes.CDLL(None)
        version, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert libc.capget(version, rights) == 0
        ambient = sum(libc.prctl(47, 1, right, 0, 0) == 1 for right in range(64))
        say(*rights, ambient)
        say(libc.prctl(39, 0, 0, 0, 0), libc.prctl(21), os.getuid() != 0)  # no new rights; filter
        say(subprocess.run(["/usr/bin/su", "-c", "id"], capture_output=True).returncode != 0)
        attempt("BECAME root", lambda: os.setuid(0))
        attempt("BECAME root", lambda: os.setgid(0))
        """
    )
    assert said.splitlines() == ["0 0 0 0 0 0 0", "1 2 True", "True"]
