"""A trial's way to its model: nothing answered is asked again, whatever ended the run that asked it."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pcgeval.core.layout import Trial
from pcgeval.core.trials import FailedCall
from pcgeval.generation.attempt import TrialBackend
from pcgeval.llm import call_log
from pcgeval.llm.call_log import CallLog
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message


def reply(text: str) -> ChatReply:
    return ChatReply(text, 5, 6, "stop", 1.25)


def trial_of(backend: "Counter", folder: Path, team: str = "alpha") -> TrialBackend:
    return TrialBackend(backend, CallLog(folder), team, Trial("A", 1))


def request(text: str) -> ChatRequest:
    return ChatRequest("m:1", "d" * 64, (Message("user", text),), {"seed": 1})


@dataclass
class Counter:
    """Answers every request with its number; fails those that say so."""

    asked: list[str] = field(default_factory=list)

    def digest(self) -> str:
        return "d" * 64

    def chat(self, request: ChatRequest, timeout: float) -> ChatReply:  # noqa: ARG002
        self.asked.append(request.messages[0].content)
        match request.messages[0].content:
            case "fail":
                raise CallError("given up")
            case "gone":
                raise LlmError("no server")
        return reply(f"answer {len(self.asked)}")


def test_a_call_in_the_log_is_not_made_again(tmp_path: Path):
    first = trial_of(Counter(), tmp_path)
    said = [first.chat(request(text), 9).text for text in ("same", "other", "same")]
    backend = Counter()
    again = trial_of(backend, tmp_path)
    assert [again.chat(request(text), 9).text for text in ("same", "other", "same")] == said
    assert said == ["answer 1", "answer 2", "answer 1"]
    assert not backend.asked
    again.chat(request("new"), 9)
    assert backend.asked == ["new"]


def test_a_time_limit_or_a_team_is_no_reason_to_ask_again(tmp_path: Path):
    trial_of(Counter(), tmp_path).chat(request("x"), 9)
    backend = Counter()
    trial_of(backend, tmp_path, "beta").chat(request("x"), 5)
    assert not backend.asked
    trial_of(backend, tmp_path).chat(replace(request("x"), digest="e" * 64), 9)
    assert backend.asked == ["x"]


def test_a_call_that_failed_is_asked_again_and_does_not_count_as_answered(tmp_path: Path):
    for _ in range(2):
        backend = Counter()
        calls = trial_of(backend, tmp_path)
        calls.chat(request("x"), 9)
        with pytest.raises(CallError, match="given up"):
            calls.chat(request("fail"), 9)
        assert calls.failures == [FailedCall(2, request("fail").key, "given up")]
        assert backend.asked[-1] == "fail"

    class Recovered(Counter):
        def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
            if not self.asked:
                return super().chat(replace(request, messages=(Message("user", "fail"),)), timeout)
            return super().chat(request, timeout)

    calls = trial_of(Recovered(), tmp_path)
    with pytest.raises(CallError):
        calls.chat(request("at last"), 9)
    said = calls.chat(request("at last"), 9)
    assert trial_of(Counter(), tmp_path).chat(request("at last"), 9) == said


def test_a_backend_that_is_gone_leaves_no_trace(tmp_path: Path):
    calls = trial_of(Counter(), tmp_path)
    calls.chat(request("x"), 9)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")}
    with pytest.raises(LlmError):
        calls.chat(request("gone"), 9)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.jsonl")} == before


def test_what_is_used_is_what_is_kept(tmp_path: Path):
    """A lone surrogate cannot be written, so a replay could not repeat it."""

    class Broken(Counter):
        def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
            super().chat(request, timeout)
            if len(self.asked) > 1:
                raise CallError("no \ud800")
            return ChatReply("a\ud800b", 1, 1, "st\udfffop", 1.0)

    calls = trial_of(Broken(), tmp_path)
    used = calls.chat(request("x"), 9)
    assert used.text == "a\ufffdb"
    assert trial_of(Counter(), tmp_path).chat(request("x"), 9) == used
    with pytest.raises(CallError, match="no \ufffd"):
        calls.chat(request("y"), 9)


def test_a_full_disk_is_noticed_before_a_call_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(call_log, "ROOM", 2**70)
    backend = Counter()
    with pytest.raises(LlmError, match="are free on its disk"):
        trial_of(backend, tmp_path).chat(request("x"), 9)
    assert not backend.asked
