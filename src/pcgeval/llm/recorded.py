"""Recorded models: a model gave the replies once, and the SHA-256 of a request finds them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Self

from pcgeval.core.layout import Trial
from pcgeval.core.trials import ChatReply, TrialRecord
from pcgeval.llm.call_log import LoggedCall, RecordedTrial, read_lines
from pcgeval.llm.protocol import CallError, ChatRequest, LlmError


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
            raise LlmError("a recorded model needs its digest in params.yaml: recordings are found by it.")
        if not recording.is_file():
            raise LlmError(f"{recording}: no such recording. Set the model's backend to ollama, or add the file.")
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
                "the prompt, options, seed or digest changed since. "
                "Set the model's backend to ollama or llamacpp and run again to ask it."
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
