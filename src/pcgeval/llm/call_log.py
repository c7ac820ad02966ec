"""The call log: every reply of a language model, so that nobody pays twice for the same call.

A `CallLog` is an append-only folder of JSON-lines files, `.pcgeval/calls`, which trials, `pcgeval try`, rounds and the
judge share. Each line is a `LoggedCall` under the SHA-256 of everything that decides its reply: model digest, messages,
options with the seed, and schema. Each process appends to another file, so several can run at once, and copying files
merges logs. A failed call is logged too, but the next run makes it again.

A recording is one file of the same lines, and replays a run with its failed calls; of a program it holds the finished
trials, each a `RecordedTrial` with its calls.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from filelock import FileLock
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_text, to_json, write_text
from pcgeval.core.text import well_formed
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import CALLS, FAILED_CALLS, Trial
from pcgeval.formats.params import Model
from pcgeval.formats.stages import refusal
from pcgeval.formats.trials import Attempt, ChatReply, FailedCall, TrialRecord
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError, full_name

NEUTRAL = "neutral"  # the kind of a call on nobody's account
_POLL_SECONDS = 0.02  # between two tries to get the lock of a call
ROOM = 16 * 2**20  # bytes that must be free before a call is paid for, so that its reply can be kept


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    def line(self) -> str:
        """Return the line of a file; lone surrogates, which UTF-8 cannot hold, become U+FFFD."""
        return well_formed(to_json(self.model_dump(exclude_defaults=True), indent=None)) + "\n"


_AnyLine = TypeVar("_AnyLine", bound=_Line)


class LoggedCall(_Line):
    """A call by its key, with its reply or the reason why it has none, and its origin for a reader."""

    key: str  # SHA-256 of the request
    reply: ChatReply | None = None
    reason: str | None = None  # why a judge's call or a neutral one has no reply
    failure: Failure | None = None  # why a trial's call has no reply
    attempts: tuple[Attempt, ...] = ()  # to make a trial's call that failed, or needed several
    model: str | None = None
    team: str | None = None  # the submission that asked, or is judged
    letter: str | None = None  # of a trial's call, as are the next two
    trial: int | None = None
    turn: int | None = None  # the call's place in the trial, from 1
    leaf: str | None = None  # of a judge's call, as are the next three: the path of the rubric's leaf
    kind: str | None = None  # such as grade or rank; neutral for a call on nobody's account
    vote: int | None = None  # from 0
    attempt: int | None = None  # in logs of earlier versions: 1 for the second, after an answer that was not read

    @model_validator(mode="after")
    def _has_one_outcome(self) -> Self:
        if (self.reply is None) == (self.reason is None and self.failure is None):
            raise ValueError("a call has either a reply or the reason why there is none")
        return self

    @property
    def outcome(self) -> ChatReply | Failure | str:
        """The reply, or the reason why there is none."""
        return self.reply or self.failure or self.reason or ""

    @property
    def calls(self) -> "list[LoggedCall]":
        """The calls of the line."""
        return [self]


class RecordedTrial(_Line):
    """A program's finished trial, which is replayed without running the program."""

    letter: str
    trial: int
    response: str
    record: TrialRecord
    sha256: str  # of the record, as in data/trials

    @property
    def is_whole(self) -> bool:
        """Whether it is as the stage wrote it. After a person edited a reply, the program runs again on that reply."""
        is_response = self.record.response_sha256 == sha256_text(self.response)
        return is_response and self.sha256 == self.record.sha256

    @property
    def calls(self) -> list[LoggedCall]:
        """The calls of the line."""
        return trial_calls(Trial(self.letter, self.trial), self.record)


def trial_calls(trial: Trial, record: TrialRecord) -> list[LoggedCall]:
    """Return the calls of a trial as a recording has them, the failed ones included."""
    calls = []
    for turn, call in enumerate(record.calls, start=1):
        place: dict[str, Any] = {"key": call.key, "letter": trial.letter, "trial": trial.number, "turn": turn}
        if isinstance(call, FailedCall):
            calls.append(LoggedCall(failure=call.failure, attempts=call.attempts, **place))
        else:
            calls.append(LoggedCall(reply=call.reply, **place))
    return calls


def _parsed(line: bytes) -> LoggedCall | RecordedTrial:
    """Parse a line; only a trial has a record. Raises ValidationError."""
    return (RecordedTrial if b'"record":' in line else LoggedCall).model_validate_json(line)


class CallLog:
    """The calls of a folder and of recordings; several threads and several processes may use it at once."""

    def __init__(self, folder: Path | None, recordings: Iterable[Path] = (), *, read_only: bool = False) -> None:
        """Read recordings, which win over the folder, the first of several; raises FileError.

        The folder is created with the first call. Without one, or if it is `read_only`, new calls stay in memory.
        """
        self._folder = folder and folder.absolute()  # a thread may outlive the caller's working directory
        self._file = self._folder and self._folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(6)}.jsonl"
        self._is_written = self._folder is not None and not read_only
        self._calls: dict[str, dict[str | None, LoggedCall]] = {}  # by their keys and the answering models
        self._recorded_failures: dict[str, LoggedCall] = {}
        self._read_until: dict[Path, int] = {}  # bytes of whole lines of each file in the folder
        self._lock = threading.Lock()
        for path in recordings:
            for call in read_recording(path):
                if call.reply:
                    self._add(call)
                elif call.key not in self._calls:
                    self._recorded_failures.setdefault(call.key, call)

    @property
    def known(self) -> tuple[LoggedCall, ...]:
        """The answered calls of the recordings, of this process, and in the folder."""
        with self._lock:
            self._read_new_lines()
            return tuple(call for calls in self._calls.values() for call in calls.values())

    def find(self, key: str, *, failed_too: bool = False, answering: str | None = None) -> LoggedCall | None:
        """Return the answered call of any process with this key.

        With `failed_too`, a call that failed when it was recorded counts too, for a replay. With `answering`, only the
        reply of a model that calls itself so counts.
        """
        with self._lock:
            if key not in self._calls:
                self._read_new_lines()
            calls = self._calls.get(key, {})
            answered = calls.get(answering) if answering else next(iter(calls.values()), None)
            return (self._recorded_failures.get(key) if failed_too else None) or answered

    def answer(
        self, key: str, ask: Callable[[float], LoggedCall], seconds: float, answering: str | None = None
    ) -> LoggedCall:
        """Return the answered call of any process with this key, or let `ask` make it, in at most so many seconds.

        With `answering`, only a reply of a model that calls itself so counts.

        If several threads and processes want the same call at once, one makes it and the others wait for it; if it
        fails, the next one makes it. A call that waited for all its `seconds` fails by a fault of the server, and is
        not logged. Raises LlmError if the reply cannot be kept.
        """
        if known := self.find(key, answering=answering):
            return known
        ends = time.monotonic() + seconds
        with ExitStack() as stack:
            if self._folder and self._is_written:
                try:
                    self._check_room(self._folder)
                    lock = self._folder / "asking" / key
                    lock.parent.mkdir(parents=True, exist_ok=True)
                    stack.enter_context(FileLock(lock, timeout=seconds, poll_interval=_POLL_SECONDS))
                    # before the release: a waiting process notices, and opens a new file
                    stack.callback(lock.unlink, missing_ok=True)
                except TimeoutError:
                    reason = f"another process has been asking the same for {seconds:g} s"
                    return LoggedCall(key=key, reason=reason, failure=failure("server-failed", fault=reason))
                except OSError as error:
                    raise self._cannot_keep(error.strerror) from error
            return self.find(key, answering=answering) or self.keep(ask(ends - time.monotonic()))

    def _check_room(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        disk = os.statvfs(folder)
        if (free := disk.f_bavail * disk.f_frsize) < ROOM:
            raise self._cannot_keep(f"only {free // 2**20} MB are free on its disk, {ROOM // 2**20} are needed")

    def keep(self, call: LoggedCall) -> LoggedCall:
        """Return a new call as a replay will have it; the disk has it when this returns. Raises LlmError."""
        line = call.line()
        call = LoggedCall.model_validate_json(line)  # without what a file cannot hold
        with self._lock:
            if self._file and self._is_written:
                try:
                    _append(self._file, line.encode())
                except OSError as error:
                    raise self._cannot_keep(error.strerror) from error
            return self._add(call) if call.reply else call

    def _add(self, call: LoggedCall) -> LoggedCall:
        """Add an answered call, and return the first one of the same key and answering model."""
        answering = call.reply.model if call.reply else None
        return self._calls.setdefault(call.key, {}).setdefault(answering, call)

    def _read_new_lines(self) -> None:
        """Read the lines that other processes and earlier runs appended, except torn lines."""
        for path in sorted(self._folder.glob("*.jsonl")) if self._folder else ():
            start = self._read_until.get(path, 0)
            if path == self._file or path.stat().st_size <= start:
                continue
            with path.open("rb") as file:
                file.seek(start)
                whole = file.read().split(b"\n")[:-1]  # behind the last line end, another process may be writing
            for call in logged_calls(whole):
                if call.reply:
                    self._add(call)
            self._read_until[path] = start + sum(len(line) + 1 for line in whole)

    def _cannot_keep(self, reason: str | None) -> LlmError:
        return LlmError(f"{self._folder}: a reply cannot be kept: {reason}. Make room on the disk, then run again.")


def logged_calls(lines: Iterable[bytes]) -> Iterator[LoggedCall]:
    """Yield the calls in the lines of a log, failed and neutral ones too; skip what is none, such as torn lines."""
    for line in lines:
        with suppress(ValidationError):
            yield from _parsed(line).calls


def known_calls(model: Model, root: Path) -> list[LoggedCall]:
    """Return the calls of a live model in the call log, failed and neutral ones too, and the proofs of a bundle.

    Of a recorded model its recordings alone count.
    """
    if model.backend == "recorded":
        return []
    paths = (path for path in sorted((root / CALLS).glob("*.jsonl")) if path.is_file())
    calls = [call for path in paths for call in logged_calls(path.read_bytes().split(b"\n"))]
    if (root / FAILED_CALLS).is_file():  # its maker wrote it, so it proves no reply to a trial
        bundled = logged_calls((root / FAILED_CALLS).read_bytes().split(b"\n"))
        calls += [call for call in bundled if call.kind == NEUTRAL or call.reply is None]
    return [call for call in calls if full_name(call.model or "") == full_name(model.name)]


def proofs(records: Iterable[TrialRecord], known: Iterable[LoggedCall]) -> list[LoggedCall]:
    """Return the known calls that prove the failed calls of trials: the same, and the neutral calls after attempts."""
    failed = [call for record in records for call in record.failed_calls]
    wanted = {(call.key, call.failure, call.attempts) for call in failed}
    neutral = {attempt.neutral for call in failed for attempt in call.attempts} - {None}
    same = (
        call
        for call in known
        if (call.reply in neutral if call.kind == NEUTRAL else (call.key, call.failure, call.attempts) in wanted)
    )
    return list(dict.fromkeys(same))


def unproved_calls(record: TrialRecord, known: Iterable[LoggedCall]) -> list[FailedCall]:
    """Return the failed calls of a trial that no known call proves.

    Every attempt needs the reply to a neutral call, but for a refusal as earlier versions recorded it.
    """
    if not record.failed_calls:
        return []
    proving = proofs([record], known)
    held = {(call.key, call.failure, call.attempts) for call in proving}
    neutral = {call.reply for call in proving if call.kind == NEUTRAL}
    return [
        call
        for call in record.failed_calls
        if (call.key, call.failure, call.attempts) not in held
        or not call.attempts
        or any(
            attempt.neutral not in neutral and not (attempt.neutral is None and _is_former(call, attempt))
            for attempt in call.attempts
        )
    ]


def _is_former(call: FailedCall, attempt: Attempt) -> bool:
    return attempt.blame == "request" and call.failure.kind in {"filtered", "context-exceeded"}


def read_lines(path: Path) -> Iterator[LoggedCall | RecordedTrial]:
    """Yield the calls and trials of a recording; raises FileError, which names the line that is neither."""
    number = 0
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):  # noqa: B007 - the error names it
                if line.strip():
                    yield _parsed(line)
    except ValidationError as error:
        place = f"{path}:{number}: not a recorded call or trial"
        raise refusal(place, error, "Restore the file from git.") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}). Check that it exists and is readable.") from error


def read_recording(path: Path) -> Iterator[LoggedCall]:
    """Yield the calls of a recording; raises FileError as `read_lines` does."""
    for line in read_lines(path):
        yield from line.calls


def write_recording(path: Path, lines: Iterable[_AnyLine]) -> None:
    """Write a recording in the order given."""
    write_text(path, "".join(line.line() for line in lines))


def _append(path: Path, content: bytes) -> None:
    """Append to a file of this process and sync it; raises OSError and leaves the file as it was."""
    path.parent.mkdir(parents=True, exist_ok=True)
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        with suppress(FileNotFoundError):
            os.truncate(path, size)
        raise


class RecordedModel:
    """Replays one recording; a request that was never recorded is an error, not an empty reply.

    Of several outcomes of the same request the first counts, as in the call log.
    """

    def __init__(self, lines: Iterable[LoggedCall | RecordedTrial], digest: str, source: str) -> None:
        """Take a model's calls and trials, its digest, and the name of the recording for messages."""
        self._digest, self._source = digest, source
        self._calls: dict[str, LoggedCall] = {}
        self._trials: dict[Trial, RecordedTrial] = {}
        for line in lines:
            for call in line.calls:
                self._calls.setdefault(call.key, call)
            if isinstance(line, RecordedTrial) and line.is_whole and self.replays(line.record):
                self._trials[Trial(line.letter, line.trial)] = line

    @classmethod
    def read(cls, recording: Path, digest: str | None) -> Self:
        """Read a recording; `digest` is the model's as params.yaml pins it. Raises LlmError or FileError."""
        if digest is None:
            raise LlmError("a recorded model needs its digest in params.yaml: recordings are found by it. Add it.")
        if not recording.is_file():
            raise LlmError(f"{recording}: no such recording. Add it, or set the backend to the one that has the model.")
        return cls(read_lines(recording), digest, str(recording))

    def digest(self) -> str:
        """Return the pinned digest."""
        return self._digest

    def call(self, request: ChatRequest) -> LoggedCall:
        """Return the recorded call, which may have failed; raises LlmError for an unknown request."""
        call = self._calls.get(request.key)
        if call is None:
            raise LlmError(
                f"{self._source}: no reply of {request.model} ({request.digest[:12]}) is recorded for this request: "
                "the prompt, options, seed or digest changed since. Set the model's backend to the one that has the "
                "model, and run again to ask it."
            )
        return call

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002 - a replay takes no time
        """Return the recorded reply; raises CallError for a failed call, LlmError for an unknown request."""
        call = self.call(request)
        if call.reply is None:
            raise CallError(str(call.outcome))
        return call.reply

    def replays(self, record: TrialRecord) -> bool:
        """Tell whether the calls of a trial would have the same outcomes."""
        known = ((self._calls.get(key), outcome) for key, outcome in record.call_outcomes)
        return all(call is not None and call.outcome == outcome for call, outcome in known)

    def finished_trial(self, trial: Trial, fingerprint: str) -> RecordedTrial | None:
        """Return a program's recorded trial with this fingerprint, if there is one."""
        recorded = self._trials.get(trial)
        return recorded if recorded and recorded.record.fingerprint == fingerprint else None
