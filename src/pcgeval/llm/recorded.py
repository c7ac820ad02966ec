"""Recorded exchanges: replies that a real model gave once, found again by the SHA-256 of the request.

A recording is a JSON-lines file per model and team with one line per call:
`{"key", "letter", "trial", "turn", "reply": {text, prompt_tokens, output_tokens, done_reason, seconds}}`;
a call that the model never answered has `"reason"` in place of `"reply"`.
"""

import json
import math
import threading
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pcgeval.core.files import FileError, to_json, write_text
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError


@dataclass(frozen=True)
class RecordedExchange:
    """One line of a recording: which trial asked, the key of its request, and the reply, or why there was none."""

    letter: str
    trial: int
    turn: int
    key: str
    reply: ChatReply | None
    reason: str | None = None


class RecordedModel:
    """Replays the exchanges of one recording; a request that was never recorded is an error, not an empty reply.

    A program may ask the very same twice, and a model on a graphics card may answer in other words the second time:
    then the replies come again in the order in which they were recorded, and the last one for ever after.
    """

    def __init__(self, recording: Path, digest: str | None) -> None:
        """Read a recording; `digest` is the model's as params.yaml pins it."""
        if digest is None:
            raise LlmError("a recorded model needs its digest in params.yaml: recordings are found by it.")
        if not recording.is_file():
            raise LlmError(f"{recording}: no such recording. Set the model's backend to ollama, or add the file.")
        self.recording = recording
        self._digest = digest
        self._lock = threading.Lock()
        self._exchanges: dict[str, list[RecordedExchange]] = {}
        for exchange in _exchanges(recording):
            self._exchanges.setdefault(exchange.key, []).append(exchange)
        for exchanges in self._exchanges.values():
            exchanges.reverse()  # the next one is the last

    def digest(self) -> str:
        """Return the pinned digest; a reply of other bytes is never found."""
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002 - a replay takes no time
        """Return the recorded reply of exactly this request.

        Raises:
            CallError: The call failed when it was recorded.
            LlmError: It was never recorded.
        """
        try:
            exchanges = self._exchanges[request.key]
        except KeyError:
            raise LlmError(
                f"{self.recording}: no reply of {request.model} ({request.digest[:12]}) is recorded for this request: "
                "prompt, options, seed or digest changed since. "
                "Set the model's backend to ollama or llamacpp and run again to ask it for real."
            ) from None
        with self._lock:
            exchange = exchanges.pop() if len(exchanges) > 1 else exchanges[0]
        if exchange.reply is None:
            raise CallError(exchange.reason)
        return exchange.reply


def read_recording(path: Path) -> list[RecordedExchange]:
    """Read a recording.

    Raises:
        FileError: A line is no recorded exchange; the message names it.
    """
    return list(_exchanges(path))


def write_recording(path: Path, exchanges: Iterable[RecordedExchange]) -> None:
    """Write a recording, sorted by letter, trial and turn."""
    in_order = sorted(exchanges, key=lambda exchange: (exchange.letter, exchange.trial, exchange.turn))
    write_text(path, "".join(to_json(_values(exchange), indent=None) + "\n" for exchange in in_order))


def _values(exchange: RecordedExchange) -> dict[str, Any]:
    return {name: value for name, value in asdict(exchange).items() if value is not None}


def _exchanges(path: Path) -> Iterator[RecordedExchange]:
    """Yield the exchanges line by line, so that no second copy of a big recording is in memory."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield _exchange(line, f"{path}:{number}")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror}). Check that it exists and is readable.") from error


def _exchange(line: bytes, place: str) -> RecordedExchange:
    try:
        values: dict[str, Any] = json.loads(line)
        reply = ChatReply(**values["reply"]) if "reply" in values else None
        exchange = RecordedExchange(**{**values, "reply": reply})
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise FileError(f"{place}: no recorded exchange ({error}). Restore the file from git.") from error
    if not _is_sound(exchange):
        raise FileError(f"{place}: a value of the exchange is of the wrong kind. Restore the file from git.")
    return exchange


def _is_sound(exchange: RecordedExchange) -> bool:
    reply = exchange.reply
    if (reply is None) == (exchange.reason is None):
        return False
    texts = [exchange.letter, exchange.key, exchange.reason or ""]
    counts = [exchange.trial, exchange.turn]
    seconds = 0.0
    if reply is not None:
        texts += [reply.text, reply.done_reason]
        counts += [reply.prompt_tokens, reply.output_tokens]
        seconds = reply.seconds
    return (
        all(isinstance(text, str) for text in texts)
        and all(type(count) is int and count >= 0 for count in counts)
        and type(seconds) in {int, float}
        and 0 <= seconds < math.inf
    )
