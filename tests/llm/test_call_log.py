"""The call log: nothing paid for is lost or asked again, whatever a kill, a full disk or another process does."""

import json
import resource
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from workspace import REPOSITORY

from pcgeval.core.errors import FileError
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import SUBMISSIONS, recording_file
from pcgeval.formats.params import load_params
from pcgeval.formats.trials import Attempt, FailedCall, TrialRecord
from pcgeval.generation.tasks import GenerationTask
from pcgeval.llm import call_log
from pcgeval.llm.call_log import (
    NEUTRAL,
    CallLog,
    LoggedCall,
    RecordedModel,
    read_recording,
    unproved_calls,
    write_recording,
)
from pcgeval.llm.protocol import CallError, ChatReply, ChatRequest, LlmError, Message
from pcgeval.submissions.load import Prompt, load_submission

READY = ChatReply("ready", 9, 2, "stop", 1.0)

DIGEST = "ab" * 32
REPLY = ChatReply("Sc\u00f6re: 1\n\u2028 \r😀", 100, 20, "stop", 1.25)
REQUEST = ChatRequest("toy:1b", DIGEST, (Message("user", "Hi"),), {"temperature": 1, "seed": 5})
COUNTS = st.integers(0, 10**6)
CALLS = st.builds(
    LoggedCall,
    key=st.text("abc", min_size=1, max_size=3),  # it names a lock's file
    reply=st.builds(ChatReply, st.text(), COUNTS, COUNTS, st.text(max_size=4), st.floats(0, 1e6)),
    letter=st.none() | st.text(max_size=3),
    turn=st.none() | COUNTS,
)


def answered(key: str, **more: Any) -> LoggedCall:
    return LoggedCall(key=key, reply=REPLY, **more)


def failed(key: str, reason: str = "no reply within 3 s") -> LoggedCall:
    return LoggedCall(key=key, reason=reason)


def keep(log: CallLog, call: LoggedCall) -> LoggedCall:
    return log.answer(call.key, lambda _: call, 5)


def filled(folder: Path, *keys: str) -> CallLog:
    log = CallLog(folder)
    for key in keys:
        keep(log, answered(key))
    return log


def knows(folder: Path, *keys: str) -> list[bool]:
    log = CallLog(folder)
    return [log.find(key) is not None for key in keys]


def not_asked(_: float) -> LoggedCall:
    pytest.fail("the model was asked")


@given(st.lists(CALLS, max_size=8, unique_by=lambda call: call.key))
def test_what_is_answered_is_what_every_log_finds_and_every_recording_holds(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("calls")
    log, other = CallLog(folder), CallLog(folder)
    answers = [keep(log, call) for call in calls]
    for call in answers:
        assert log.find(call.key) == other.answer(call.key, not_asked, 1) == CallLog(folder).find(call.key) == call
    recording = folder / "recording"
    write_recording(recording, answers)
    assert list(read_recording(recording)) == answers


def test_a_line_has_what_it_needs_and_no_lone_surrogates(tmp_path: Path):
    call = answered("k", letter="A", trial=1, turn=2)
    reply = {name: value for name, value in vars(REPLY).items() if value is not None}
    assert json.loads(call.line()) == {"key": "k", "letter": "A", "trial": 1, "turn": 2, "reply": reply}
    assert json.loads(failed("k", "r").line()) == {"key": "k", "reason": "r"}
    used = keep(CallLog(tmp_path), LoggedCall(key="k", reply=replace(REPLY, text="a\ud800b", done_reason="st\udfffop")))
    assert used.reply == replace(REPLY, text="a\ufffdb", done_reason="st\ufffdop")
    assert CallLog(tmp_path).find("k") == used


def test_nothing_is_written_before_the_first_call_or_without_a_folder_or_when_it_is_only_read(tmp_path: Path):
    for log in (CallLog(None), CallLog(tmp_path / "calls", read_only=True)):
        assert keep(log, answered("k")) == log.find("k") == answered("k")
    assert not list(tmp_path.iterdir())


def test_whatever_a_crash_leaves_the_whole_lines_count_and_the_log_goes_on(tmp_path: Path):
    filled(tmp_path, "k0", "k1", "k2")
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        for garbage in (b"", bytes(40), b'{"key": 1', b"\xff\xfe\n", b"\0\0\n", b"\n", b"1\n", b'{"key": "k"}\n'):
            path.write_bytes(whole[:size] + garbage)
            lines = whole[: size + 1].count(b"\n") if garbage.startswith(b"\n") else whole[:size].count(b"\n")
            assert knows(tmp_path, "k0", "k1", "k2") == [number < lines for number in range(3)]
    path.write_bytes(whole[:-5])
    filled(tmp_path, "k3")
    assert knows(tmp_path, "k0", "k1", "k2", "k3") == [True, True, False, True]


def test_threads_get_one_answer_to_one_call_and_lose_none(tmp_path: Path):
    log = CallLog(tmp_path)
    asked: list[int] = []

    def ask(number: int) -> int | None:
        def slowly(_: float) -> LoggedCall:
            asked.append(number)
            time.sleep(0.05)
            return answered("same", turn=number)

        keep(log, answered(f"{number}"))
        return log.answer("same", slowly, 60).turn

    with ThreadPoolExecutor(20) as pool:
        assert set(pool.map(ask, range(20))) == set(asked)
    assert len(asked) == 1
    assert all(knows(tmp_path, "same", *map(str, range(20))))


def test_a_call_waits_for_another_process_no_longer_than_its_own_time(tmp_path: Path):
    def ask_while_another_waits(_: float) -> LoggedCall:
        waited = CallLog(tmp_path).answer("k", not_asked, 0.2)
        assert waited.failure.kind == "server-failed"
        assert "another process" in str(waited.outcome)
        return answered("k")

    CallLog(tmp_path).answer("k", ask_while_another_waits, 60)
    assert CallLog(tmp_path).answer("k", not_asked, 0.2).reply


def test_what_prevents_that_a_reply_is_kept_is_noticed_before_it_is_paid_for(tmp_path: Path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(LlmError, match="/file: a reply cannot be kept"):
        CallLog(tmp_path / "file").answer("k", not_asked, 1)
    monkeypatch.setattr(call_log, "ROOM", 2**70)
    with pytest.raises(LlmError, match="a reply cannot be kept"):
        CallLog(tmp_path).answer("k", not_asked, 1)


def test_a_reply_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path):
    log = filled(tmp_path, "k1")
    (path,) = tmp_path.glob("*.jsonl")
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        with pytest.raises(LlmError, match="a reply cannot be kept"):
            keep(log, answered("k2"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    keep(log, answered("k3"))
    assert knows(tmp_path, "k1", "k2", "k3") == [True, False, True]


def test_recordings_win_and_failed_calls_answer_replays_only(tmp_path: Path):
    recording = tmp_path / "recording.jsonl"
    recorded = answered("k1", leaf="recorded")
    write_recording(recording, [recorded, failed("k2"), failed("k3"), failed("k4"), failed("k1")])
    before = recording.read_bytes()
    filled(tmp_path / "calls", "k1", "k4")
    log = CallLog(tmp_path / "calls", [recording])
    assert log.find("k2") is None
    replayed = [recorded, failed("k2"), failed("k3"), failed("k4")]
    assert [log.find(call.key, failed_too=True) for call in replayed] == replayed
    keep(log, answered("k2", leaf="a"))
    assert [log.find(key) for key in ("k1", "k2", "k4")] == [recorded, answered("k2", leaf="a"), answered("k4")]
    assert recording.read_bytes() == before


LINE = json.loads(answered("k", letter="A").line())
OTHERS = [{"more": 1}, {"reply": None}, {"reason": "failed"}, {"reply": {"text": "a"}}]
NO_CALLS = [b"[]", b"\xff", b"[" * 100_000, *(json.dumps(LINE | values).encode() for values in OTHERS)]


@pytest.mark.parametrize("line", NO_CALLS, ids=range(len(NO_CALLS)))
def test_a_line_of_a_recording_that_is_no_call_is_named(tmp_path: Path, line: bytes):
    path = tmp_path / "team.jsonl"
    path.write_bytes(b"\n".join([json.dumps(LINE).encode(), b"", line]))
    with pytest.raises(FileError, match=r"team\.jsonl:3: .*Restore the file from git"):
        CallLog(None, [path])
    with pytest.raises(FileError, match=r"none\.jsonl: cannot be read"):
        CallLog(None, [tmp_path / "none.jsonl"])


def test_a_recorded_model_replays_the_first_outcome_of_exactly_the_same_request(tmp_path: Path):
    failing = replace(REQUEST, options={"seed": 6})
    calls = [answered(REQUEST.key), LoggedCall(key=REQUEST.key, reply=replace(REPLY, text="two")), failed(failing.key)]
    write_recording(tmp_path / "team.jsonl", calls)
    model = RecordedModel.read(tmp_path / "team.jsonl", DIGEST)
    for _ in range(2):
        assert model.chat(REQUEST, 1) == REPLY
        with pytest.raises(CallError, match="no reply within 3 s"):
            model.chat(failing, 1)
    for changes in ({"messages": ()}, {"options": {"seed": 5}}, {"digest": "cd" * 32}, {"model": "m"}):
        with pytest.raises(LlmError, match=r"team.jsonl: no reply of .* is recorded for this request.*backend"):
            model.chat(replace(REQUEST, **changes), 1)


DEMO = load_params(REPOSITORY / "params.yaml")


@pytest.mark.parametrize("model", DEMO.models)
@pytest.mark.parametrize("team", DEMO.teams)
def test_the_demos_recordings_answer_the_requests_that_its_submissions_make_now(model: str, team: str):
    submission = load_submission(REPOSITORY / SUBMISSIONS / team, DEMO.teams[team])
    task = GenerationTask(
        submission, DEMO.models[model], str(DEMO.models[model].digest), DEMO.limits, DEMO.competition.seed
    )
    recording = REPOSITORY / recording_file(model, team)
    recorded = RecordedModel.read(recording, task.digest)
    for trial in DEMO.trials():
        if isinstance(submission.work, Prompt):
            assert recorded.call(task.request(trial)).reply
        else:
            assert recorded.finished_trial(trial, task.fingerprint(trial))


@pytest.mark.parametrize(
    ("kind", "attempt", "is_proven"),
    [
        ("request-fails", {"blame": "undecided", "neutral": READY}, True),
        ("request-fails", {"blame": "undecided"}, False),
        ("request-fails", {"blame": "request"}, False),
        ("filtered", {"blame": "request", "neutral": READY}, True),
        ("filtered", {"blame": "request"}, True),  # as earlier versions recorded it
        ("filtered", {"blame": "request", "neutral": replace(READY, seconds=2.0)}, False),
    ],
)
def test_an_attempt_needs_the_reply_to_a_neutral_call_and_no_failed_neutral_call_is_one(
    kind: str, attempt: dict[str, Any], is_proven: bool
):
    failed = failure(kind, attempts=1, last="broke off")
    attempts = (Attempt(status=400, words="no", seconds=1.0, **attempt),)
    record = TrialRecord("f", 1, "m", "d", (), "r", failed, (FailedCall(1, "k", failed, attempts),))
    known = [
        LoggedCall(key="k", failure=failed, attempts=attempts),
        LoggedCall(key="n", reply=READY, kind=NEUTRAL),
        LoggedCall(key="n", reason="away", kind=NEUTRAL),
    ]
    assert (unproved_calls(record, known) == []) == is_proven
