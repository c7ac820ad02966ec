"""An agent's folders and commands: what stays, what ends, what it is shown, and what it cannot reach."""

import os
import shutil
import socket
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pcgeval.rl.attempt import MAX_COMMAND_BYTES, command_sandbox, prepare_attempt, run_command
from pcgeval.rubric.papers import load_paper
from pcgeval.sandbox.reproduction import MIN_FREE_BYTES
from pcgeval.sandbox.sandbox import SandboxError

pytestmark = pytest.mark.needs_sandbox
NOT_RUN = f"[the command was not run: give one without NUL and of at most {MAX_COMMAND_BYTES} bytes]"
OK = "[exit code 0]"
PAPERS = Path(__file__).parents[2] / "data" / "papers"


@pytest.fixture
def attempt(tmp_path: Path) -> Path:
    usual = os.umask(0o077)  # root runs commands as another user, whatever the umask
    prepare_attempt(load_paper(PAPERS, "block-letters"), tmp_path / "attempt")
    os.umask(usual)
    return tmp_path / "attempt"


@pytest.fixture
def shell(attempt):
    sandbox = command_sandbox()

    def run(command: str, seconds: float = 20) -> str:
        return run_command(sandbox, attempt, command, seconds, max_bytes=2_000_000)

    return run


def test_the_agent_can_read_the_paper_but_not_the_rubric_or_the_judges_addendum(shell, attempt):
    assert shell("cat ../paper/blacklist.txt") == f"https://example.org/block-letters\n{OK}"
    assert shell("echo x > ../paper/new").endswith("[exit code 1]")
    assert {path.name for path in (attempt / "paper").iterdir()} == {"paper.md", "addendum.md", "blacklist.txt"}
    assert "Which Block Letters Stand?" in (attempt / "paper/paper.md").read_text()


def test_files_stay_and_all_else_ends_with_the_command(shell, attempt):
    assert shell("echo one > kept; mkdir d; cd d; X=1; export X; sleep 60 & echo started") == f"started\n{OK}"
    assert shell("cat kept; pwd; echo [$X]; ls") == f"one\n{attempt}/work\n[]\nd\nkept\n{OK}"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo hi; exit 3", "hi\n[exit code 3]"),
        ("echo before; sleep 60", "before\n[the command was stopped after 1 s]"),
        (r"printf 'a\xff\xfeb'", "a\ufffd\ufffdb\n[exit code 0]"),
        ("echo a\ud800", "a\ufffd\n[exit code 0]"),
        ("echo " + "x" * MAX_COMMAND_BYTES, NOT_RUN),
    ],
)
def test_the_agent_reads_what_was_printed_and_how_it_ended(shell, command, text):
    assert shell(command, seconds=1 if "sleep" in command else 20) == text


def test_neither_network_nor_this_machine_is_seen(shell, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert "Connection refused" in shell(f"exec 9<> /dev/tcp/127.0.0.1/{server.getsockname()[1]}")
    (tmp_path / "secret").write_text("secret")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    assert shell(f"ls {tmp_path}") == f"attempt\n{OK}"
    assert "a-key" not in shell("env; cat /proc/*/environ")
    assert shell(f"cat {tmp_path}/secret {Path(__file__)}").endswith("[exit code 1]")


def test_a_folder_that_grows_too_large_ends_it_but_can_be_cleared(shell):
    command = "for i in $(seq 90); do head -c 500000 /dev/urandom > f$i; sleep 0.1; done"
    assert shell(command) == "[the command made more than 20000 files or 2 MB]"
    assert shell("sleep 1; rm f*; ls") == OK


def test_a_command_that_fills_the_disk_with_files_without_a_name_is_stopped(shell, attempt, monkeypatch):
    """The host's disk seems to be filling once the command has begun to hold a file that it has removed."""
    full = attempt / "paper" / "full"

    def disk_usage(_):
        return SimpleNamespace(free=MIN_FREE_BYTES - full.exists())

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    threading.Timer(1, full.touch).start()
    text = shell("exec 3> hole; rm hole; while true; do printf %9999s >&3; sleep 0.1; done", seconds=60)
    assert text == "[the command left less than 200 MB of the disk free]"
    with pytest.raises(SandboxError, match="Make room there"):
        shell("echo never")
