"""Running reproduce.sh: what comes back of honest, broken and hostile submissions."""

import errno
import os
import shutil
import socket
import stat
import sys
import tempfile
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any
from unittest.mock import Mock

import pytest

from pcgeval.sandbox.reproduction import KEPT_LOG_BYTES, DiskLimits, SandboxComputer
from pcgeval.sandbox.sandbox import SandboxError
from pcgeval.submissions.load import CREATION_TIME, REPRODUCE_LOG, ReproductionRun

pytestmark = pytest.mark.needs_sandbox
DISK = DiskLimits(total_bytes=20_000_000, files=500)


@pytest.fixture
def submission(tmp_path: Path) -> Path:
    folder = tmp_path / "submission"
    folder.mkdir()
    return folder


def reproduce(submission: Path, script: str | None = None, into: str = "into", **options: Any) -> ReproductionRun:
    """Run a submission with a script whose lines may be indented."""
    if script is not None:
        (submission / "reproduce.sh").write_text(dedent(script))
    computer = SandboxComputer(**{"seconds": 20, "memory_bytes": 300_000_000, "disk": DISK, **options})
    return computer.reproduce(submission, submission.parent / into)


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


# Honest submissions


def test_what_it_prints_and_writes_comes_back_and_the_submission_stays(submission, request):
    for name in ("old", "touched", "from-the-future", REPRODUCE_LOG, CREATION_TIME):
        (submission / name).write_text("7")
    os.utime(submission / "from-the-future", (4e9, 4e9))
    (submission / "tool").write_text("#!/bin/sh\necho tool ran")
    (submission / "tool").chmod(0o4755)
    script = """
        pwd; ls -A; echo wrongly >&2; ./tool
        python3 -c 'import sys, numpy; print(sys.version_info[:2])'
        mkdir out; cat old > out/result.txt; echo y > touched; exit 3
    """
    request.addfinalizer(partial(os.umask, os.umask(0o077)))  # root runs it as another user, whatever the umask
    run = reproduce(submission, script)
    given = ["from-the-future", "old", "reproduce.sh", "tool", "touched"]  # the log of another run is not there
    printed = ["/submission", *given, "wrongly", "tool ran", str(sys.version_info[:2])]
    assert run.log.splitlines() == [*printed, "[pcgeval] reproduce.sh ended with exit code 3"]
    assert (run.exit_code, run.reason, run.folder) == (3, None, submission.parent / "into")
    assert names(run.folder) == sorted([*given, "out", "out/result.txt", REPRODUCE_LOG, CREATION_TIME])
    assert (run.folder / "out" / "result.txt").read_text() == "7"
    assert stat.S_IMODE((run.folder / "tool").stat().st_mode) == 0o755
    assert names(submission) == sorted([*given, REPRODUCE_LOG, CREATION_TIME])
    # the log says when it ran, and all that the run wrote is as new as it
    first, *between, last = (run.folder / REPRODUCE_LOG).read_text().splitlines()
    assert first.startswith("[pcgeval] reproduce.sh started at 20")
    assert between == run.log.splitlines()
    assert last.startswith("[pcgeval] after ")
    new = {path.name for path in run.folder.rglob("*") if path.stat().st_mtime >= run.started_at}
    assert new == {"touched", "out", "result.txt", REPRODUCE_LOG, CREATION_TIME}
    assert (run.folder / REPRODUCE_LOG).stat().st_mtime == run.started_at
    in_seconds = int((run.folder / CREATION_TIME).read_text())  # as PaperBench keeps it
    assert (run.folder / "old").stat().st_mtime < in_seconds <= run.started_at < in_seconds + 1


def test_there_is_no_network_unless_it_is_asked_for(submission):
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5)"
        closed = reproduce(submission, f'python3 -c "{source}"', "closed")
        opened = reproduce(submission, None, "open", network=True)
    assert (closed.exit_code, opened.exit_code) == (1, 0)
    assert "the network was open" in opened.log
    assert "the network" not in closed.log


def test_where_submissions_are_trusted_it_runs_without_a_sandbox(submission, monkeypatch):
    monkeypatch.setenv("PCGEVAL_NO_SANDBOX", "1")
    script = "pwd; python3 --version; echo 1 > new; setsid sleep 9 & exit 4"
    run = reproduce(submission, script, trust_programs=True)
    assert run.exit_code == 4
    assert "\n/submission\nPython 3" in run.log
    assert "without a sandbox" in run.log
    assert (run.folder / "new").stat().st_mtime >= run.started_at


# Broken submissions

MISSING = "was not started: reproduce.sh is missing or no file"


@pytest.mark.parametrize(
    ("script", "code", "reason", "printed", "told"),
    [
        ("", 0, None, "", "ended with exit code 0"),
        ("printf '\\377\\000end'", 0, None, "\ufffd\x00end\n", "ended with exit code 0"),
        ("kill -SEGV $$", 139, "was ended by SIGSEGV", "", "ended with exit code 139 (was ended by SIGSEGV)"),
        ("echo begun; sleep 60; echo late", None, "was stopped after 2 s", "begun\n", "was stopped after 2 s"),
        ("(sleep 1; echo late) & setsid sleep 50 & echo done", 0, None, "done\n", "ended with exit code 0"),
        (None, None, MISSING, "", MISSING),
    ],
)
def test_endings(submission, script, code, reason, printed, told):
    run = reproduce(submission, script, seconds=2 if reason == "was stopped after 2 s" else 20)
    assert (run.exit_code, run.reason, run.log) == (code, reason, f"{printed}[pcgeval] reproduce.sh {told}\n")


FILL = "i=0; while true; do i=$((i+1)); {}; done"


@pytest.mark.parametrize(
    "script", [FILL.format(": > file$i"), f"mkdir d; cd d; {FILL.format('yes | head -c 1000000 > file$i')}"]
)
def test_a_run_that_fills_the_disk_is_stopped(submission, script):
    run = reproduce(submission, script, seconds=60)
    assert (run.exit_code, run.reason) == (None, "made more than 500 files or 20 MB")
    assert sum(path.is_file() for path in run.folder.rglob("*")) <= DISK.files + 2  # the log and its time
    assert sum(path.stat().st_size for path in run.folder.rglob("*")) < DISK.total_bytes + 3 * KEPT_LOG_BYTES


def test_what_cannot_be_used_is_refused(submission):
    with pytest.raises(SandboxError, match="has files"):
        reproduce(submission, "", into=".")
    with pytest.raises(SandboxError, match="not a folder"):
        reproduce(submission / "missing")


@pytest.mark.parametrize(("number", "is_ours"), [(errno.ENOSPC, True), (errno.EACCES, False)])
def test_a_fault_of_ours_is_not_put_down_to_the_submission(submission, monkeypatch, number, is_ours):
    monkeypatch.setattr(shutil, "copyfile", Mock(side_effect=OSError(number, os.strerror(number))))
    if is_ours:
        with pytest.raises(SandboxError, match=r"^a copy of the submission cannot be made: .+ Make room .+ run again"):
            reproduce(submission, "true")
    else:
        assert "'reproduce.sh' (cannot be copied: Permission denied)" in reproduce(submission, "true").log


# Hostile submissions


def test_links_out_are_left_out_and_links_to_files_inside_become_files(submission):
    (submission.parent / "secret").write_text("secret")
    (submission / "inside").write_text("inside")
    (submission / "folder").mkdir()
    for name, target in {
        "absolute": submission.parent / "secret",
        "relative": "../secret",
        "in-and-out": "folder/../../secret",
        "to-folder": "folder",
        "loop": "loop",
        "dangling": "nothing",
        "good": "folder/../inside",
    }.items():
        (submission / name).symlink_to(target)
    os.mkfifo(submission / "fifo")
    run = reproduce(submission, "cat *; ls")
    assert "secret" not in run.log.replace("'", "")
    assert names(run.folder) == ["folder", "good", "inside", REPRODUCE_LOG, CREATION_TIME, "reproduce.sh"]
    assert ((run.folder / "good").read_text(), (run.folder / "good").is_symlink()) == ("inside", False)
    first = run.log.splitlines()[0]
    assert first.startswith("[pcgeval] left out before the run: 'absolute' (no file, or a link")
    assert all(f"'{name}'" in first for name in ("relative", "in-and-out", "to-folder", "loop", "dangling"))


def test_a_run_changes_nothing_beside_its_folder_and_leaves_readable_files_alone(submission):
    secret = submission.parent / "secret"
    secret.write_text("secret words")
    script = f"""
        cat {secret}; ls -A "$PWD/.."; touch "$PWD/../beside"; touch /usr/x; echo > {secret}
        ln -s {secret} results.json; ln -s /etc folder; ln -s ../../../../../../etc/passwd {REPRODUCE_LOG}; mkfifo pipe
        echo good > file; ln file hard; echo 1 > $'b\\xff\\nb'; echo 2 > $'\\e[2J'; ln -s / $'l\\n\\xff'
        truncate -s 19M sparse; truncate -s 15M sparse2
        mkdir d; echo 1 > d/a; echo 2 > b; echo 3 > s; chmod 6777 s; chmod 000 b d/a d reproduce.sh . || true
    """
    run = reproduce(submission, script)
    assert (run.exit_code, secret.read_text(), "secret words" in run.log) == (0, "secret words", False)
    assert run.log.splitlines()[1] == "work"
    assert run.log.count("Permission denied") + run.log.count("Read-only") == 2
    strange = ["\x1b[2J", "b", "b\udcff\nb"]
    logs = [REPRODUCE_LOG, CREATION_TIME]
    assert names(run.folder) == [*strange, "d", "d/a", "file", "hard", *logs, "reproduce.sh", "s", "sparse"]
    for path in (run.folder, *run.folder.rglob("*")):
        assert (path.is_symlink(), path.stat().st_uid) == (False, os.geteuid())
        assert stat.S_IMODE(path.stat().st_mode) in (0o755, 0o644)
    assert (run.folder / "d" / "a").read_text() == "1\n"
    for left_out in ("left out after the run: 'folder'", "'l\\n\\udcff'", "'sparse2' (too large)"):
        assert left_out in run.log


def test_a_huge_result_leaves_out_itself_and_no_code(submission):
    run = reproduce(submission, f"echo 1 > result.csv; truncate -s {DISK.total_bytes} a-checkpoint.pt")
    assert {"result.csv", "reproduce.sh"} <= {*names(run.folder)}
    assert "'a-checkpoint.pt' (too large)" in run.log


@pytest.mark.parametrize(("files", "size"), [(1, 10**12), (DISK.files + 1, 0)])
def test_a_submission_that_is_too_large_is_not_started(submission, files, size):
    for number in range(files):
        with (submission / f"{number}").open("wb") as file:
            file.truncate(size)
    run = reproduce(submission, "echo ran")
    assert (run.exit_code, run.reason) == (None, "was not started: the submission has more than 500 files or 20 MB")
    assert "too large" in run.log or "more than 500 entries" in run.log
    assert "ran" not in run.log.splitlines()


def test_folders_in_folders_without_end(submission):
    script = "for i in $(seq 400); do mkdir d && cd d; done; echo deep > file"
    run = reproduce(submission, script, seconds=200)
    assert run.exit_code == 0
    assert "lies deeper than 64 folders" in run.log
    assert not [*Path(tempfile.gettempdir()).glob("pcgeval-reproduction-*")]  # all of it was removed
