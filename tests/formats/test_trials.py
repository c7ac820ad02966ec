"""Records of trials: what is written is read back, and nothing torn passes for a record."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import Trial, trial_file
from pcgeval.formats.trials import (
    ChatReply,
    Exchange,
    FailedCall,
    Flag,
    Message,
    SuppliedBlocks,
    TrialRecord,
    TrialUsage,
    best_levels,
    finished_trial,
    read_record,
    read_summaries,
    record_path,
    write_trial,
)
from pcgeval.generation.broker import LINE_BYTES, TRIAL_BYTES
from pcgeval.llm.call_log import RecordedTrial, read_lines, write_recording

TRIAL = Trial("A", 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
MESSAGES = st.builds(Message, st.sampled_from(["system", "user", "assistant"]), TEXTS)
REPLIES = st.builds(ChatReply, TEXTS, st.integers(0, 99), st.integers(0, 99), st.just("stop"), st.just(1.5))
EXCHANGES = st.builds(Exchange, TEXTS, REPLIES) | st.builds(
    Exchange, TEXTS, REPLIES, st.lists(MESSAGES, max_size=4).map(tuple), st.integers(0, 5)
)
# as the stage generate wrote it for a prompt before there were programs
OLD = (
    '{"digest": "d", "exchanges": [{"key": "k", "reply": {"done_reason": "stop", "output_tokens": 9, '
    '"prompt_tokens": 153, "seconds": 3.664, "text": "drop"}}], "fingerprint": "f", "model": "m", '
    '"response_sha256": "r", "seed": 1}'
)


def record_of(*exchanges: Exchange, response: str = "", **values: object) -> TrialRecord:
    digest = sha256_bytes(response.encode())
    return TrialRecord("f" * 64, 7, "m:1", "d" * 64, exchanges, digest, None, **values)  # type: ignore[arg-type]


def reply(text: str) -> ChatReply:
    return ChatReply(text, 5, 5, "stop", 1.0)


@given(
    st.lists(EXCHANGES, max_size=4),
    st.lists(st.builds(FailedCall, st.integers(1, 9), TEXTS, st.just(failure("filtered"))), max_size=2),
    st.lists(st.builds(Flag, st.just("other-host"), TEXTS), max_size=2),
    st.booleans(),
    TEXTS,
)
def test_what_is_written_is_read_back(tmp_path_factory, exchanges, failures, flags, contained, response):
    folder = tmp_path_factory.mktemp("raw")
    values = {"failed_calls": tuple(failures), "flags": tuple(flags), "contained": contained}
    record = record_of(*exchanges, response=response, **values)
    write_trial(folder, "alpha", TRIAL, response, record)
    assert finished_trial(folder, "alpha", TRIAL, "f" * 64) == record
    recorded = RecordedTrial(letter="A", trial=1, response=response, record=record, sha256=record.sha256)
    write_recording(folder / "calls.jsonl", [recorded])
    assert list(read_lines(folder / "calls.jsonl")) == [recorded]
    assert recorded.is_whole


def test_a_record_with_the_required_fields_alone_is_read(tmp_path: Path):
    (tmp_path / "old.json").write_text(OLD)
    assert read_record(tmp_path / "old.json").usage(SuppliedBlocks()) == TrialUsage(1, 162, (), contained=True)


def test_a_record_has_its_calls_in_order_and_few_flags_of_a_kind_are_summarised():
    one, two = (Exchange(key, reply("x")) for key in ("1", "2"))
    failures = FailedCall(1, "a", failure("filtered")), FailedCall(3, "b", failure("filtered"))
    assert record_of(one, two, failed_calls=failures).calls == (failures[0], one, failures[1], two)
    flags = tuple(Flag("other-host", f"{number}" * 400) for number in range(9))
    kept = record_of(flags=flags).usage(SuppliedBlocks()).flags
    assert [flag.detail for flag in kept] == ["0" * 300, "1" * 300, "2" * 300]


def test_of_equal_levels_of_a_letter_the_first_is_the_best_and_one_that_scores_nothing_is_none():
    assert best_levels([("A", 0.5, True), ("A", 0.5, False), ("B", 0.0, True)]) == (1, 1)


def test_any_torn_file_is_no_finished_trial(tmp_path: Path):
    record = record_of(Exchange("k", reply("answer")), response="answer")
    write_trial(tmp_path, "alpha", TRIAL, "answer", record)
    for path in (trial_file(tmp_path, "raw", "alpha", TRIAL), record_path(tmp_path, "alpha", TRIAL)):
        content = path.read_bytes()
        for size in range(len(content.rstrip(b"\n"))):
            for torn in (content[:size], content[:size] + bytes(len(content) - size)):
                path.write_bytes(torn)
                assert finished_trial(tmp_path, "alpha", TRIAL, "f" * 64) is None
        path.write_bytes(content)
    assert finished_trial(tmp_path, "alpha", TRIAL, "0" * 64) is None


@pytest.mark.parametrize(
    ("read", "content"),
    [
        (read_summaries, b'[{"letter": "A"}]'),
        *((read_record, content) for content in (b"", b"\xff", b"[" * 100_000, b"{}")),
        (read_record, OLD.replace("153", "9" * 4300).encode()),
        (read_record, OLD.replace('"seed": 1', '"seed": 1, "more": 1').encode()),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, read, content: bytes):
    (tmp_path / "broken.json").write_bytes(content)
    with pytest.raises(FileError, match=r"broken\.json: .*dvc repro") as caught:
        read(tmp_path / "broken.json")
    assert len(str(caught.value)) < 1000


def test_the_record_of_a_program_that_sent_all_that_it_may_is_read(tmp_path: Path) -> None:
    message = Message("user", "x" * (LINE_BYTES - 100))
    exchanges = [Exchange("k", reply(""), (message,))] * (TRIAL_BYTES // LINE_BYTES + 1)
    write_trial(tmp_path, "team", TRIAL, "", record_of(*exchanges))
    assert len(read_record(record_path(tmp_path, "team", TRIAL)).exchanges) == len(exchanges)
