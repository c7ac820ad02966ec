"""Talk to a program over a pipe: one JSON message a line, within bounds whatever the program sends.

The program may send lines without end, no JSON, deep nesting or wrong types, close the pipe, or never read its replies.
Reading takes time linear in what comes, and memory and waiting are bounded.
"""

import json
import os
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pcgeval.core.untrusted import well_formed

LINE_BYTES = 2 * 2**20  # of one message: some ten times a trial's tokens
TRIAL_BYTES = 64 * 2**20  # of all messages of a trial, which its record may come to hold
TRIAL_LINES = 10_000
CHUNK_BYTES = 65_536


class PipeClosed(Exception):  # noqa: N818 - an ending, not an error
    """The program closed its end of the pipe; mostly it has ended."""


class DeadlinePassed(Exception):  # noqa: N818
    """The deadline passed before the program sent or took a message."""


class ProtocolViolation(Exception):  # noqa: N818
    """The program sent what the interface package never sends; the text tells what, as a sentence about the program."""


@dataclass(frozen=True)
class ChatMessage:
    """A call of the model, as the program wrote it."""

    messages: object
    n: object


@dataclass(frozen=True)
class AnswerMessage:
    """The text that TrialLoop.run returned."""

    text: str


@dataclass(frozen=True)
class FailureMessage:
    """The reason why TrialLoop.run returned nothing, as the program tells it."""

    text: str


@dataclass(frozen=True)
class ContactMessage:
    """A hint that the program tried to reach another machine."""

    text: str


ProgramMessage = ChatMessage | AnswerMessage | FailureMessage | ContactMessage


class Pipe:
    """Two pipes, one for each direction; as a context manager it closes all ends that are still open."""

    def __init__(self) -> None:
        """Open both pipes."""
        self._said, self._calls = os.pipe()
        self._replies, self._told = os.pipe()
        self._open = {self._said, self._calls, self._replies, self._told}
        os.set_blocking(self._told, False)  # a program that never reads must not hold us up
        self._buffer = bytearray()
        self._bytes = self._lines = 0

    def __enter__(self) -> Self:
        """Return the pipe."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all ends that are open."""
        self._close(*self._open)

    @property
    def guest_ends(self) -> tuple[int, int]:
        """The descriptors that the program writes its calls to and reads its replies from."""
        return self._calls, self._replies

    def close_guest_ends(self) -> None:
        """Close the program's ends here, so that its exit is noticed."""
        self._close(*self.guest_ends)

    def receive(self, deadline: float) -> ProgramMessage:
        """Return the program's next message.

        Args:
            deadline: On the clock of time.monotonic.

        Raises:
            PipeClosed: There will be none.
            DeadlinePassed: None came in time.
            ProtocolViolation: It is none that the interface sends.
        """
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > LINE_BYTES:
                raise ProtocolViolation(f"sent a message of more than {LINE_BYTES // 2**20} MiB")
            _wait(self._said, select.POLLIN, deadline)
            chunk = os.read(self._said, CHUNK_BYTES)
            if not chunk:
                raise PipeClosed
            self._bytes += len(chunk)
            if self._bytes > TRIAL_BYTES:
                raise ProtocolViolation(f"sent messages of more than {TRIAL_BYTES // 2**20} MiB together")
            self._buffer += chunk
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._lines += 1
        if self._lines > TRIAL_LINES:
            raise ProtocolViolation(f"sent more than {TRIAL_LINES} messages")
        return parse(line)

    def send(self, values: Mapping[str, object], deadline: float) -> None:
        """Send the program a message.

        Raises:
            PipeClosed: It closed its end.
            DeadlinePassed: It did not read it in time.
        """
        line = memoryview(json.dumps(values).encode() + b"\n")
        while line:
            _wait(self._told, select.POLLOUT, deadline)
            try:
                line = line[os.write(self._told, line) :]
            except BlockingIOError:
                continue
            except BrokenPipeError as error:
                raise PipeClosed from error

    def _close(self, *descriptors: int) -> None:
        for descriptor in set(descriptors) & self._open:
            self._open.remove(descriptor)
            os.close(descriptor)


def parse(line: bytes) -> ProgramMessage:
    """Return the message of a line.

    Raises:
        ProtocolViolation: The interface sends no such line.
    """

    def refuse(constant: str) -> object:
        raise ValueError(constant)  # NaN and Infinity are no JSON

    try:
        match json.loads(line.decode("utf-8"), parse_constant=refuse):
            case {"op": "chat", "messages": messages, "n": n, **others} if not others:
                return ChatMessage(messages, n)
            case {"op": "answer", "text": str(text), **others} if not others:
                return AnswerMessage(well_formed(text))
            case {"op": "failure", "text": str(text), **others} if not others:
                return FailureMessage(well_formed(text))
            case {"op": "contact", "text": str(text), **others} if not others:
                return ContactMessage(well_formed(text))
    except (ValueError, RecursionError) as error:
        raise ProtocolViolation("sent something that is no message of the interface (not valid JSON)") from error
    raise ProtocolViolation("sent something that is no message of the interface")


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise DeadlinePassed
