"""Every reply that a language model gave, so that no identical call is ever paid for twice.

A `CallLog` is an append-only folder of JSON-lines files, `.pcgeval/calls`, shared by trials, `pcgeval try`, rounds and
the judge. Each line is a `LoggedCall`. Its key is the SHA-256 of all that decides the reply: model digest, messages,
options, schema, but no time limit. The options hold the seed, which differs each time that a trial asks the very same
again. A key answers for ever: removing the folder is the only way to forget a reply.

    def ask(seconds: float) -> LoggedCall:
        try:
            return LoggedCall(key=request.key, reply=backend.chat(request, seconds), leaf=...)
        except CallError as error:
            return LoggedCall(key=request.key, reason=str(error), leaf=...)

    log = CallLog(CALLS)
    call = log.answer(request.key, ask, seconds)  # on the disk now; `ask` is called if it was not before
    log.used  # all calls that were found or appended, for `write_recording`

Every process appends to one file, so that several run at once and logs of several machines are merged by copying
files. A call that failed is kept, too, but answers nothing: the next run makes it again. A recording is one file of the
same lines, which replays a run, its failed calls too: see llm/recorded.py, or `CallLog(None, [path])`.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from pcgeval.core.errors import FileError
from pcgeval.core.files import sync_folder, to_json, write_text
from pcgeval.core.locks import lock_briefly
from pcgeval.core.trials import ChatReply, FaultCause
from pcgeval.core.untrusted import well_formed
from pcgeval.llm.protocol import LlmError

ROOM = 16 * 2**20  # bytes that must be free before a call is paid for: its reply has to be kept


class LoggedCall(BaseModel):
    """One line: a call by its key, its reply or the reason why there is none, and what asked, for a reader."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    key: str  # SHA-256 of the request
    reply: ChatReply | None = None  # None for a call that failed
    reason: str | None = None  # why it failed, without lone surrogates
    cause: FaultCause | None = None  # who is at fault, if not the one that asked
    model: str | None = None
    team: str | None = None  # the submission that asked, or is judged
    letter: str | None = None  # of a trial's call, as are the next two
    trial: int | None = None
    turn: int | None = None  # the call's place in the trial, from 1
    leaf: str | None = None  # of a judge's call, as are the next five: the path of the rubric's leaf
    kind: str | None = None  # what the call was for
    vote: int | None = None  # from 0
    attempt: int | None = None  # 1 for the second, after an answer that could not be parsed
    sent: str | None = None  # SHA-256 of the messages after they were cut to the model's context
    shown: dict[str, float] | None = None  # the share of each part of the prompt that was cut, by its name

    @model_validator(mode="after")
    def _has_one_outcome(self) -> Self:
        if (self.reply is None) == (self.reason is None):
            raise ValueError("a call has either a reply or the reason why there is none")
        return self

    @property
    def outcome(self) -> ChatReply | str:
        """The reply, or the reason why there is none."""
        return self.reply or self.reason or ""

    def line(self) -> str:
        """Return the call as a line of a file; lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
        return well_formed(to_json(self.model_dump(exclude_none=True), indent=None)) + "\n"


class CallLog:
    """The calls of a folder and of recordings; several threads and several processes may use it at once."""

    def __init__(self, folder: Path | None, recordings: Iterable[Path] = (), *, read_only: bool = False) -> None:
        """Read recordings, then the folder, which is made with the first call; without one nothing is kept on disk.

        Where both know a call, the recording wins, and the first of several. If it is `read_only`, calls are kept in
        memory alone.

        Raises:
            FileError: A recording cannot be read, or a line of it is no call; the message names it.
        """
        self._folder = folder and folder.absolute()  # a thread may outlive the caller's working directory
        self._target = None if read_only else self._folder
        self._name = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(6)}.jsonl"
        self._calls: dict[str, LoggedCall] = {}
        self._recorded_failures: dict[str, LoggedCall] = {}
        self._used: dict[str, LoggedCall] = {}
        self._read_until: dict[Path, int] = {}  # bytes of whole lines of each file in the folder
        self._lock = threading.Lock()
        for path in recordings:
            for call in read_recording(path):
                known = self._calls if call.reply else self._recorded_failures
                known.setdefault(call.key, call)

    @property
    def used(self) -> tuple[LoggedCall, ...]:
        """The calls that were found or appended so far, failed ones included."""
        with self._lock:
            return tuple(self._used.values())

    @property
    def known(self) -> tuple[LoggedCall, ...]:
        """The calls with a reply that were read or appended so far."""
        with self._lock:
            return tuple(self._calls.values())

    def find(self, key: str, *, failed_too: bool = False) -> LoggedCall | None:
        """Return a call that was made before, by whichever process; None if it is to be made.

        Args:
            key: The SHA-256 of the request.
            failed_too: Also return a call that failed when it was recorded, for a replay.

        Raises:
            LlmError: A file of the folder cannot be read.
        """
        with self._lock:
            if key not in self._calls:
                self._read_new_lines()
            call = self._calls.get(key) or (self._recorded_failures.get(key) if failed_too else None)
            if call is not None:
                self._used[key] = call
            return call

    def answer(self, key: str, ask: Callable[[float], LoggedCall], seconds: float) -> LoggedCall:
        """Return a call that was made before, or make it and keep it.

        Of several threads and processes that want the same call at once, one makes it and the others wait for it; if
        it fails, the next one makes it.

        Args:
            key: The SHA-256 of the request.
            ask: Makes the call, in at most so many seconds.
            seconds: The longest time for all, the wait for another process's call included; a call that only waited
                has failed by a fault of the server, and is not kept.

        Raises:
            LlmError: A file of the folder cannot be read, or the reply cannot be kept.
        """
        if known := self.find(key):
            return known
        ends = time.monotonic() + seconds
        with ExitStack() as stack:
            if self._target is not None:
                try:
                    self._check_room(self._target)
                    stack.enter_context(lock_briefly(self._target / "asking" / key, seconds))
                except TimeoutError:
                    reason = f"another process has been asking the same for {seconds:g} s"
                    return LoggedCall(key=key, reason=reason, cause="server")
                except OSError as error:
                    raise self._cannot_keep(error.strerror) from error
            return self.find(key) or self._keep(ask(ends - time.monotonic()))

    def _check_room(self, folder: Path) -> None:
        """Check before a call is paid for that its reply can be kept."""
        folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(folder)
        if (free := disk.f_bavail * disk.f_frsize) < ROOM:
            raise self._cannot_keep(f"only {free // 2**20} MB are free on its disk, {ROOM // 2**20} are needed")

    def _keep(self, call: LoggedCall) -> LoggedCall:
        """Keep a call that was just made and return it as it is kept; it is on the disk when this returns.

        Where two threads without a folder have made the same call at once, the first reply answers both.

        Raises:
            LlmError: It cannot be written; the file is as before.
        """
        line = call.line()
        call = LoggedCall.model_validate_json(line)  # without what a file cannot hold, so that a replay is the same
        with self._lock:
            if self._target is not None:
                try:
                    _append(self._target / self._name, line.encode())
                except OSError as error:
                    raise self._cannot_keep(error.strerror) from error
            call = self._calls.setdefault(call.key, call) if call.reply else call
            self._used[call.key] = call
        return call

    def _read_new_lines(self) -> None:
        """Read what other processes and earlier runs left; a line that is torn or no call is passed over."""
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder else ():
            if path.name == self._name:
                continue
            start = self._read_until.get(path, 0)
            try:
                if path.stat().st_size <= start:
                    continue
                with path.open("rb") as file:
                    file.seek(start)
                    lines = file.read().split(b"\n")
            except (FileNotFoundError, IsADirectoryError):  # removed since it was listed, or not one of our files
                continue
            except OSError as error:
                raise LlmError(
                    f"{path}: cannot be read ({error.strerror}), and the calls in it would be paid for again. Make it "
                    "readable, or remove it."
                ) from error
            for line in lines[:-1]:  # behind the last line end, another process may be writing
                start += len(line) + 1
                with suppress(ValidationError):
                    call = LoggedCall.model_validate_json(line)
                    if call.reply:
                        self._calls.setdefault(call.key, call)
            self._read_until[path] = start

    def _cannot_keep(self, reason: str | None) -> LlmError:
        return LlmError(f"{self._target}: a reply cannot be kept: {reason}. Make room on the disk, then run again.")


def read_recording(path: Path) -> Iterator[LoggedCall]:
    """Yield the calls of a recording line by line; empty lines are passed over.

    Raises:
        FileError: The file cannot be read, or a line is no call; the message names it.
    """
    number = 0
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007 - the error names it
                if line.strip():
                    yield LoggedCall.model_validate_json(line)
    except ValidationError as error:
        raise FileError(
            f"{path}:{number}: not a recorded call ({error.errors()[0]['msg']}). Restore the file from git."
        ) from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}). Check that it exists and is readable.") from error


def write_recording(path: Path, calls: Iterable[LoggedCall]) -> None:
    """Write a recording in the order given."""
    write_text(path, "".join(call.line() for call in calls))


def _append(path: Path, content: bytes) -> None:
    """Append to a file of this process, made if it is not there; raises OSError and leaves the file as it was."""
    is_new = not path.exists()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    size = os.fstat(file).st_size
    try:
        while content:
            content = content[os.write(file, content) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise
    finally:
        os.close(file)
    if is_new:
        sync_folder(path.parent)
