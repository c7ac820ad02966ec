"""Finished calls of unfinished trials, so that a run that is killed pays for none of them twice.

A journal is an append-only file of JSON lines, one per unfinished trial, outside the folders that DVC keeps. Its first
line names the trial's fingerprint; each further line is a call and what came of it. Every line is on the disk before
the reply is used. What a crash left of a last line is cut off.
"""

import json
import os
import shutil
import threading
from collections import defaultdict, deque
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pcgeval.core.files import sync_folder, to_json
from pcgeval.generation.records import Exchange, FailedCall, whole_text
from pcgeval.llm.keeping import cannot_keep, check_room
from pcgeval.llm.protocol import Backend, CallError, ChatReply, ChatRequest


class Journal:
    """The file of one trial; it is made with the first call that is appended."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        """Read what an earlier run left; `calls` are its calls in order, none if another fingerprint made them."""
        self.path = path
        self._header = to_json({"fingerprint": fingerprint}, indent=None).encode() + b"\n"
        self.calls: tuple[Exchange | FailedCall, ...] = ()
        content = path.read_bytes() if path.is_file() else b""
        self._size = 0  # of the part that is whole
        if content.startswith(self._header):
            self._size = len(self._header)
            self._read_calls(content)

    def _read_calls(self, content: bytes) -> None:
        calls = []
        for line in content[self._size :].splitlines(keepends=True):
            call = _parsed(line)
            if call is None:
                break
            calls.append(call)
            self._size += len(line)
        self.calls = tuple(calls)

    def append(self, call: Exchange | FailedCall) -> None:
        """Write one call; it is on the disk when this returns.

        Raises:
            LlmError: It cannot be written; the file is as before.
        """
        line = to_json(_values(call), indent=None).encode() + b"\n"
        try:
            self._write(line if self._size else self._header + line)
        except OSError as error:
            raise cannot_keep(self.path, error.strerror or str(error)) from error

    def _write(self, content: bytes) -> None:
        is_new = not self.path.exists()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(file, self._size)
            try:
                _write_all(file, content, self._size)
            except OSError:
                os.ftruncate(file, self._size)
                raise
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            sync_folder(self.path.parent)
        self._size += len(content)

    def check_room(self) -> None:
        """See to it that a reply can be kept before it is paid for.

        Raises:
            LlmError: The disk is almost full.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        check_room(self.path)

    def remove(self) -> None:
        """Forget the calls: the trial is finished and its record holds them."""
        self.path.unlink(missing_ok=True)


class TrialBackend:
    """One trial's way to the model: calls in the journal are replayed in order, all others are made and kept."""

    def __init__(self, backend: Backend, journal: Journal | None) -> None:
        """Wrap a backend; without a journal (of a backend that costs nothing) every call is made."""
        self._backend, self._journal = backend, journal
        self._lock = threading.Lock()
        self._turns = 0
        self._failures: list[FailedCall] = []
        self._kept: defaultdict[str, deque[Exchange | FailedCall]] = defaultdict(deque)
        for call in journal.calls if journal else ():
            self._kept[call.key].append(call)

    @property
    def failures(self) -> tuple[FailedCall, ...]:
        """The calls so far that the backend gave up."""
        return tuple(self._failures)

    def digest(self) -> str:
        """Return the model's digest; see the backend."""
        return self._backend.digest()

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
        """Answer as the backend does, or did.

        Raises:
            CallError: The backend gives this call up, or did.
            LlmError: The backend cannot serve, or its reply cannot be kept.
        """
        key = request.key
        with self._lock:
            call = self._kept[key].popleft() if self._kept[key] else None
        if call is None:
            call = self._made(key, request, timeout)
        with self._lock:
            self._turns += 1
            if isinstance(call, FailedCall):
                self._failures.append(replace(call, turn=self._turns))
                raise CallError(call.reason)
        return call.reply

    def _made(self, key: str, request: ChatRequest, timeout: float) -> Exchange | FailedCall:
        if self._journal:
            self._journal.check_room()
        call: Exchange | FailedCall
        try:
            reply = self._backend.chat(request, timeout)
            call = Exchange(key, _whole(reply))
        except CallError as error:
            call = FailedCall(0, key, whole_text(str(error)))
        if self._journal:
            with self._lock:
                self._journal.append(call)
        return call


def remove_journals(folder: Path) -> None:
    """Remove the journals of a model and team of which every trial is finished."""
    shutil.rmtree(folder, ignore_errors=True)


def _write_all(file: int, content: bytes, offset: int) -> None:
    while content:
        written = os.pwrite(file, content, offset)
        content, offset = content[written:], offset + written


def _whole(reply: ChatReply) -> ChatReply:
    return replace(reply, text=whole_text(reply.text), done_reason=whole_text(reply.done_reason))


def _values(call: Exchange | FailedCall) -> dict[str, Any]:
    if isinstance(call, FailedCall):
        return {"key": call.key, "failure": call.reason}
    return {"key": call.key, "reply": asdict(call.reply)}


def _parsed(line: bytes) -> Exchange | FailedCall | None:
    """Return the call of a line, or None if a crash left it incomplete."""
    if not line.endswith(b"\n"):
        return None
    try:
        values = json.loads(line)
        if "failure" in values:
            return FailedCall(0, values["key"], values["failure"])
        return Exchange(values["key"], ChatReply(**values["reply"]))
    except (ValueError, TypeError, KeyError):
        return None
