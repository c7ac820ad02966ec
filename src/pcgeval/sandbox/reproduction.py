"""Run a submission's reproduce.sh in the sandbox, to see what it really reproduces.

The script runs on a copy, with limits on time, memory and disk, and without network unless the caller opens it. Its
results are not trusted either: the caller gets a second copy, of regular files within bounds and without links.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from time import monotonic

from pcgeval.core.untrusted import read_start
from pcgeval.sandbox.bubblewrap import interpreter_paths, path_inside, tool
from pcgeval.sandbox.disk import DiskLimits, check_room, limited_disk
from pcgeval.sandbox.process import MEGABYTE, ExitStatus, ResourceLimits, SandboxError
from pcgeval.sandbox.sandbox import open_sandbox
from pcgeval.submissions.reproduction import CREATION_TIME, REPRODUCE_LOG, REPRODUCE_SCRIPT, STARTED, ReproductionRun

SHOWN_FOLDER = "/submission"  # what the log calls the folder, wherever that lay
KEPT_LOG_BYTES = 1 * MEGABYTE  # from the start and once more from the end
CHECKED_BYTES = 65_536  # of the script, in which Windows line ends are looked for
MAX_LOG_BYTES = 256 * MEGABYTE
MAX_FOLDERS = 64  # one within the other
READING_SECONDS = 10.0  # to read the last output
SHOWN_NAMES = 20
_TOO_MUCH = "too much"  # why a file is not copied
# the machine is to blame for these: a full disk or quota, a broken disk, too many open files
_MACHINE_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)


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
        """Make sure that submissions can be contained here.

        Args:
            seconds: How long a run may take.
            memory_bytes: The resident memory of all processes of a run together.
            disk: What a submission may have on disk.
            network: Leave the network open: a run can then fetch what it needs, and send out what it sees.
            trust_programs: Where there is no sandbox, run submissions without one: as us, and with our network.

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
            cpu_seconds=max(1, int(seconds) * (os.cpu_count() or 1)),
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
            into: Where the copy goes after the run; a folder that is empty or not there yet.

        Raises:
            SandboxError: The submission is no folder, `into` has files or lies in it, there is no sandbox, or no room.
        """
        if not submission.is_dir():
            raise SandboxError(f"{submission}: not a folder. Name the submission's folder.")
        if into.resolve().is_relative_to(submission.resolve()):
            raise SandboxError(f"{into}: lies in the submission, which must stay as it is. Name another folder.")
        into.mkdir(parents=True, exist_ok=True)
        if any(into.iterdir()):
            raise SandboxError(f"{into}: has files, which would be taken for results. Name another folder.")
        with _scratch_folder(into) as scratch:
            work = scratch / "work"
            work.mkdir(mode=0o755)
            started_at = work.stat().st_mtime_ns  # the time by the clock of the disk
            left_out = _copy(submission.resolve(), work, self._disk, newest=started_at - 1_000_000_000)
            started = monotonic()
            status, printed = self._run(work, too_much=_TOO_MUCH in left_out.values())
            seconds = monotonic() - started
            _take_over(work)
            for name in (work, path_inside(work)):
                printed = printed.replace(str(name), SHOWN_FOLDER)
            log = self._log_start() + _left_out_line("before the run", left_out) + printed
            log += "" if log.endswith("\n") or not log else "\n"
            log += _left_out_line("after the run", _copy(work, into, self._disk))
            code = "" if status.code is None else f" ended with exit code {status.code}"
            why = "" if status.reason is None else f" ({status.reason})" if code else f" {status.reason}"
            log += f"[pcgeval] {REPRODUCE_SCRIPT}{code}{why}\n"
            # the file is as old as the start of the run, so that results are newer
            at = datetime.fromtimestamp(started_at // 1_000_000_000, UTC).isoformat()
            text = f"{STARTED}{at}\n{log}[pcgeval] after {seconds:.1f} s\n"
            (into / REPRODUCE_LOG).write_bytes(text.encode("utf-8", errors="replace"))
            os.utime(into / REPRODUCE_LOG, ns=(started_at, started_at))
            # for PaperBench's judge, and for ours where the copy is graded later
            (into / CREATION_TIME).write_text(f"{started_at // 1_000_000_000}\n")
        # as other files' times are read: dividing the nanoseconds would round differently
        return ReproductionRun(into, log, status.code, status.reason, seconds, (into / REPRODUCE_LOG).stat().st_mtime)

    def _log_start(self) -> str:
        if not self._sandbox.contained:
            return "[pcgeval] without a sandbox: network and files were open to it\n"
        return "[pcgeval] the network was open to it\n" if self._sandbox.network else ""

    def _run(self, work: Path, *, too_much: bool) -> tuple[ExitStatus, str]:
        """Run the script if there is one that can be run; return how it ended and what it printed."""
        script = work / REPRODUCE_SCRIPT
        if too_much:
            return ExitStatus(None, f"was not started: the submission has more than {self._disk}", ""), ""
        if not script.is_file():
            return ExitStatus(None, f"was not started: {REPRODUCE_SCRIPT} is missing or no file", ""), ""
        check_room(work)
        has_crlf = b"\r\n" in read_start(script, CHECKED_BYTES)
        (empty := work.parent / "empty").mkdir(mode=0o755)
        python = Path(sys.executable)
        process = self._sandbox.start(
            [tool("bash"), "-c", f'cd "$1" && exec bash {REPRODUCE_SCRIPT} 2>&1', "bash", str(work)],
            folder=empty,
            readable=tuple(interpreter_paths(python)),
            writable=(work,),
            environment={"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin"},
        )
        try:
            with limited_disk(process, work, self._disk):
                status = process.wait(self._seconds)
        finally:
            process.kill()
        if status.code and status.reason is None and has_crlf:
            reason = f"{REPRODUCE_SCRIPT} has Windows line ends (CRLF), which bash takes for text"
            status = replace(status, reason=reason)
        return status, process.output(READING_SECONDS)


def _copy(source: Path, target: Path, most: DiskLimits, newest: int = sys.maxsize) -> dict[str, str]:
    """Copy the regular files of a folder into another; no link is followed but to a file within the folder.

    Args:
        source: The folder.
        target: Where they go; it exists.
        most: The most that is copied.
        newest: The latest time that the copies may have, in nanoseconds.

    Returns:
        Why files and folders are not in the copy, by name.

    Raises:
        OSError: The machine is to blame, not the folder; any other error leaves a file out.
    """
    left_out: dict[str, str] = {}
    files = size = 0

    def cannot_be_listed(error: OSError) -> None:
        left_out[os.path.relpath(error.filename, source)] = _file_fault(error)

    for folder, folders, names in os.walk(source, onerror=cannot_be_listed):
        entries = sorted([*folders, *names], key=os.fsencode)
        folders.clear()  # those that are copied are entered
        for name in entries:
            path = Path(folder, name).relative_to(source).as_posix()
            if path in (REPRODUCE_LOG, CREATION_TIME):
                continue  # a log from elsewhere says nothing about this run
            try:
                status = _status_inside(source, path)
                file_size = status.st_size if S_ISREG(status.st_mode) else 0
                if files >= most.files or (file_size and size + file_size > most.total_bytes):
                    left_out[path] = _TOO_MUCH
                    continue
                files, size = files + 1, size + file_size
                if S_ISDIR(status.st_mode):
                    (target / path).mkdir(mode=0o755)
                    folders.append(name)
                else:
                    shutil.copyfile(source / path, target / path)
                    (target / path).chmod(0o755 if status.st_mode & 0o111 else 0o644)
                    changed = min(status.st_mtime_ns, newest)
                    os.utime(target / path, ns=(changed, changed))
            except ValueError as refusal:
                left_out[path] = str(refusal)
            except OSError as error:
                left_out[path] = _file_fault(error)
    return left_out


def _file_fault(error: OSError) -> str:
    """Return why a file is left out; raise the error again if the machine is to blame."""
    if error.errno in _MACHINE_ERRORS:
        raise error
    return f"cannot be copied: {error.strerror}"


def _status_inside(source: Path, path: str) -> os.stat_result:
    """Return the status of a file or folder, of the file within the source if it is a link to one.

    Raises:
        ValueError: It is neither, or lies too deep.
    """
    target = Path(os.path.realpath(source / path))
    status = (source / path).lstat()
    if S_ISLNK(status.st_mode) and target.is_relative_to(source) and target.is_file():
        status = target.lstat()
    if S_ISDIR(status.st_mode) and path.count("/") >= MAX_FOLDERS:
        raise ValueError(f"lies in more than {MAX_FOLDERS} folders")
    if not (S_ISREG(status.st_mode) or S_ISDIR(status.st_mode)):
        raise ValueError("neither file nor folder, or a link that leads to no file in here")
    return status


def _left_out_line(when: str, reasons: dict[str, str]) -> str:
    """Return the line of the log that names the files left out, if there are any."""
    names = [f"{ascii(path)[:120]} ({reason})" for path, reason in reasons.items()]
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return f"[pcgeval] left out {when}: {', '.join(names[:SHOWN_NAMES])}{more}\n" if names else ""


@contextmanager
def _scratch_folder(into: Path) -> Iterator[Path]:
    """Make a folder, and remove it with all that is in it, however deep.

    Raises:
        SandboxError: The machine is to blame for an error meanwhile.
    """
    folder = Path(tempfile.mkdtemp(prefix="pcgeval-reproduction-")).resolve()
    try:
        yield folder
    except OSError as error:
        if error.errno not in _MACHINE_ERRORS:
            raise
        raise SandboxError(
            f"a copy of the submission cannot be made: {error.strerror}. "
            f"Make room in {tempfile.gettempdir()} and for {into}, then run again."
        ) from error
    finally:
        _take_over(folder)
        subprocess.run([tool("rm"), "-rf", "--", str(folder)], check=False, capture_output=True)


def _take_over(folder: Path) -> None:
    """Give this user all rights below a folder, whatever a run has done to its files; links are not followed."""
    subprocess.run([tool("chmod"), "-R", "u+rwX", "--", str(folder)], check=False, capture_output=True)
