"""The journal of an unfinished trial: nothing paid is lost, whatever a crash or a full disk leaves of its last line."""

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pcgeval.generation import journal as journal_module
from pcgeval.generation.journal import Journal, TrialBackend
from pcgeval.generation.records import Exchange, FailedCall
from pcgeval.llm import keeping
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message

FINGERPRINT = "f" * 64


def reply(text: str) -> ChatReply:
    return ChatReply(text, 5, 6, "stop", 1.25)


CALLS = (
    Exchange("k1", reply("one\nline 😀 \u2028 \r")),
    FailedCall(0, "k2", "no reply within 50 s"),
    Exchange("k1", reply("two")),
)


def filled(path: Path) -> bytes:
    journal = Journal(path, FINGERPRINT)
    for call in CALLS:
        journal.append(call)
    return path.read_bytes()


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


def test_calls_are_read_back_in_order(tmp_path: Path):
    filled(tmp_path / "a" / "j.jsonl")
    assert Journal(tmp_path / "a" / "j.jsonl", FINGERPRINT).calls == CALLS


def test_nothing_is_written_before_the_first_call(tmp_path: Path):
    Journal(tmp_path / "a" / "j.jsonl", FINGERPRINT)
    assert not list(tmp_path.iterdir())


def test_whatever_a_crash_leaves_the_whole_lines_stay_and_appending_goes_on(tmp_path: Path):
    path = tmp_path / "j.jsonl"
    whole = filled(path)
    for size in range(len(whole) + 1):
        for garbage in (b"", bytes(40), b'{"key": 1', b"\xff\xfe\n"):
            path.write_bytes(whole[:size] + garbage)
            found = Journal(path, FINGERPRINT)
            lines = max(whole[:size].count(b"\n") - 1, 0)  # the first line is the fingerprint
            assert found.calls == CALLS[:lines]
            found.append(CALLS[2])
            assert Journal(path, FINGERPRINT).calls == (*CALLS[:lines], CALLS[2])


@pytest.mark.parametrize("line", [b"1\n", b"[]\n", b'{"key": "k"}\n', b'{"key": "k", "reply": {"text": "x"}}\n', b"\n"])
def test_a_line_that_is_no_call_ends_what_counts(tmp_path: Path, line: bytes):
    path = tmp_path / "j.jsonl"
    whole = filled(path)
    path.write_bytes(whole + line + whole.splitlines(keepends=True)[1])
    assert Journal(path, FINGERPRINT).calls == CALLS


def test_calls_of_another_fingerprint_do_not_count(tmp_path: Path):
    path = tmp_path / "j.jsonl"
    filled(path)
    other = Journal(path, "0" * 64)
    assert other.calls == ()
    other.append(CALLS[0])
    assert Journal(path, "0" * 64).calls == CALLS[:1]
    assert Journal(path, FINGERPRINT).calls == ()


def test_a_call_in_the_journal_is_not_made_again(tmp_path: Path):
    path = tmp_path / "j.jsonl"
    first = TrialBackend(Counter(), Journal(path, FINGERPRINT))
    said = [first.chat(request(text), 9).text for text in ("same", "other", "same")]
    with pytest.raises(CallError):
        first.chat(request("fail"), 9)
    backend = Counter()
    again = TrialBackend(backend, Journal(path, FINGERPRINT))
    assert [again.chat(request(text), 9).text for text in ("same", "other", "same")] == said
    assert said == ["answer 1", "answer 2", "answer 3"]
    with pytest.raises(CallError, match="given up"):
        again.chat(request("fail"), 9)
    assert not backend.asked
    assert again.failures == first.failures == (FailedCall(4, request("fail").key, "given up"),)
    again.chat(request("same"), 9)
    assert backend.asked == ["same"]


def test_a_backend_that_is_gone_leaves_no_trace(tmp_path: Path):
    path = tmp_path / "j.jsonl"
    calls = TrialBackend(Counter(), Journal(path, FINGERPRINT))
    calls.chat(request("x"), 9)
    before = path.read_bytes()
    with pytest.raises(LlmError):
        calls.chat(request("gone"), 9)
    assert path.read_bytes() == before


def test_what_is_used_is_what_is_kept(tmp_path: Path):
    """A lone surrogate cannot be written, so a replay could not repeat it."""

    class Broken(Counter):
        def chat(self, request: ChatRequest, timeout: float) -> ChatReply:
            super().chat(request, timeout)
            return ChatReply("a\ud800b", 1, 1, "st\udfffop", 1.0)

    path = tmp_path / "j.jsonl"
    used = TrialBackend(Broken(), Journal(path, FINGERPRINT)).chat(request("x"), 9)
    assert used.text == "a\ufffdb"
    assert TrialBackend(Broken(), Journal(path, FINGERPRINT)).chat(request("x"), 9) == used


def test_calls_of_several_threads_are_all_kept(tmp_path: Path):
    path = tmp_path / "j.jsonl"
    calls = TrialBackend(Counter(), Journal(path, FINGERPRINT))
    threads = [threading.Thread(target=calls.chat, args=(request(f"{at}"), 9)) for at in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {call.key for call in Journal(path, FINGERPRINT).calls} == {request(f"{at}").key for at in range(20)}


def test_a_full_disk_is_noticed_before_a_call_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keeping, "ROOM", 2**70)
    backend = Counter()
    with pytest.raises(LlmError, match="are free on its disk"):
        TrialBackend(backend, Journal(tmp_path / "j.jsonl", FINGERPRINT)).chat(request("x"), 9)
    assert not backend.asked


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "j.jsonl"
    whole = filled(path)
    journal = Journal(path, FINGERPRINT)

    def half(file: int, content: bytes, offset: int) -> int:
        if offset > len(whole):
            raise OSError(28, "No space left on device")
        return os.write(file, content[:3]) if os.lseek(file, offset, os.SEEK_SET) >= 0 else 0

    with monkeypatch.context() as patch:
        patch.setattr(journal_module.os, "pwrite", half)
        with pytest.raises(LlmError, match="No space left on device"):
            journal.append(CALLS[0])
    assert path.read_bytes() == whole
    journal.append(CALLS[0])
    assert Journal(path, FINGERPRINT).calls == (*CALLS, CALLS[0])
