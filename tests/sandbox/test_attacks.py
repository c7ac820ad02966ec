"""Hostile programs, run for real in the sandbox: what stops each of them, and that the next program runs."""

import contextlib
import ctypes
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from pcgeval.sandbox.bubblewrap import interpreter_paths
from pcgeval.sandbox.sandbox import ExitStatus, ResourceLimits, Sandbox, open_sandbox

pytestmark = pytest.mark.needs_sandbox

LIMITS = ResourceLimits(
    memory_bytes=200_000_000,
    processes=24,
    scratch_bytes=16_000_000,
    file_bytes=4_000_000,
    output_bytes=4_000_000,
    open_files=64,
)
SECONDS = 20.0  # for programs that end by themselves


class Arena:
    """A host with a program on it, another team's submission beside it, and secrets that it should not see."""

    def __init__(self, sandbox: Sandbox, root: Path) -> None:
        self.sandbox = sandbox
        self.root = root
        self.folder = root / "submissions" / "hostile"
        self.folder.mkdir(parents=True)
        self.other = root / "submissions" / "other" / "main.py"
        self.other.parent.mkdir()
        self.other.write_text("# the prompt of another team\n")
        self.marker = root / "marker"
        for path in (root, *root.rglob("*")):
            path.chmod(0o777)  # what stops a program is the sandbox, not the modes of our files

    def run(
        self, source: str, *arguments: object, seconds: float = SECONDS, descriptors: tuple[int, ...] = ()
    ) -> ExitStatus:
        """Run a program; none of its processes is left afterwards, and an honest program runs after it."""
        alive, held_while_alive = os.pipe()
        ending = self._start(source, arguments, seconds, (*descriptors, held_while_alive))
        os.close(held_while_alive)
        assert os.read(alive, 1) == b"", "a process of the sandbox outlived it"
        os.close(alive)
        assert not self.marker.exists()
        honest = self._start("import sys; print('honest', file=sys.stderr)", (), SECONDS, ())
        assert honest == ExitStatus(0, None, "honest\n")
        return ending

    def _start(
        self, source: str, arguments: tuple[object, ...], seconds: float, descriptors: tuple[int, ...]
    ) -> ExitStatus:
        (self.folder / "main.py").write_text(dedent(source))
        command = [sys.executable, "main.py", *(str(argument) for argument in arguments)]
        return self.sandbox.start(command, folder=self.folder, descriptors=descriptors).wait(seconds)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return open_sandbox(LIMITS, trust_programs=False)


@pytest.fixture
def arena(sandbox: Sandbox, tmp_path: Path) -> Arena:
    return Arena(sandbox, tmp_path)


@pytest.fixture(autouse=True)
def nothing_is_leaked() -> Iterator[None]:
    descriptors, processes = open_descriptors(), children()
    yield
    # what other tests in this process left may go meanwhile
    assert open_descriptors() <= descriptors
    assert children() <= processes


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # a thread that ends meanwhile
            found.update((task / "children").read_text().split())
    return found


def last_line(ending: ExitStatus) -> str:
    return ending.stderr_tail.strip().rpartition("\n")[2]


def shown_in_tmp() -> list[str]:
    """Return what the sandbox's /tmp holds at the start: the way to the interpreter, where that lies in /tmp."""
    tmp = Path("/tmp")  # noqa: S108 - the sandbox's
    return sorted({path.parts[2] for path in interpreter_paths(Path(sys.executable)) if path.is_relative_to(tmp)})


# Reading


@pytest.mark.parametrize("path", ["/etc/shadow", "/etc/passwd", "/var", "/sys", "/run", "/dev/zero", "/dev/mem"])
def test_the_hosts_files_are_not_there(arena: Arena, path: str) -> None:
    ending = arena.run("import os, sys; print(os.listdir(sys.argv[1]) or open(sys.argv[1]).read())", path)
    assert last_line(ending).startswith("FileNotFoundError")


HOST_FACTS = [
    *("/proc/loadavg", "/proc/meminfo", "/proc/interrupts", "/proc/sys/kernel/random/boot_id", "/proc/stat"),
    *("/proc/sys/fs/file-nr", "/proc/sys/fs/inode-state", "/proc/sys/fs/dentry-state", "/proc/sys/kernel/ns_last_pid"),
    *("/proc/uptime", "/proc/vmstat", "/proc/cmdline", "/proc/diskstats", "/proc/pressure/cpu", "/proc/kallsyms"),
]
OF_PROCESSES = [
    *("/proc/self/mountinfo", "/proc/mounts", "/proc/1/mountinfo", "/proc/self/cgroup", "/proc/thread-self/mountinfo"),
    *("/proc/self/task/1/mounts", "/proc/self/fd/../mountinfo", "/proc/self/cwd/../proc/self/mountinfo"),
]


def reads(arena: Arena, paths: list[str]) -> list[str]:
    """Return which files a program and a process that it starts can read, and which of them can be made readable."""
    ending = arena.run(
        """
        import os, subprocess, sys
        for path in sys.argv[1:]:
            for attempt in (lambda: os.chmod(path, 0o777), lambda: os.unlink(path), lambda: open(path, "rb").read(1)):
                try:
                    attempt()
                    print(path, file=sys.stderr)
                except OSError:
                    pass
        subprocess.run(["head", "-qc1", *sys.argv[1:]], stdout=sys.stderr, stderr=subprocess.DEVNULL)
        """,
        *paths,
    )
    assert ending.code == 0
    return ending.stderr_tail.split()


def test_the_hosts_load_and_hardware_are_hidden(arena: Arena) -> None:
    assert reads(arena, HOST_FACTS) == []


def landlock() -> int:
    """Return the version of the kernel's Landlock, -1 without."""
    return int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))


@pytest.mark.skipif(landlock() < 2, reason="the kernel has no Landlock (Linux 5.19), or has it switched off")
def test_the_hosts_mounts_are_hidden(arena: Arena) -> None:
    assert reads(arena, OF_PROCESSES) == []


def test_what_libraries_look_for_in_proc_is_there(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, subprocess, sys, tempfile
        assert open("/proc/cpuinfo").read() and open("/proc/sys/vm/overcommit_memory").read()
        assert os.readlink("/proc/self/exe") and os.listdir("/proc/self/fd")
        assert subprocess.run(["bash", "-c", "cat <(echo piped)"], capture_output=True).stdout == b"piped\\n"
        os.mkdir("/tmp/folder")
        open("/tmp/file", "w").close()
        os.rename("/tmp/file", "/tmp/folder/file")
        """
    )
    assert ending == ExitStatus(0, None, "")


def test_another_submission_is_not_there(arena: Arena) -> None:
    ending = arena.run(
        """
        import pathlib, sys
        for path in (sys.argv[1], "../other/main.py", "/proc/self/cwd/../other/main.py", "/proc/1/cwd/" + sys.argv[1]):
            try:
                print("READ", pathlib.Path(path).read_text(), file=sys.stderr)
            except OSError as error:
                print(type(error).__name__, file=sys.stderr)
        """,
        arena.other,
    )
    assert "READ" not in ending.stderr_tail
    assert ending.stderr_tail.split()[:3] == ["FileNotFoundError"] * 3


@pytest.mark.parametrize("target", ["/etc/passwd", "HOST/secret.txt", "../../secret.txt", "/proc/1/root/etc/passwd"])
def test_a_link_out_of_the_folder_leads_nowhere(arena: Arena, target: str) -> None:
    (arena.root / "secret.txt").write_text("the organiser's secret")
    (arena.folder / "link").symlink_to(target.replace("HOST", str(arena.root)))
    ending = arena.run("print(open('link').read())")
    assert last_line(ending).startswith(("FileNotFoundError", "PermissionError"))


def test_a_link_to_the_root_shows_the_sandboxs_root(arena: Arena) -> None:
    (arena.folder / "link").symlink_to("/")
    ending = arena.run("import os, sys; print(*sorted(os.listdir('link')), file=sys.stderr)")
    top = {Path(sys.prefix).parts[1], Path(sys.base_prefix).parts[1]}
    expected = {"dev", "etc", "proc", "submission", "tmp", "usr"} | top
    assert set(ending.stderr_tail.split()) - {"bin", "sbin", "lib", "lib32", "lib64", "libx32"} == expected


@pytest.mark.skipif(sys.prefix == "/usr", reason="the interpreter is the system's")
def test_the_folder_of_the_interpreter_shows_nothing_beside_it(arena: Arena) -> None:
    beside = Path(sys.prefix).parent
    ending = arena.run("import os, sys; print(*os.listdir(sys.argv[1]), file=sys.stderr)", beside)
    assert ending.stderr_tail.split() == [Path(sys.prefix).name]


def test_the_environment_holds_no_secret(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    ending = arena.run(
        """
        import os, pathlib, sys
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            for name in ("environ", "cmdline"):
                try:
                    print((process / name).read_bytes(), file=sys.stderr)
                except OSError as error:
                    print(error, file=sys.stderr)
        print(*os.environ, file=sys.stderr)
        """
    )
    assert "sk-secret" not in ending.stderr_tail
    assert "OPENAI_API_KEY" not in ending.stderr_tail
    assert {"PATH", "HOME", "LANG"} <= set(last_line(ending).split())


def test_process_1_is_the_sandboxs_own(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, sys
        print(*sorted(int(name) for name in os.listdir("/proc") if name.isdigit()), file=sys.stderr)
        for path in ("/proc/1/root/etc/shadow", "/proc/1/mem", "/proc/kcore"):
            try:
                print("READ", open(path, "rb").read(1), file=sys.stderr)
            except OSError:
                pass
        """
    )
    assert ending.stderr_tail == "1 2\n"


def test_inherited_descriptors_are_those_given(arena: Arena) -> None:
    secret, given = os.open(arena.other, os.O_RDONLY), os.open(arena.other, os.O_RDONLY)
    os.set_inheritable(secret, True)
    ending = arena.run(
        """
        import os, sys
        open_ones = []
        for descriptor in range(3, 1000):
            try:
                os.fstat(descriptor)
            except OSError:
                continue
            open_ones.append(descriptor)
        print(len(open_ones), int(sys.argv[1]) in open_ones, int(sys.argv[2]) in open_ones, file=sys.stderr)
        """,
        secret,
        given,
        descriptors=(given,),
    )
    os.close(secret)
    os.close(given)
    assert ending.stderr_tail == "2 False True\n"  # the other one is the test's own


# Writing


def test_nothing_can_be_written_but_what_is_gone_afterwards(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, pathlib, sys
        for folder in ("/", "/submission", "/usr", "/usr/bin", "/etc", "/dev", "/proc", sys.prefix, sys.base_prefix,
                       sys.argv[1], "/tmp", os.path.expanduser("~"), "/dev/shm"):
            try:
                (pathlib.Path(folder) / "marker").write_text("x")
                print("WROTE", folder, file=sys.stderr)
            except OSError as error:
                pass
        """,
        arena.root,
    )
    written = ["WROTE", "/submission", "WROTE", "/tmp", "WROTE", "/tmp", "WROTE", "/dev/shm"]  # noqa: S108
    assert ending.stderr_tail.split() == written
    assert list(arena.folder.iterdir()) == [arena.folder / "main.py"]


def test_a_run_sees_nothing_of_the_run_before(arena: Arena) -> None:
    arena.run("open('/tmp/note', 'w').write('to my next trial'); open('log.txt', 'w').write('the same')")
    ending = arena.run("import os, sys; print(os.listdir('/tmp'), os.listdir(), file=sys.stderr)")
    assert ending.stderr_tail == f"{shown_in_tmp()} ['main.py']\n"


def test_a_programs_own_files_cannot_be_changed(arena: Arena) -> None:
    (arena.folder / "prompts").mkdir()
    (arena.folder / "prompts" / "ask.txt").write_text("Build <OBJECT>.")
    ending = arena.run(
        """
        import os, sys
        attempts = {
            "write": lambda: open("main.py", "w"), "append": lambda: open("prompts/ask.txt", "a"),
            "remove": lambda: os.remove("main.py"), "replace": lambda: os.rename("main.py", "other.py"),
            "add": lambda: open("prompts/more.txt", "w"), "move": lambda: os.rename("prompts", "others"),
            "chmod": lambda: os.chmod("prompts/ask.txt", 0o777),
        }
        for name, attempt in attempts.items():
            try:
                attempt()
                print("DID", name, file=sys.stderr)
            except OSError:
                pass
        """
    )
    assert ending.stderr_tail == ""
    assert (arena.folder / "prompts" / "ask.txt").read_text() == "Build <OBJECT>."


def test_the_programs_folder_cannot_be_filled(arena: Arena) -> None:
    ending = arena.run(
        """
        import sys
        try:
            for number in range(100):
                with open(f"{number}.bin", "wb") as file:
                    file.write(bytes(1_000_000))
        except OSError as error:
            print(error.strerror, number < 99, file=sys.stderr)
        """
    )
    assert ending.stderr_tail == "No space left on device True\n"


def test_the_kernels_settings_cannot_be_written(arena: Arena) -> None:
    ending = arena.run("open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/x')")
    assert last_line(ending).startswith(("PermissionError", "OSError"))


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize.py", "hostile.pth", "hostile-nspkg.pth"])
def test_start_up_files_run_inside_if_at_all(arena: Arena, name: str) -> None:
    (arena.folder / name).write_text(f"import pathlib; pathlib.Path({str(arena.marker)!r}).write_text('x')\n")
    assert arena.run("print('fine')").code == 0


@pytest.mark.parametrize("name", ["bwrap", "choom", "prlimit", "setpriv"])
def test_commands_beside_the_interpreter_do_not_replace_ours(arena: Arena, tmp_path: Path, name: str) -> None:
    """A wheel may bring commands along; those that start a program are not looked for among them."""
    programs = tmp_path / "environment" / "bin"
    programs.mkdir(parents=True)
    (programs.parent / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (programs / "python").symlink_to("/bin/sh")
    (programs / name).write_text("#!/bin/sh\necho hostile >&2\n")
    (programs / name).chmod(0o755)
    command = [str(programs / "python"), "-c", f"echo honest >&2; {name}"]
    ending = arena.sandbox.start(command, folder=arena.folder).wait(SECONDS)
    assert ending == ExitStatus(0, None, "honest\nhostile\n")  # the program itself may use its own


def test_a_pickle_that_runs_code_runs_it_inside(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, pickle, sys

        class Hostile:
            def __reduce__(self):
                return os.system, (f"touch {sys.argv[1]}; cat /etc/shadow; echo ran >&2",)

        pickle.loads(pickle.dumps(Hostile()))
        """,
        arena.marker,
    )
    assert "cat: /etc/shadow: No such file" in ending.stderr_tail
    assert last_line(ending) == "ran"


# The network


def test_a_server_on_the_host_is_not_reached(arena: Arena) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ending = arena.run(
            "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), timeout=5)",
            server.getsockname()[1],
        )
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert last_line(ending).startswith("ConnectionRefusedError")


def test_an_abstract_socket_of_the_host_is_not_reached(arena: Arena) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"\0pcgeval-{os.getpid()}")
        server.listen()
        ending = arena.run(
            "import socket, sys; socket.socket(socket.AF_UNIX).connect(chr(0) + sys.argv[1])", f"pcgeval-{os.getpid()}"
        )
    assert last_line(ending).startswith("ConnectionRefusedError")


@pytest.mark.parametrize(
    ("source", "stopped_by"),
    [
        ("socket.create_connection(('192.0.2.1', 80), timeout=5)", "OSError: [Errno 101]"),
        ("socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 53))", "OSError: [Errno 101]"),
        ("socket.getaddrinfo('example.org', 80)", "socket.gaierror"),
        ("socket.socket(socket.AF_VSOCK)", "OSError: [Errno 97]"),
        ("socket.socket(socket.AF_NETLINK)", "OSError: [Errno 97]"),
        ("socket.socket(socket.AF_PACKET, socket.SOCK_RAW)", "OSError: [Errno 97]"),
        ("socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)", "PermissionError"),
    ],
)
def test_nothing_is_reached_beyond_the_host(arena: Arena, source: str, stopped_by: str) -> None:
    assert last_line(arena.run(f"import socket\n{source}")).startswith(stopped_by)


# Using things up


def test_a_fork_bomb_reaches_the_limit_on_processes(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, sys
        while True:
            try:
                os.fork()
            except OSError as error:
                os.write(2, f"{error.errno}\\n".encode())
        """,
        seconds=1.5,
    )
    assert ending.reason in ("was stopped after 1.5 s", "printed more than 4 MB")
    assert set(ending.stderr_tail.split()) <= {"11", "1", ""}  # EAGAIN; the tail may begin within a line


def test_threads_count_as_processes(arena: Arena) -> None:
    ending = arena.run(
        "import threading, time\nfor _ in range(100): threading.Thread(target=time.sleep, args=(1,)).start()"
    )
    assert "can't start new thread" in ending.stderr_tail


def test_50_gigabytes_are_refused(arena: Arena) -> None:
    assert last_line(arena.run("bytearray(50_000_000_000)")) == "MemoryError"


def test_memory_piled_up_bit_by_bit_is_seen(arena: Arena) -> None:
    ending = arena.run("pile = []\nwhile True: pile.append(bytearray(b'x' * 1_000_000))")
    assert ending == ExitStatus(None, "used more than 200 MB of memory", "")


def test_memory_of_several_processes_adds_up(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, time
        for _ in range(10):
            if os.fork() == 0:
                pile = bytearray(os.urandom(1_000_000)) * 40
                time.sleep(60)
        time.sleep(60)
        """
    )
    assert ending.reason == "used more than 200 MB of memory"


def test_memory_that_processes_share_counts_once(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, time
        pile = bytearray(os.urandom(1_000_000)) * 80
        for _ in range(5):
            if os.fork() == 0:
                time.sleep(0.5)
                os._exit(0)
        time.sleep(0.6)
        """
    )
    assert ending == ExitStatus(0, None, "")


@pytest.mark.parametrize(
    "source",
    [
        "import mmap; mmap.mmap(-1, 10_000_000)",
        "import os; os.memfd_create('hidden')",
        "open('/dev/zero')",
        """
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.shmget(1, 10_000_000, 0o1600) < 0:
            raise OSError(ctypes.get_errno(), '')
        """,
    ],
)
def test_there_is_no_memory_that_the_watch_would_not_see(arena: Arena, source: str) -> None:
    assert last_line(arena.run(source)).startswith(("PermissionError", "FileNotFoundError"))


def test_an_endless_loop_is_stopped(arena: Arena) -> None:
    assert arena.run("while True: pass", seconds=0.7) == ExitStatus(None, "was stopped after 0.7 s", "")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_stopped(arena: Arena, stream: str) -> None:
    ending = arena.run(f"import sys\nwhile True: sys.{stream}.write('x' * 10_000)")
    assert ending.reason == "printed more than 4 MB"
    assert len(ending.stderr_tail) in (0, 8_000)


def test_a_file_and_all_files_together_are_limited(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, sys
        written, number = 0, 0
        for number in range(10):
            try:
                with open(f"/tmp/{number}", "wb", buffering=0) as file:
                    while True:
                        written += file.write(b"x" * 100_000)
            except OSError as error:
                print(error.errno, file=sys.stderr)
        print(written, file=sys.stderr)
        """
    )
    *errors, written = ending.stderr_tail.split()
    assert errors[0] == "27"  # EFBIG
    assert errors[-1] == "28"  # ENOSPC
    assert 12_000_000 <= int(written) <= 17_000_000


def test_empty_files_are_counted(arena: Arena) -> None:
    ending = arena.run("import os, itertools\nfor n in itertools.count(): os.mknod(f'/tmp/{n}')")
    assert ending.reason == "made more than 50000 files"


def test_a_daemon_ends_with_its_program(arena: Arena) -> None:
    ending = arena.run(
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
        """
    )
    assert ending.code == 0


def test_a_program_that_closes_everything_is_still_waited_for(arena: Arena) -> None:
    ending = arena.run("import os, time\nos.closerange(0, 64)\ntime.sleep(0.3)\nos._exit(7)")
    assert ending.code == 7


def test_a_program_that_closes_its_pipe_ends_nothing_but_itself(arena: Arena) -> None:
    broker, program = os.pipe()
    ending = arena.run("import os, sys\nos.close(int(sys.argv[1]))", program, descriptors=(program,))
    os.close(program)
    assert os.read(broker, 1) == b""
    os.close(broker)
    assert ending.code == 0


# Other processes


@pytest.mark.parametrize("target", ["os.getppid()", "1", "0", "-1", "int(sys.argv[1])"])
def test_signals_reach_the_programs_own_processes_only(arena: Arena, target: str) -> None:
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


def test_process_1_can_at_most_be_brought_down(arena: Arena) -> None:
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


SYSTEM_CALLS = """
    import ctypes, os, sys
    libc = ctypes.CDLL(None, use_errno=True)
    def call(name, *arguments):
        result = getattr(libc, name)(*arguments)
        print(name, os.strerror(ctypes.get_errno()) if result < 0 else "WORKED", file=sys.stderr)
"""


@pytest.mark.parametrize(
    "call",
    [
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
        "'perf_event_open', 0, 0, -1, -1, 0",
    ],
)
def test_system_calls_out_of_the_sandbox_are_denied(arena: Arena, call: str) -> None:
    name = call.split("'")[1]
    ending = arena.run(dedent(SYSTEM_CALLS) + f"if hasattr(libc, '{name}'): call({call})\nelse: print('{name} none')")
    assert ending.stderr_tail in (f"{name} Operation not permitted\n", "")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="calls by their numbers on x86-64")
@pytest.mark.parametrize(
    ("call", "answer"),
    [
        ("321, 0, 0, 0", "Operation not permitted"),  # bpf
        ("323, 0", "Operation not permitted"),  # userfaultfd
        ("425, 1, 0", "Operation not permitted"),  # io_uring_setup
        ("250, 0, 0, 0", "Operation not permitted"),  # keyctl
        ("56, 0x10000011, 0, 0, 0, 0", "Operation not permitted"),  # clone with a new user namespace
        ("435, 0, 0", "Function not implemented"),  # clone3
        ("0x40000000 + 101, 0, 0, 0, 0", "Function not implemented"),  # ptrace by its x32 number
        ("39", "WORKED"),  # getpid
    ],
)
def test_system_calls_by_number(arena: Arena, call: str, answer: str) -> None:
    assert arena.run(dedent(SYSTEM_CALLS) + f"call('syscall', {call})").stderr_tail == f"syscall {answer}\n"


def test_there_is_no_right_to_use_or_to_gain(arena: Arena) -> None:
    ending = arena.run(
        """
        import ctypes, os, subprocess, sys
        libc = ctypes.CDLL(None)
        version, rights = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
        assert libc.capget(version, rights) == 0
        ambient = sum(libc.prctl(47, 1, right, 0, 0) == 1 for right in range(64))
        print(*rights, ambient, file=sys.stderr)
        print(libc.prctl(39, 0, 0, 0, 0), libc.prctl(21), os.getuid() != 0, file=sys.stderr)  # no new rights; filter
        print(subprocess.run(["/usr/bin/su", "-c", "id"], capture_output=True).returncode != 0, file=sys.stderr)
        for change in (os.setuid, os.setgid):
            try:
                change(0)
                print("BECAME root", file=sys.stderr)
            except OSError:
                pass
        """
    )
    assert ending.stderr_tail.splitlines() == ["0 0 0 0 0 0 0", "1 2 True", "True"]


def test_there_is_no_terminal_to_type_into(arena: Arena) -> None:
    assert last_line(arena.run("open('/dev/tty')")).startswith("FileNotFoundError")
