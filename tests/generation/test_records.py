"""Records of trials: what is written is read back, in few bytes, and nothing torn passes for a record."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.conduct import Flag
from pcgeval.core.files import FileError, sha256_bytes
from pcgeval.core.layout import Trial, trial_file
from pcgeval.generation.records import (
    Exchange,
    FailedCall,
    TrialRecord,
    finished_trial,
    read_record,
    record_path,
    whole_text,
    write_trial,
)
from pcgeval.llm.protocol import ChatReply, Message

TRIAL = Trial("A", 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
MESSAGES = st.builds(Message, st.sampled_from(["system", "user", "assistant"]), TEXTS)
REPLIES = st.builds(ChatReply, TEXTS, st.integers(0, 99), st.integers(0, 99), st.just("stop"), st.just(1.5))
EXCHANGES = st.builds(Exchange, TEXTS, REPLIES, st.none() | st.lists(MESSAGES, max_size=4).map(tuple))


def record_of(*exchanges: Exchange, response: str = "", **values: object) -> TrialRecord:
    digest = sha256_bytes(response.encode())
    return TrialRecord("f" * 64, 7, "m:1", "d" * 64, exchanges, digest, None, **values)  # type: ignore[arg-type]


def reply(text: str) -> ChatReply:
    return ChatReply(text, 5, 5, "stop", 1.0)


@given(
    st.lists(EXCHANGES, max_size=4),
    st.lists(st.builds(FailedCall, st.integers(1, 9), TEXTS, TEXTS), max_size=2),
    st.lists(st.builds(Flag, st.just("other-host"), TEXTS), max_size=2),
    st.booleans(),
    st.booleans(),
)
def test_what_is_written_is_read_back(tmp_path_factory, exchanges, failures, flags, contained, durable):
    folder = tmp_path_factory.mktemp("raw")
    record = record_of(*exchanges, failures=tuple(failures), flags=tuple(flags), contained=contained)
    write_trial(folder, "alpha", TRIAL, "", record, durable=durable)
    assert read_record(record_path(folder, "alpha", TRIAL)) == record
    assert finished_trial(folder, "alpha", TRIAL, "f" * 64) == record


def test_what_was_said_before_is_not_written_again(tmp_path: Path):
    """A program that sends all that was said so far would otherwise cost the square of its turns."""
    said: tuple[Message, ...] = (Message("system", "long " * 200),)
    exchanges = []
    for turn in range(20):
        said = (*said, Message("user", f"question {turn}"))
        exchanges.append(Exchange("k", reply(f"answer {turn}"), said))
        said = exchanges[-1].conversation
    write_trial(tmp_path, "alpha", TRIAL, "", record_of(*exchanges))
    text = record_path(tmp_path, "alpha", TRIAL).read_text()
    assert all(text.count(f'"{word} {turn}"') == 1 for word in ("question", "answer") for turn in range(20))
    assert text.count('"long ') == 1
    assert read_record(record_path(tmp_path, "alpha", TRIAL)).exchanges == tuple(exchanges)


def test_a_record_without_anything_unusual_has_no_keys_for_it(tmp_path: Path):
    write_trial(tmp_path, "alpha", TRIAL, "", record_of(Exchange("k", reply("x"))))
    values = json.loads(record_path(tmp_path, "alpha", TRIAL).read_text())
    assert set(values) == {"fingerprint", "seed", "model", "digest", "exchanges", "response_sha256", "reason"}
    assert set(values["exchanges"][0]) == {"key", "reply"}


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("which", ["response", "record"])
def test_any_torn_file_is_no_finished_trial(tmp_path: Path, which: str, durable: bool):
    record = record_of(Exchange("k", reply("answer")), response="answer")
    write_trial(tmp_path, "alpha", TRIAL, "answer", record, durable=durable)
    response, own = trial_file(tmp_path, "raw", "alpha", TRIAL), record_path(tmp_path, "alpha", TRIAL)
    path = response if which == "response" else own
    content = path.read_bytes()
    # the record's last byte is a line end, which carries nothing
    for size in range(len(content) - (which == "record")):
        path.write_bytes(content[:size])
        assert finished_trial(tmp_path, "alpha", TRIAL, "f" * 64) is None
        path.write_bytes(content[:size] + bytes(len(content) - size))
        assert finished_trial(tmp_path, "alpha", TRIAL, "f" * 64) is None
    path.write_bytes(content)
    assert finished_trial(tmp_path, "alpha", TRIAL, "f" * 64) == record
    assert finished_trial(tmp_path, "alpha", TRIAL, "0" * 64) is None
    assert not [each for each in tmp_path.rglob("*") if each.name.endswith(".part")]


@pytest.mark.parametrize(
    "text", ["[]", "null", "{}", '{"exchanges": [1]}', '{"exchanges": {"a": 1}}', '{"exchanges": [{"messages": []}]}']
)
def test_json_that_is_no_record_is_named(tmp_path: Path, text: str):
    path = tmp_path / "record.json"
    path.write_text(text)
    with pytest.raises(FileError, match=r"record\.json"):
        read_record(path)


def test_lone_surrogates_are_replaced_one_by_one():
    assert whole_text("a\ud800\udfffb😀") == "a\ufffd\ufffdb😀"
