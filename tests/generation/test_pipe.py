"""The pipe to a program: what comes over it is either a message of the interface or refused, in bounded time."""

import json
import os
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from program_trials import soon

from pcgeval.generation import pipe as pipe_module
from pcgeval.generation.pipe import (
    AnswerMessage,
    ChatMessage,
    ContactMessage,
    DeadlinePassed,
    FailureMessage,
    Pipe,
    PipeClosed,
    ProtocolViolation,
    parse,
)


def line(value: object) -> bytes:
    return json.dumps(value).encode()


def test_the_four_messages_of_the_interface() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    assert parse(line({"op": "chat", "messages": messages, "n": 2})) == ChatMessage(messages, 2)
    assert parse(line({"op": "answer", "text": "ü"})) == AnswerMessage("ü")
    assert parse(line({"op": "failure", "text": "KeyError"})) == FailureMessage("KeyError")
    assert parse(line({"op": "contact", "text": "host"})) == ContactMessage("host")


def test_a_lone_surrogate_becomes_a_character_that_files_can_hold() -> None:
    assert parse(b'{"op": "answer", "text": "a\\ud800b"}') == AnswerMessage("a\ufffdb")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"\xff\xfe{}",
        b"[]",
        b"null",
        b"NaN",
        b'{"op": "chat", "messages": [], "n": NaN}',
        b'{"op": "chat", "messages": [], "n": -Infinity}',
        b'{"op": "chat", "messages": []}',
        b'{"op": "chat", "messages": [], "n": 1, "seed": 5}',
        b'{"op": "answer", "text": 5}',
        b'{"op": "answer", "text": null}',
        b'{"op": ["answer"], "text": "x"}',
        b'{"op": {}, "text": "x"}',
        b'{"op": "result", "text": "x"}',
        b'{"op": "chat", "messages": 1, "n": ' + b"9" * 5000 + b"}",
        b"[" * 100_000,
        b'{"op":' * 100_000,
        b'{"op": "answer", "text": "x"} {"op": "answer", "text": "y"}',
    ],
)
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="no message of the interface"):
        parse(content)


@given(st.binary(max_size=200) | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(line))
def test_no_bytes_do_more_than_be_refused(content: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        parse(content)


def test_messages_may_come_in_pieces_and_together() -> None:
    with Pipe() as pipe:
        calls, _ = pipe.guest_ends
        content = b"".join(line({"op": "answer", "text": str(number)}) + b"\n" for number in range(3))
        sender = threading.Thread(target=lambda: [os.write(calls, content[i : i + 1]) for i in range(len(content))])
        sender.start()
        assert [pipe.receive(soon()) for _ in range(3)] == [AnswerMessage("0"), AnswerMessage("1"), AnswerMessage("2")]
        sender.join()


def test_a_closed_pipe_is_noticed_on_both_sides() -> None:
    with Pipe() as pipe:
        os.write(pipe.guest_ends[0], b'{"op": "answer", "te')
        pipe.close_guest_ends()
        with pytest.raises(PipeClosed):
            pipe.receive(soon())
        with pytest.raises(PipeClosed):
            pipe.send({"texts": []}, soon())


def test_silence_and_a_reply_that_is_not_read_end_at_the_deadline() -> None:
    with Pipe() as pipe:
        with pytest.raises(DeadlinePassed):
            pipe.receive(time.monotonic() + 0.05)
        with pytest.raises(DeadlinePassed):
            pipe.send({"texts": ["x" * 1_000_000]}, time.monotonic() + 0.05)


def test_a_long_reply_reaches_a_slow_reader_whole() -> None:
    text = "word " * 100_000
    with Pipe() as pipe:
        received = bytearray()

        def read() -> None:
            while not received.endswith(b"\n"):
                received.extend(os.read(pipe.guest_ends[1], 5000))

        reader = threading.Thread(target=read)
        reader.start()
        pipe.send({"texts": [text]}, soon())
        reader.join()
    assert json.loads(received) == {"texts": [text]}


def feed(pipe: Pipe, content: bytes, times: int) -> threading.Thread:
    """Write from another thread until the pipe is closed."""

    def write() -> None:
        try:
            for _ in range(times):
                os.write(pipe.guest_ends[0], content)
        except OSError:
            pass

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    return thread


def test_a_line_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_module, "LINE_BYTES", 2**20)
    with Pipe() as pipe:
        writer = feed(pipe, b"x" * 65536, 10_000)
        with pytest.raises(ProtocolViolation, match="more than 1 MiB"):
            pipe.receive(soon())
        assert len(pipe._buffer) < 2**20 + 2 * 65536
        stop(pipe, writer)


def test_messages_without_end_are_cut_off_by_their_size_and_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_module, "TRIAL_BYTES", 2**20)
    monkeypatch.setattr(pipe_module, "TRIAL_LINES", 100)
    short = line({"op": "contact", "text": ""}) + b"\n"
    long = line({"op": "contact", "text": "x" * 60_000}) + b"\n"
    for content, wanted in ((short, "more than 100 messages"), (long, "more than 1 MiB together")):
        with Pipe() as pipe:
            writer = feed(pipe, content, 10_000)
            with pytest.raises(ProtocolViolation, match=wanted):
                receive_all(pipe)
            stop(pipe, writer)


def receive_all(pipe: Pipe) -> None:
    while True:
        pipe.receive(soon())


def stop(pipe: Pipe, writer: threading.Thread) -> None:
    """Let the writing thread meet a closed pipe, instead of waiting for ever."""
    os.close(pipe._said)
    pipe._open.remove(pipe._said)
    writer.join()
