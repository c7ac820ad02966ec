"""Running a submission's reproduce.sh in the sandbox, to see what it really reproduces.

It runs on a copy, without network unless it is asked for, and with limits on time, memory and disk. What it leaves
behind is as little to be trusted as itself: out of that comes a second copy of regular files within bounds, readable by
us and without links.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from stat import S_ISDIR, S_ISLNK, S_ISREG
from time import monotonic
from typing import Self

from pcgeval.core.reproduction import REPRODUCE_LOG, REPRODUCE_SCRIPT, STARTED, ReproductionRun
from pcgeval.sandbox.confined import Confined, Ending
from pcgeval.sandbox.disk_watch import DiskAllowance, make_sure_of_room, watched_disk
from pcgeval.sandbox.limits import MEGABYTE, Allowance, tool
from pcgeval.sandbox.mounts import interpreter_paths
from pcgeval.sandbox.sandbox import Sandbox, SandboxError, open_sandbox

SHOWN_FOLDER = "/submission"  # what the log calls the folder, wherever that lay
KEPT_LOG_BYTES = 1 * MEGABYTE  # from the start and once more from the end
MAX_LOG_BYTES = 256 * MEGABYTE
MAX_FOLDERS = 64  # one within the other
READING_SECONDS = 5.0  # to read what was printed last
SHOWN_NAMES = 20
# no submission is to blame for these: a full disk or quota, a broken disk, too many open files
_OUR_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE)
# all that is printed goes into the pipe whose number is the second argument
_COMMAND = 'cd "$1" && eval "exec >&$2 2>&1 $2>&-" && exec bash reproduce.sh'


class SandboxComputer:
    """Runs the reproduce.sh of submissions; python3 is the Python that we run on, with its packages."""

    def __init__(
        self,
        *,
        seconds: float = 3_600,
        memory_bytes: int = 8_000 * MEGABYTE,
        disk: DiskAllowance | None = None,
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
        self._disk = disk or DiskAllowance()
        allowance = Allowance(
            memory_bytes=memory_bytes,
            processes=256,
            file_bytes=self._disk.total_bytes,
            cpu_seconds=max(1, int(seconds) * (os.cpu_count() or 1)),
        )
        self._sandbox = open_sandbox(allowance, trust_programs, network=network)

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
        with _our_faults(into), _scratch_folder() as scratch:
            work = scratch / "work"
            before = _surveyed(submission.resolve(), self._disk)
            before = _copied(before, work, newest=_disk_time(scratch) - 1_000_000_000)
            started_at = _disk_time(scratch)
            started = monotonic()
            with _LogPipe() as pipe:
                ending = self._ending(before, work, pipe)
            seconds = monotonic() - started
            _make_ours(work)
            after = _copied(_surveyed(work, self._disk), into)
            log = (
                _openness(self._sandbox)
                + _told(before, "before the run")
                + pipe.text().replace(str(work), SHOWN_FOLDER)
            )
            log += ("" if log.endswith("\n") or not log else "\n") + _told(after, "after the run") + _end_line(ending)
            _write_log(into / REPRODUCE_LOG, log, started_at, seconds)
        # as other files' times are read: dividing the nanoseconds would round differently
        return ReproductionRun(into, log, ending.code, ending.reason, seconds, (into / REPRODUCE_LOG).stat().st_mtime)

    def _ending(self, before: "_Survey", work: Path, pipe: "_LogPipe") -> Ending:
        """Run the script if there is one that can be run."""
        script = work / REPRODUCE_SCRIPT
        if before.too_much is not None:
            return Ending(None, f"was not started: the submission has {before.too_much}", "")
        if not script.is_file():
            return Ending(None, f"was not started: {REPRODUCE_SCRIPT} is missing or no file", "")
        make_sure_of_room(work)
        has_crlf = b"\r\n" in script.read_bytes()
        ending = self._confined_ending(work, pipe)
        if ending.code and ending.reason is None and has_crlf:
            return replace(ending, reason=f"{REPRODUCE_SCRIPT} has Windows line ends (CRLF), which bash takes for text")
        return ending

    def _confined_ending(self, work: Path, pipe: "_LogPipe") -> Ending:
        (empty := work.parent / "empty").mkdir(mode=0o755)
        python = Path(sys.executable)
        confined = self._sandbox.start(
            [tool("bash"), "-c", _COMMAND, "bash", str(work), str(pipe.guest_end)],
            folder=empty,
            readable=tuple(interpreter_paths(python)),
            writable=(work,),
            descriptors=(pipe.guest_end,),
            environment={"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin"},
        )
        try:
            pipe.start_reading(confined)
            with watched_disk(confined, work, self._disk):
                return confined.wait(self._seconds)
        finally:
            confined.kill()


class _LogPipe:
    """Takes in what a run prints, and keeps its start and its end."""

    def __init__(self) -> None:
        self._our_end, self.guest_end = os.pipe()
        self._head, self._tail = bytearray(), bytearray()
        self._bytes = 0
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is None:
            os.close(self.guest_end)
            os.close(self._our_end)
        else:
            self._reader.join(READING_SECONDS)  # longer only where a trusted process got away with its end of the pipe

    def start_reading(self, confined: Confined) -> None:
        """Read until all processes have closed the pipe; stop a run that prints without end."""
        os.close(self.guest_end)
        self._reader = threading.Thread(target=self._read, args=(confined,), daemon=True)
        self._reader.start()

    def text(self) -> str:
        """Return what was printed, without the middle if it is long."""
        left_out = self._bytes - len(self._head) - len(self._tail)
        gap = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode("utf-8", errors="replace")

    def _read(self, confined: Confined) -> None:
        while chunk := os.read(self._our_end, 65_536):
            self._bytes += len(chunk)
            room = KEPT_LOG_BYTES - len(self._head)
            self._head += chunk[:room]
            self._tail += chunk[room:]
            del self._tail[:-KEPT_LOG_BYTES]
            if self._bytes > MAX_LOG_BYTES:
                confined.kill(f"printed more than {MAX_LOG_BYTES / MEGABYTE:g} MB")
        os.close(self._our_end)


@dataclass(frozen=True)
class _Survey:
    """What is in a folder and may be copied: relative paths, folders before what is in them; and what may not."""

    source: Path
    folders: tuple[str, ...]
    files: tuple[str, ...]
    left_out: tuple[str, ...]  # names with reasons
    too_much: str | None  # of what there is more than allowed; that is left out


def _surveyed(source: Path, disk: DiskAllowance) -> _Survey:
    """Look through a folder, of which no link is followed but to a file within it."""
    folders: list[str] = []
    files: list[str] = []
    left_out: list[str] = []
    limits = f"more than {disk.files} files or {disk.total_bytes / MEGABYTE:g} MB"
    too_much = None
    count = size = 0
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        names = _names(source / inside, disk.files)
        if names is None:
            left_out.append(_named(inside or ".", "cannot be read"))
            continue
        if len(names) > disk.files:
            too_much = limits
            left_out.append(_named(inside or ".", "too many files"))
            continue
        folders.append(inside)
        below: list[str] = []
        for name in names:
            path = f"{inside}/{name}" if inside else name
            status = _status(source, path)
            if path == REPRODUCE_LOG:
                continue  # a log from elsewhere says nothing about this run
            if status is None:
                left_out.append(_named(path, "neither file nor folder, or a link that leads to no file in here"))
            elif S_ISDIR(status.st_mode) and path.count("/") >= MAX_FOLDERS:
                left_out.append(_named(path, f"lies in more than {MAX_FOLDERS} folders"))
            elif count + 1 > disk.files or size + status.st_size * S_ISREG(status.st_mode) > disk.total_bytes:
                too_much = limits
                left_out.append(_named(path, "too much"))
            else:
                count += 1
                size += status.st_size * S_ISREG(status.st_mode)
                (below if S_ISDIR(status.st_mode) else files).append(path)
        waiting += reversed(below)
    return _Survey(source, tuple(folders), tuple(files), tuple(left_out), too_much)


def _names(folder: Path, most: int) -> list[str] | None:
    """Return the names in a folder in byte order, of more than so many one too many; None if it cannot be read."""
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) > most:
                    break
    except OSError as error:
        _pass_on_ours(error)
        return None
    return sorted(names, key=os.fsencode)


def _status(source: Path, path: str) -> os.stat_result | None:
    """Return what is known of a file or folder, or of the file within the source to which a link leads."""
    try:
        status = (source / path).lstat()
        if S_ISLNK(status.st_mode):
            target = Path(os.path.realpath(source / path))
            status = target.lstat()
            return status if target.is_relative_to(source) and S_ISREG(status.st_mode) else None
    except OSError as error:
        _pass_on_ours(error)
        return None
    return status if S_ISREG(status.st_mode) or S_ISDIR(status.st_mode) else None


def _named(path: str, why: str) -> str:
    return f"{ascii(path)[:120]} ({why})"


def _copied(survey: _Survey, target: Path, newest: int | None = None) -> _Survey:
    """Copy what may be copied, with times no later than `newest` (nanoseconds); return the survey with what failed.

    Raises:
        OSError: A fault of ours.
    """
    failed = []
    folders = set(survey.folders)
    for name in (*survey.folders, *survey.files):
        try:
            if name in folders:
                (target / name).mkdir(mode=0o755, exist_ok=True)
            else:
                _copy_file(survey.source / name, target / name, newest)
        except OSError as error:
            _pass_on_ours(error)
            failed.append(_named(name, f"cannot be copied: {error.strerror}"))
    return replace(survey, left_out=(*survey.left_out, *failed))


def _copy_file(source: Path, copy: Path, newest: int | None) -> None:
    status = source.stat()
    shutil.copyfile(source, copy)
    copy.chmod(0o755 if status.st_mode & 0o111 else 0o644)
    changed = status.st_mtime_ns if newest is None else min(status.st_mtime_ns, newest)
    os.utime(copy, ns=(changed, changed))


def _openness(sandbox: Sandbox) -> str:
    """Say in the log what a run could reach beside its folder."""
    if not sandbox.contained:
        return "[pcgeval] without a sandbox: network and files were open to it\n"
    return "[pcgeval] the network was open to it\n" if sandbox.network else ""


def _told(survey: _Survey, when: str) -> str:
    """Return a line of the log that names what was not copied, or nothing."""
    if not survey.left_out:
        return ""
    names = ", ".join(survey.left_out[:SHOWN_NAMES])
    more = f" and {len(survey.left_out) - SHOWN_NAMES} more" if len(survey.left_out) > SHOWN_NAMES else ""
    return f"[pcgeval] left out {when}: {names}{more}\n"


def _end_line(ending: Ending) -> str:
    code = "" if ending.code is None else f" ended with exit code {ending.code}"
    why = "" if ending.reason is None else f" {ending.reason}" if ending.code is None else f" ({ending.reason})"
    return f"[pcgeval] {REPRODUCE_SCRIPT}{code}{why}\n"


def _write_log(path: Path, log: str, started_at: int, seconds: float) -> None:
    """Write the log with its times; the file is as old as the start of the run, so that results are newer."""
    at = datetime.fromtimestamp(started_at // 1_000_000_000, UTC).isoformat()
    text = f"{STARTED}{at}\n{log}[pcgeval] after {seconds:.1f} s\n"
    path.write_bytes(text.encode("utf-8", errors="replace"))
    os.utime(path, ns=(started_at, started_at))


def _disk_time(folder: Path) -> int:
    """Return the time in nanoseconds that a file would get now."""
    marker = folder / "marker"
    marker.write_bytes(b"now")
    return marker.stat().st_mtime_ns


def _pass_on_ours(error: OSError) -> None:
    """Raise an error again that is no reason to leave a file out."""
    if error.errno in _OUR_FAULTS:
        raise error


@contextmanager
def _our_faults(into: Path) -> Iterator[None]:
    """Say what to do about a fault that is none of the submission's."""
    try:
        yield
    except OSError as error:
        if error.errno not in _OUR_FAULTS:
            raise
        raise SandboxError(
            f"a copy of the submission cannot be made: {error.strerror}. "
            f"Make room in {tempfile.gettempdir()} and for {into}, then run again."
        ) from error


@contextmanager
def _scratch_folder() -> Iterator[Path]:
    """Make a folder, and remove it with all that is in it, however deep."""
    folder = Path(tempfile.mkdtemp(prefix="pcgeval-reproduction-")).resolve()
    try:
        yield folder
    finally:
        _make_ours(folder)
        subprocess.run([tool("rm"), "-rf", "--", str(folder)], check=False, capture_output=True)


def _make_ours(folder: Path) -> None:
    """Give ourselves all rights below a folder, whatever a run has done to its files; links are not followed."""
    subprocess.run([tool("chmod"), "-R", "u+rwX", "--", str(folder)], check=False, capture_output=True)
