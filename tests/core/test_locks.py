"""Two runs at once on the same folder exclude each other; a lock vanishes with its process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pcgeval.core.locks import FolderBusyError, lock_folder, lock_holder

HOLD = """
import sys
from pathlib import Path
from pcgeval.core.locks import lock_folder
with lock_folder(Path("data/raw/m/alpha"), Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(lock: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_other_process_is_named_and_its_lock_vanishes_with_it(tmp_path: Path):
    lock = tmp_path / "locks" / "alpha.lock"
    other = holder(lock)
    named = pytest.raises(FolderBusyError, match=rf"data/raw/m/alpha: process {other.pid} .*kill {other.pid}")
    with named, lock_folder(Path("data/raw/m/alpha"), lock):
        pytest.fail("both hold the lock")
    other.send_signal(signal.SIGKILL)
    other.communicate()
    with lock_folder(Path("data/raw/m/alpha"), lock):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_the_number_of_a_killed_process_that_another_one_has_now_is_no_holder(tmp_path: Path):
    lock = tmp_path / "alpha.lock"
    with lock_folder(Path("a"), lock):
        process, _ = lock_holder(lock) or (None, None)
        assert process == os.getpid()
        os.utime(lock, (0, 0))  # as one that was written before this process began
        assert lock_holder(lock) is None
    assert lock_holder(lock) is None


def test_a_lock_is_not_inherited_by_what_is_started(tmp_path: Path):
    """A program that outlives its run must not keep the next run out."""
    lock = tmp_path / "alpha.lock"
    with lock_folder(Path("a"), lock):
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    with lock_folder(Path("a"), lock):
        pass
    child.communicate()
