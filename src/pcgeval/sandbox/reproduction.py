"""Run a submission's reproduce.sh in the sandbox, to see what it really reproduces.

The script runs on a copy, with limits on time, memory and disk, and without network unless the caller opens it. Its
results are not trusted either: the caller gets a second copy, of regular files within bounds and without links. The
sandbox itself limits only the size of each file, so the disk space and the number of files are watched from outside.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from pcgeval.core.text import listed
from pcgeval.core.untrusted import walk
from pcgeval.sandbox.bubblewrap import interpreter_paths
from pcgeval.sandbox.process import MEGABYTE, SUBMISSION, ExitStatus, ResourceLimits, SandboxedProcess, SandboxError
from pcgeval.sandbox.sandbox import open_sandbox
from pcgeval.submissions.load import CREATION_TIME, REPRODUCE_LOG, REPRODUCE_SCRIPT, ReproductionRun

MIN_FREE_BYTES = 200 * MEGABYTE  # of the disk
WATCH_SECONDS = 0.2  # between two looks at it
READING_SECONDS = 10.0  # to read the last output
KEPT_LOG_BYTES = 1 * MEGABYTE  # from the start and once more from the end
MAX_LOG_BYTES = 256 * MEGABYTE
MAX_FOLDERS = 64  # one within the other
SHOWN_NAMES = 20
_TOO_LARGE = "too large"
# the machine is to blame for these: a full disk or quota, a broken disk, too many open files
_MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)


@dataclass(frozen=True)
class DiskLimits:
    """The disk space and the number of files and folders that a program may use."""

    total_bytes: int = 2_000 * MEGABYTE
    files: int = 50_000

    def __str__(self) -> str:
        """Return the limits in words that follow "more than"."""
        return f"{self.files} files or {self.total_bytes / MEGABYTE:g} MB"


class SandboxComputer:
    """Run the reproduce.sh of submissions; python3 is the Python that pcgeval runs on, with its packages."""

    def __init__(
        self,
        *,
        seconds: float = 3_600,
        memory_bytes: int = 8_000 * MEGABYTE,
        disk: DiskLimits | None = None,
        network: bool = False,
        trust_programs: bool = False,
    ) -> None:
        """Open a sandbox with limits on the time, memory and disk of a run; a disk limit of None is the default.

        An open network lets a run fetch what it needs, and send out what it sees. Where there is no sandbox, trusted
        submissions run without one, with our rights and network.

        Raises:
            SandboxError: There is no sandbox here and submissions are not trusted.
        """
        self._seconds = seconds
        self._disk = disk or DiskLimits()
        limits = ResourceLimits(
            memory_bytes=memory_bytes,
            processes=256,
            file_bytes=self._disk.total_bytes,
            output_bytes=MAX_LOG_BYTES,
            kept_output_bytes=KEPT_LOG_BYTES,
        )
        self._sandbox = open_sandbox(limits, trust_programs, network=network)

    @property
    def identity(self) -> str:
        """The limits of a run and what is open to it."""
        limits = f"{self._seconds:g} s, {self._sandbox.limits.memory_bytes} bytes, {self._disk}"
        return f"{limits}, contained {self._sandbox.contained}, network {self._sandbox.network}"

    def reproduce(self, submission: Path, into: Path) -> ReproductionRun:
        """Run a submission's reproduce.sh on a copy of it.

        Args:
            submission: Its folder, which stays as it is.
            into: Where the copy goes after the run; a folder that is empty or does not exist yet.

        Raises:
            SandboxError: The submission is no folder, `into` has files, there is no sandbox, or no room.
        """
        if not submission.is_dir():
            raise SandboxError(f"{submission}: not a folder. Name the submission's folder.")
        into.mkdir(parents=True, exist_ok=True)
        if any(into.iterdir()):
            raise SandboxError(f"{into}: has files, which would be taken for results. Name another folder.")
        scratch = Path(tempfile.mkdtemp(prefix="pcgeval-reproduction-")).resolve()
        try:
            return self._reproduce(submission.resolve(), scratch, into)
        except OSError as error:
            raise SandboxError(
                f"a copy of the submission cannot be made: {error.strerror}. "
                f"Make room in {tempfile.gettempdir()} and for {into}, then run again."
            ) from error
        finally:
            _take_over(scratch)
            subprocess.run(["rm", "-rf", "--", str(scratch)], check=False, capture_output=True)  # however deep

    def _reproduce(self, submission: Path, scratch: Path, into: Path) -> ReproductionRun:
        (work := scratch / "work").mkdir(mode=0o755)
        started_at = work.stat().st_mtime_ns  # the time by the clock of the disk
        left_out = _copy(submission, work, self._disk, newest=started_at - 1_000_000_000)
        started = monotonic()
        if _TOO_LARGE in left_out.values() or _exceeds(submission, self._disk):
            status, printed = ExitStatus(None, f"was not started: the submission has more than {self._disk}", ""), ""
        elif not (work / REPRODUCE_SCRIPT).is_file():
            status, printed = ExitStatus(None, f"was not started: {REPRODUCE_SCRIPT} is missing or no file", ""), ""
        else:
            status, printed = self._run(work)
        seconds = monotonic() - started
        _take_over(work)
        log = _left_out_line("before the run", left_out) + printed.replace(str(work), SUBMISSION)
        if not self._sandbox.contained:
            log = f"[pcgeval] without a sandbox: network and files were open to it\n{log}"
        elif self._sandbox.network:
            log = f"[pcgeval] the network was open to it\n{log}"
        log += "" if log.endswith("\n") or not log else "\n"
        log += _left_out_line("after the run", _copy(work, into, self._disk))
        code = "" if status.code is None else f" ended with exit code {status.code}"
        why = "" if status.reason is None else f" ({status.reason})" if code else f" {status.reason}"
        log += f"[pcgeval] {REPRODUCE_SCRIPT}{code}{why}\n"
        # the file is as old as the start of the run, so that results are newer
        at = datetime.fromtimestamp(started_at // 1_000_000_000, UTC).isoformat()
        text = f"[pcgeval] {REPRODUCE_SCRIPT} started at {at}\n{log}[pcgeval] after {seconds:.1f} s\n"
        (into / REPRODUCE_LOG).write_bytes(text.encode("utf-8", errors="replace"))
        os.utime(into / REPRODUCE_LOG, ns=(started_at, started_at))
        # for PaperBench's judge, and for ours where the copy is graded later
        (into / CREATION_TIME).write_text(f"{started_at // 1_000_000_000}\n")
        # as other files' times are read: dividing the nanoseconds would round differently
        return ReproductionRun(into, log, status.code, status.reason, seconds, (into / REPRODUCE_LOG).stat().st_mtime)

    def _run(self, work: Path) -> tuple[ExitStatus, str]:
        """Run the script; return how it ended and what it printed."""
        check_room(work)
        (empty := work.parent / "empty").mkdir()
        empty.chmod(0o755)  # root runs the script as another user, whatever the umask
        python = Path(sys.executable)
        process = self._sandbox.start(
            ["bash", "-c", f'cd "$1" && exec bash {REPRODUCE_SCRIPT} 2>&1', "bash", str(work)],
            folder=empty,
            readable=tuple(interpreter_paths(python)),
            writable=(work,),
            environment={"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin"},
        )
        return wait_within(process, self._seconds, work, self._disk)


def check_room(folder: Path) -> None:
    """Raise SandboxError if the disk is too full to start a program."""
    if _free_bytes(folder) < MIN_FREE_BYTES:
        raise SandboxError(f"{folder}: less than {MIN_FREE_BYTES / MEGABYTE:g} MB are free. Make room there.")


def disk_use(folder: Path, most: DiskLimits | None = None) -> tuple[int, int]:
    """Return the bytes and the number of files and folders in a folder; stop counting once they exceed `most`.

    A folder that cannot be listed counts as empty, and one that lies too deep to be opened by its path as endless.
    """
    files = size = 0
    waiting = [str(folder)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    with suppress(FileNotFoundError):
                        size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if most is not None and (size > most.total_bytes or files > most.files):
                        return size, files
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return size, sys.maxsize
    return size, files


def wait_within(process: SandboxedProcess, seconds: float, folder: Path, most: DiskLimits) -> tuple[ExitStatus, str]:
    """Wait until a program ends, and stop it when it is late, its folder exceeds the limits or the disk is nearly full.

    Return how it ended and what it printed.
    """
    ended = threading.Event()

    def watch() -> None:
        pause = WATCH_SECONDS
        while not ended.wait(pause):
            started = monotonic()
            if _free_bytes(folder) < MIN_FREE_BYTES:  # deleted files that are still open also take space
                process.kill(f"left less than {MIN_FREE_BYTES / MEGABYTE:g} MB of the disk free")
            if _exceeds(folder, most):
                process.kill(f"made more than {most}")
            pause = max(WATCH_SECONDS, 10 * (monotonic() - started))

    watcher = threading.Thread(target=watch, name="disk watcher", daemon=True)
    watcher.start()
    try:
        status = process.wait(seconds)
    finally:
        process.kill()
        ended.set()
        watcher.join()
    return status, process.output(READING_SECONDS)


def _copy(source: Path, target: Path, most: DiskLimits, newest: int = sys.maxsize) -> dict[str, str]:
    """Copy the regular files of a folder into another; follow no link but one to a file within the folder.

    No copy is newer than `newest`, in nanoseconds; `source` has no links in its own path, and `target` exists.

    Returns:
        Why files and folders are not in the copy, by name.

    Raises:
        OSError: The machine is to blame, not the folder; any other error leaves a file out.
    """
    left_out: dict[str, str] = {}
    size = 0

    def make_folder(name: str) -> bool:
        with suppress(OSError):  # it is raised again for the files in the folder
            (target / name).mkdir(mode=0o755)
        return True

    entries = walk(source, limit=most.files, depth=MAX_FOLDERS, enter=make_folder)
    large = most.total_bytes // 10  # such files come last, so that they leave out no code
    for entry in sorted(entries, key=lambda entry: entry.status is not None and entry.status.st_size > large):
        if entry.name in (REPRODUCE_LOG, CREATION_TIME):
            continue  # a log from elsewhere says nothing about this run
        if entry.status is None:
            left_out[entry.name or "."] = entry.fault
            continue
        try:
            file = Path(os.path.realpath(source / entry.name))
            if not (file.is_relative_to(source) and file.is_file()):
                left_out[entry.name] = "no file, or a link that leads to no file in here"
                continue
            status, copy = file.stat(), target / entry.name
            if size + status.st_size > most.total_bytes:
                left_out[entry.name] = _TOO_LARGE
                continue
            size += status.st_size
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(file, copy)
            copy.chmod(0o755 if status.st_mode & 0o111 else 0o644)
            changed = min(status.st_mtime_ns, newest)
            os.utime(copy, ns=(changed, changed))
        except OSError as error:
            if error.errno in _MACHINE_ERRORS:
                raise
            left_out[entry.name] = f"cannot be copied: {error.strerror}"
    return left_out


def _left_out_line(when: str, reasons: dict[str, str]) -> str:
    """Return the line of the log that names the files left out, if there are any."""
    names = [f"{ascii(path)[:120]} ({reason})" for path, reason in reasons.items()]
    return f"[pcgeval] left out {when}: {listed(names, SHOWN_NAMES)}\n" if names else ""


def _exceeds(folder: Path, most: DiskLimits) -> bool:
    """Return whether a folder holds more than it may."""
    size, files = disk_use(folder, most)
    return size > most.total_bytes or files > most.files


def _take_over(folder: Path) -> None:
    """Give this user all rights below a folder, whatever a run has done to its files; links are not followed."""
    subprocess.run(["chmod", "-R", "u+rwX", "--", str(folder)], check=False, capture_output=True)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder.parent).free  # a program may have taken away all rights to the folder itself
