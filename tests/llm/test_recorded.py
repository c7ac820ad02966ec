import json
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.files import FileError
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message
from pcgeval.llm.recorded import RecordedExchange, RecordedModel, read_recording, write_recording

DIGEST = "ab" * 32
REPLY = ChatReply("Hello", 12, 3, "stop", 0.5)
LINE = {"key": "k", "letter": "A", "trial": 1, "turn": 1, "reply": {**REPLY.__dict__}}


def request(text="Hi", seed=5):
    return ChatRequest("toy:1b", DIGEST, (Message("user", text),), {"temperature": 1, "seed": seed})


def recorded(folder, *exchanges):
    write_recording(folder / "team.jsonl", exchanges)
    return RecordedModel(folder / "team.jsonl", DIGEST)


def test_a_reply_is_found_by_its_whole_request(tmp_path):
    model = recorded(tmp_path, RecordedExchange("A", 1, 1, request().key, REPLY))
    assert model.chat(request(), 1) == REPLY
    assert model.digest() == DIGEST
    for other in (request("Ho"), request(seed=6), replace(request(), digest="cd" * 32), replace(request(), model="m")):
        with pytest.raises(LlmError, match=r"team.jsonl: no reply of .* is recorded for this request.*ollama"):
            model.chat(other, 1)


def test_a_call_that_failed_fails_again(tmp_path):
    model = recorded(tmp_path, RecordedExchange("A", 1, 1, request().key, None, "model toy:1b: no usable reply"))
    for _ in range(2):
        with pytest.raises(CallError, match="model toy:1b: no usable reply"):
            model.chat(request(), 1)


def test_the_same_request_is_answered_in_the_order_of_the_turns(tmp_path):
    exchanges = [
        RecordedExchange("A", 1, turn, request().key, replace(REPLY, text=text))
        for turn, text in ((3, "three"), (1, "one"), (2, "two"))
    ]
    model = recorded(tmp_path, *exchanges)
    assert [model.chat(request(), 1).text for _ in range(5)] == ["one", "two", "three", "three", "three"]


def test_threads_get_each_recorded_reply(tmp_path):
    exchanges = [RecordedExchange("A", 1, turn, request().key, replace(REPLY, text=str(turn))) for turn in range(50)]
    model, found = recorded(tmp_path, *exchanges), []
    threads = [threading.Thread(target=lambda: found.append(int(model.chat(request(), 1).text))) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(50))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
COUNTS = st.integers(0, 10**6)
REPLIES = st.builds(ChatReply, TEXTS, COUNTS, COUNTS, TEXTS, st.floats(0, 1e6))


@given(st.lists(st.tuples(TEXTS, COUNTS, COUNTS, TEXTS, REPLIES | TEXTS), unique_by=lambda each: each[:3], max_size=8))
def test_what_is_written_is_read_in_order(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("recording") / "team.jsonl"
    exchanges = [
        RecordedExchange(*place, what, None) if isinstance(what, ChatReply) else RecordedExchange(*place, None, what)
        for *place, what in parts
    ]
    write_recording(path, exchanges)
    assert read_recording(path) == sorted(exchanges, key=lambda each: (each.letter, each.trial, each.turn))


def test_a_line_has_no_more_than_it_needs(tmp_path):
    recorded(tmp_path, RecordedExchange("A", 1, 1, "k", REPLY))
    assert json.loads((tmp_path / "team.jsonl").read_text()) == LINE


def altered(**changes):
    return {name: value for name, value in {**LINE, **changes}.items() if value is not ...}


def with_reply(**changes):
    return altered(reply={**LINE["reply"], **changes})


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"7",
        b'"reply"',
        b"\xff",
        b"[" * 100_000,
        altered(key=...),
        altered(reply=...),
        altered(reply=7),
        altered(reply=[]),
        altered(reason="also"),
        altered(more=1),
        altered(letter=1),
        altered(trial="1"),
        altered(turn=True),
        altered(key=None),
        with_reply(text=None),
        with_reply(prompt_tokens=-1),
        with_reply(output_tokens=1.5),
        with_reply(done_reason=[]),
        with_reply(seconds=float("nan")),
        with_reply(seconds=float("inf")),
        with_reply(seconds=-1),
        with_reply(seconds="1"),
        with_reply(more=1),
    ],
)
def test_a_line_that_is_no_exchange_is_named(tmp_path, line):
    path = tmp_path / "team.jsonl"
    path.write_bytes(
        b"\n".join([json.dumps(LINE).encode(), b"", line if isinstance(line, bytes) else json.dumps(line).encode()])
    )
    with pytest.raises(FileError, match=r"team\.jsonl:3: .*Restore the file from git"):
        read_recording(path)


def test_what_is_missing_says_what_to_do(tmp_path):
    with pytest.raises(LlmError, match="needs its digest"):
        RecordedModel(tmp_path / "none.jsonl", None)
    with pytest.raises(LlmError, match="no such recording"):
        RecordedModel(tmp_path / "none.jsonl", DIGEST)
    with pytest.raises(FileError, match="cannot be read"):
        read_recording(tmp_path)
