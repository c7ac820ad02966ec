"""Our end of the pipe to a program: JSON, a line a message, whatever the program may do to it.

What comes is written by strangers: lines without end, no JSON, deep nesting, wrong types, a pipe that is closed,
replies that are never read. Reading takes time linear in what comes, and memory and waiting are bounded.
"""

import json
import os
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from pcgeval.core.untrusted import well_formed

LINE_BYTES = 2 * 2**20  # of one message: some ten times a trial's tokens
TRIAL_BYTES = 64 * 2**20  # of all messages of a trial, which its record may come to hold
TRIAL_LINES = 10_000
_CHUNK = 65_536


class Gone(Exception):  # noqa: N818 - an ending, not an error
    """The program closed its end of the pipe; mostly it has ended."""


class OutOfTime(Exception):  # noqa: N818
    """The deadline passed before the program said or took something."""


class Misused(Exception):  # noqa: N818
    """The program sent what the interface package never sends; the text tells what, as a sentence about the program."""


@dataclass(frozen=True)
class Chat:
    """A call of the model, as the program wrote it."""

    messages: object
    n: object


@dataclass(frozen=True)
class Answer:
    """What TrialLoop.run returned."""

    text: str


@dataclass(frozen=True)
class Failure:
    """Why TrialLoop.run returned nothing, as the program tells it."""

    text: str


@dataclass(frozen=True)
class Contact:
    """A hint that the program turned to another machine."""

    text: str


Said = Chat | Answer | Failure | Contact


class Pipe:
    """Two pipes, one for each direction; as a context manager it closes all ends that are still open."""

    def __init__(self) -> None:
        """Open both."""
        self._said, self._calls = os.pipe()
        self._replies, self._told = os.pipe()
        self._open = {self._said, self._calls, self._replies, self._told}
        os.set_blocking(self._told, False)  # a program that never reads must not hold us up
        self._buffer = bytearray()
        self._bytes = self._lines = 0

    def __enter__(self) -> Self:
        """Return the pipe."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        """Close what is open."""
        self._close(*self._open)

    @property
    def guest_ends(self) -> tuple[int, int]:
        """The descriptors that the program writes its calls to and reads its replies from."""
        return self._calls, self._replies

    def close_guest_ends(self) -> None:
        """Leave them to the program alone, so that its end is noticed."""
        self._close(*self.guest_ends)

    def receive(self, deadline: float) -> Said:
        """Return the program's next message.

        Args:
            deadline: On the clock of time.monotonic.

        Raises:
            Gone: There will be none.
            OutOfTime: The deadline passed.
            Misused: It is none that the interface sends.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > LINE_BYTES:
                raise Misused(f"sent a message of more than {LINE_BYTES // 2**20} MiB")
            self._buffer += self._read(deadline)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._lines += 1
        if self._lines > TRIAL_LINES:
            raise Misused(f"sent more than {TRIAL_LINES} messages")
        return parse(line)

    def send(self, values: Mapping[str, object], deadline: float) -> None:
        """Send the program a message.

        Raises:
            Gone: It closed its end.
            OutOfTime: It did not read it until the deadline.
        """
        line = memoryview(json.dumps(values).encode() + b"\n")
        while line:
            _wait(self._told, select.POLLOUT, deadline)
            try:
                line = line[os.write(self._told, line) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise Gone from error

    def _read(self, deadline: float) -> bytes:
        _wait(self._said, select.POLLIN, deadline)
        chunk = os.read(self._said, _CHUNK)
        if not chunk:
            raise Gone
        self._bytes += len(chunk)
        if self._bytes > TRIAL_BYTES:
            raise Misused(f"sent messages of more than {TRIAL_BYTES // 2**20} MiB together")
        return chunk

    def _close(self, *descriptors: int) -> None:
        for descriptor in set(descriptors) & self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


def parse(line: bytes) -> Said:
    """Return the message of a line.

    Raises:
        Misused: The interface sends no such line.
    """
    try:
        values = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise Misused("sent something that is no message of the interface (not valid JSON)") from error
    if isinstance(values, dict):
        if values.keys() == {"op", "messages", "n"} and values["op"] == "chat":
            return Chat(values["messages"], values["n"])
        if values.keys() == {"op", "text"} and isinstance(values["text"], str):
            kinds: dict[object, type[Answer | Failure | Contact]]
            kinds = {"answer": Answer, "failure": Failure, "contact": Contact}
            if isinstance(values["op"], str) and values["op"] in kinds:
                return kinds[values["op"]](well_formed(values["text"]))
    raise Misused("sent something that is no message of the interface")


def _refuse(constant: str) -> object:
    raise ValueError(constant)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise OutOfTime
