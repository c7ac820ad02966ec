"""Recorded exchanges: replies that a real model gave once, found again by the SHA-256 of the request.

A recording is a JSON-lines file per model and team with one line per exchange:
`{"key", "letter", "trial", "reply": {text, prompt_tokens, output_tokens, done_reason, seconds}}`.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from pcgeval.files import FileError, read_json_lines, to_json, write_text
from pcgeval.llm.protocol import ChatReply, ChatRequest, LlmError


@dataclass(frozen=True, order=True)
class RecordedExchange:
    """One line of a recording: which trial asked, the key of its request, and the reply."""

    letter: str
    trial: int
    turn: int
    key: str
    reply: ChatReply


class RecordedModel:
    """Replays the exchanges of one recording; a request that was never recorded is an error, not an empty reply."""

    def __init__(self, recording: Path, digest: str | None) -> None:
        """Read a recording; `digest` is the model's as params.yaml pins it."""
        if digest is None:
            raise LlmError("a recorded model needs its digest in params.yaml: recordings are found by it.")
        if not recording.is_file():
            raise LlmError(f"{recording}: no such recording. Set the model's backend to ollama, or add the file.")
        self.recording = recording
        self._digest = digest
        self._replies = {exchange.key: exchange.reply for exchange in read_recording(recording)}

    def digest(self) -> str:
        """Return the pinned digest; a reply of other bytes is never found."""
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002 - a replay takes no time
        """Return the recorded reply of exactly this request."""
        try:
            return self._replies[request.key]
        except KeyError:
            raise LlmError(
                f"{self.recording}: no reply of {request.model} ({request.digest[:12]}) is recorded for this request: "
                "prompt, options, seed or digest changed since. "
                "Set the model's backend to ollama or llamacpp and run again to ask it for real."
            ) from None


def read_recording(path: Path) -> list[RecordedExchange]:
    """Read a recording.

    Raises:
        FileError: A line is no recorded exchange; the message names the file.
    """
    try:
        return [RecordedExchange(**{**line, "reply": ChatReply(**line["reply"])}) for line in read_json_lines(path)]
    except (TypeError, KeyError) as error:
        raise FileError(f"{path}: a line is no recorded exchange ({error}). Restore the file from git.") from error


def write_recording(path: Path, exchanges: Iterable[RecordedExchange]) -> None:
    """Write a recording, sorted by letter, trial and turn."""
    write_text(path, "".join(to_json(asdict(exchange), indent=None) + "\n" for exchange in sorted(exchanges)))
