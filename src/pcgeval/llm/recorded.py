"""The backend of recorded models: replies that a real model gave once, found again by the SHA-256 of the request."""

from collections.abc import Iterable
from pathlib import Path

from pcgeval.llm.call_log import read_recording
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError


class RecordedModel:
    """Replays the calls of one recording; a request that was never recorded is an error, not an empty reply.

    Of several outcomes of the same request the first counts, as in the call log.
    """

    def __init__(self, recording: Path, digest: str | None) -> None:
        """Read a recording; `digest` is the model's as params.yaml pins it."""
        if digest is None:
            raise LlmError("a recorded model needs its digest in params.yaml: recordings are found by it.")
        if not recording.is_file():
            raise LlmError(f"{recording}: no such recording. Set the model's backend to ollama, or add the file.")
        self.recording = recording
        self._digest = digest
        self._outcomes: dict[str, ChatReply | str] = {}  # by key: a reply, or the reason of a failed call
        for call in read_recording(recording):
            self._outcomes.setdefault(call.key, call.outcome)

    def digest(self) -> str:
        """Return the pinned digest; a reply of other bytes is never found."""
        return self._digest

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002 - a replay takes no time
        """Return the recorded reply of exactly this request.

        Raises:
            CallError: The call failed when it was recorded.
            LlmError: It was never recorded.
        """
        outcome = self._outcomes.get(request.key)
        if outcome is None:
            raise LlmError(
                f"{self.recording}: no reply of {request.model} ({request.digest[:12]}) is recorded for this request: "
                "prompt, options, seed or digest changed since. "
                "Set the model's backend to ollama or llamacpp and run again to ask it for real."
            )
        if isinstance(outcome, str):
            raise CallError(outcome)
        return outcome

    def replays(self, calls: Iterable[tuple[str, ChatReply | str]]) -> bool:
        """Tell whether calls (key, and reply or reason) would end as they did."""
        return all(self._outcomes.get(key) == outcome for key, outcome in calls)
