from dataclasses import replace

import pytest

from pcgeval.llm.call_log import LoggedCall, write_recording
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message
from pcgeval.llm.recorded import RecordedModel

DIGEST = "ab" * 32
REPLY = ChatReply("Hello", 12, 3, "stop", 0.5)


def request(text="Hi", seed=5):
    return ChatRequest("toy:1b", DIGEST, (Message("user", text),), {"temperature": 1, "seed": seed})


def recorded(folder, *exchanges):
    write_recording(folder / "team.jsonl", exchanges)
    return RecordedModel.read(folder / "team.jsonl", DIGEST)


def test_a_reply_is_found_by_its_whole_request(tmp_path):
    model = recorded(tmp_path, LoggedCall(key=request().key, reply=REPLY))
    assert model.chat(request(), 1) == REPLY
    assert model.digest() == DIGEST
    for other in (request("Ho"), request(seed=6), replace(request(), digest="cd" * 32), replace(request(), model="m")):
        with pytest.raises(LlmError, match=r"team.jsonl: no reply of .* is recorded for this request.*ollama"):
            model.chat(other, 1)


def test_calls_of_any_source_are_replayed():
    model = RecordedModel(iter([LoggedCall(key=request().key, reply=REPLY)]), DIGEST, "calls of alpha")
    assert model.chat(request(), 1) == REPLY
    assert model.knows(request())
    assert not model.knows(request("Ho"))
    with pytest.raises(LlmError, match=r"^calls of alpha: no reply of toy:1b"):
        model.chat(request("Ho"), 1)


def test_a_call_that_failed_fails_again(tmp_path):
    model = recorded(tmp_path, LoggedCall(key=request().key, reason="model toy:1b: no usable reply"))
    for _ in range(2):
        with pytest.raises(CallError, match="model toy:1b: no usable reply"):
            model.chat(request(), 1)


def test_the_first_of_several_outcomes_counts(tmp_path):
    exchanges = [LoggedCall(key=request().key, reply=replace(REPLY, text=text)) for text in ("one", "two")]
    model = recorded(tmp_path, *exchanges)
    assert [model.chat(request(), 1).text for _ in range(3)] == ["one"] * 3


def test_calls_that_ended_as_recorded_are_told_from_others(tmp_path):
    """So a finished trial is known to be older than its recording."""
    other = replace(REPLY, text="two")
    model = recorded(
        tmp_path,
        LoggedCall(key="k1", reply=REPLY),
        LoggedCall(key="k2", reason="no reply"),
    )
    for same in ([], [("k1", REPLY)], [("k2", "no reply"), ("k1", REPLY)]):
        assert model.replays(same)
    for changed in ([("k1", other)], [("k1", REPLY), ("k1", other)], [("k2", REPLY)], [("k2", ""), ("k3", REPLY)]):
        assert not model.replays(changed)
    assert not model.replays([("k1", replace(REPLY, seconds=1.0))])


def test_what_is_missing_says_what_to_do(tmp_path):
    with pytest.raises(LlmError, match="needs its digest"):
        RecordedModel.read(tmp_path / "none.jsonl", None)
    with pytest.raises(LlmError, match="no such recording"):
        RecordedModel.read(tmp_path / "none.jsonl", DIGEST)
