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


def test_another_process_is_named_and_its_lock_vanishes_with_it(tmp_path: Path) -> None:
    lock = tmp_path / "locks" / "alpha.lock"
    other = subprocess.Popen([sys.executable, "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    named = pytest.raises(FolderBusyError, match=rf"data/raw/m/alpha: process {other.pid} .*kill {other.pid}")
    with named, lock_folder(Path("data/raw/m/alpha"), lock):
        pytest.fail("both hold the lock")
    other.send_signal(signal.SIGKILL)
    other.communicate()
    with lock_folder(Path("data/raw/m/alpha"), lock):
        assert lock.read_text() == f"{os.getpid()}\n"


def test_only_the_process_that_took_the_lock_holds_it(tmp_path: Path) -> None:
    lock = tmp_path / "alpha.lock"
    with lock_folder(Path("a"), lock):
        process, _ = lock_holder(lock) or (None, None)
        assert process == os.getpid()
        os.utime(lock, (0, 0))  # the number of a killed process, which a younger one has now
        assert lock_holder(lock) is None
        child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert lock_holder(lock) is None
    with lock_folder(Path("a"), lock):  # a program that outlives its run does not inherit the lock
        child.communicate()
