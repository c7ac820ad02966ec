"""The call log: nothing paid for is lost or asked again, whatever a kill, a full disk or another process does."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.errors import FileError
from pcgeval.llm import call_log
from pcgeval.llm.call_log import CallLog, LoggedCall, read_recording, write_recording
from pcgeval.llm.protocol import ChatReply, LlmError

REPLY = ChatReply("Sc\u00f6re: 1\n\u2028 \r😀", 100, 20, "stop", 1.25)
COUNTS = st.integers(0, 10**6)
CALLS = st.builds(
    LoggedCall,
    key=st.text(max_size=6),
    reply=st.builds(ChatReply, st.text(), COUNTS, COUNTS, st.text(max_size=4), st.floats(0, 1e6)),
    letter=st.none() | st.text(max_size=3),
    turn=st.none() | COUNTS,
)


def answered(key: str, **more: Any) -> LoggedCall:
    return LoggedCall(key=key, reply=REPLY, **more)


def failed(key: str, reason: str = "no reply within 3 s") -> LoggedCall:
    return LoggedCall(key=key, reason=reason)


def filled(folder: Path, *keys: str) -> CallLog:
    log = CallLog(folder)
    for key in keys:
        log.append(answered(key))
    return log


def found(folder: Path, *keys: str) -> list[bool]:
    log = CallLog(folder)
    return [log.find(key) is not None for key in keys]


@given(st.lists(CALLS, max_size=8, unique_by=lambda each: each.key))
def test_what_is_appended_is_what_every_later_log_finds(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("calls")
    log = CallLog(folder)
    kept = [log.append(call) for call in calls]
    later = CallLog(folder)
    for call in kept:
        assert log.find(call.key) == later.find(call.key) == call
    assert later.used == tuple(kept)


@given(st.lists(CALLS, max_size=8))
def test_a_recording_reads_back_as_it_was_written(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("recording")
    log = CallLog(None)
    kept = [log.append(call) for call in calls]
    write_recording(folder / "r.jsonl", kept)
    assert list(read_recording(folder / "r.jsonl")) == kept
    before = (folder / "r.jsonl").read_bytes()
    write_recording(folder / "r.jsonl", read_recording(folder / "r.jsonl"))
    assert (folder / "r.jsonl").read_bytes() == before


def test_a_line_has_no_more_than_it_needs():
    call = answered("k", letter="A", trial=1, turn=2)
    reply = {name: value for name, value in vars(REPLY).items() if value is not None}
    assert json.loads(call.line()) == {"key": "k", "letter": "A", "trial": 1, "turn": 2, "reply": reply}
    assert json.loads(LoggedCall(key="k", reason="r").line()) == {"key": "k", "reason": "r"}


def test_lone_surrogates_are_replaced_before_the_reply_is_used(tmp_path: Path):
    reply = ChatReply("a\ud800b", 1, 1, "st\udfffop", 1.0)
    used = CallLog(tmp_path).append(LoggedCall(key="k", reply=reply))
    assert used.reply == ChatReply("a\ufffdb", 1, 1, "st\ufffdop", 1.0)
    assert CallLog(tmp_path).find("k") == used


@pytest.mark.parametrize("folder", [None, "calls"])
def test_the_first_of_two_replies_to_the_same_call_counts_everywhere(tmp_path: Path, folder: str | None):
    log = CallLog(folder and tmp_path / folder)
    first = log.append(answered("k", leaf="first"))
    assert log.append(LoggedCall(key="k", reply=ChatReply("other", 1, 1, "stop", 1.0), leaf="second")) == first
    assert log.append(failed("k")) == first
    assert log.used == (first,)
    assert log.find("k") == first
    if folder:
        assert CallLog(tmp_path / folder).find("k") == first


def test_a_file_that_was_removed_meanwhile_and_a_folder_are_passed_over(tmp_path: Path):
    filled(tmp_path, "k")
    (tmp_path / "0-gone.jsonl").symlink_to(tmp_path / "removed")
    (tmp_path / "0-folder.jsonl").mkdir()
    write_recording(tmp_path / "0-folder.jsonl" / "inside", [answered("k2")])
    assert found(tmp_path, "k", "k2") == [True, False]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    filled(tmp_path, "k")
    (tmp_path / "0-loop.jsonl").symlink_to(tmp_path / "0-loop.jsonl")
    with pytest.raises(LlmError, match=r"0-loop\.jsonl: cannot be read"):
        CallLog(tmp_path).find("k")


def test_a_failed_call_is_kept_and_answers_nothing(tmp_path: Path):
    log = CallLog(tmp_path)
    log.append(failed("k"))
    assert log.find("k") is None
    assert CallLog(tmp_path).find("k", failed_too=True) is None
    (path,) = tmp_path.rglob("*.jsonl")
    assert list(read_recording(path)) == [failed("k")]
    assert log.used == (failed("k"),)
    log.append(answered("k"))
    assert CallLog(tmp_path).find("k") == answered("k")


def test_nothing_is_written_before_the_first_call(tmp_path: Path):
    log = CallLog(tmp_path / "calls")
    assert log.find("k") is None
    assert not list(tmp_path.iterdir())


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    log = CallLog(None)
    log.check_room()
    log.append(answered("k"))
    assert log.find("k") == answered("k")
    assert not list(tmp_path.iterdir())


def test_whatever_a_crash_leaves_the_whole_lines_count_and_the_log_goes_on(tmp_path: Path):
    filled(tmp_path, "k0", "k1", "k2")
    (path,) = tmp_path.glob("*.jsonl")
    whole = path.read_bytes()
    for size in range(len(whole) + 1):
        for garbage in (b"", bytes(40), b'{"key": 1', b"\xff\xfe\n", b"\0\0\n", b"\n", b"1\n", b'{"key": "k"}\n'):
            path.write_bytes(whole[:size] + garbage)
            lines = whole[: size + 1].count(b"\n") if garbage.startswith(b"\n") else whole[:size].count(b"\n")
            assert found(tmp_path, "k0", "k1", "k2") == [number < lines for number in range(3)]
    path.write_bytes(whole[:-5])
    filled(tmp_path, "k3")
    assert found(tmp_path, "k0", "k1", "k2", "k3") == [True, True, False, True]


APPEND_FOR_EVER = """
import sys
from itertools import count
from pathlib import Path
from pcgeval.llm.call_log import CallLog, LoggedCall
from pcgeval.llm.protocol import ChatReply
log = CallLog(Path(sys.argv[1]))
for number in count():
    key = f"{sys.argv[2]}-{number}"
    log.append(LoggedCall(key=key, reply=ChatReply("answer " * 500, 1, 1, "stop", 1.0)))
    print(key, flush=True)
"""


def writer(folder: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPEND_FOR_EVER, str(folder), name], stdout=subprocess.PIPE, text=True
    )


def test_processes_that_are_killed_lose_nothing_that_they_used(tmp_path: Path):
    for moment in range(3):
        writers = [writer(tmp_path, f"{moment}{name}") for name in "ab"]
        for each in writers:
            assert each.stdout
            each.stdout.readline()
        time.sleep(0.05 * moment)
        used = [f"{moment}{name}-0" for name in "ab"]
        for each in writers:
            each.kill()
            used += (each.communicate()[0] or "").split()
            assert each.returncode == -signal.SIGKILL
        assert all(found(tmp_path, *used))


def test_a_log_finds_what_another_process_appended_meanwhile(tmp_path: Path):
    one, other = CallLog(tmp_path), CallLog(tmp_path)
    assert one.find("k") is None
    other.append(answered("k"))
    assert one.find("k") == answered("k")
    other.append(answered("k2"))
    assert one.find("k2") == answered("k2")


def test_calls_of_several_threads_are_all_kept(tmp_path: Path):
    log = CallLog(tmp_path)
    threads = [threading.Thread(target=log.append, args=(answered(f"{at}"),)) for at in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found(tmp_path, *(f"{at}" for at in range(20))))


def test_a_call_waits_for_another_process_no_longer_than_its_own_time(tmp_path: Path):
    is_asked, may_end = threading.Event(), threading.Event()

    def ask_slowly(_: float) -> LoggedCall:
        is_asked.set()
        may_end.wait(60)
        return answered("k")

    first = threading.Thread(target=CallLog(tmp_path).answer, args=("k", ask_slowly, 60))
    first.start()
    is_asked.wait(60)
    call = CallLog(tmp_path).answer("k", lambda _: pytest.fail("the model was asked twice"), 0.2)
    assert call.cause == "server"
    assert "another process" in str(call.outcome)
    may_end.set()
    first.join()
    assert CallLog(tmp_path).answer("k", lambda _: pytest.fail("the model was asked twice"), 0.2).reply


def test_logs_of_two_machines_are_merged_by_copying_files(tmp_path: Path):
    filled(tmp_path / "here", "k1", "k2")
    filled(tmp_path / "there", "k2", "k3")
    for _ in range(2):
        shutil.copytree(tmp_path / "there", tmp_path / "here", dirs_exist_ok=True)
        assert found(tmp_path / "here", "k1", "k2", "k3", "k4") == [True, True, True, False]
    assert len(list((tmp_path / "here").iterdir())) == 2


def test_a_full_disk_is_noticed_before_a_call_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = CallLog(tmp_path / "calls")
    log.check_room()
    monkeypatch.setattr(call_log, "ROOM", 2**70)
    with pytest.raises(LlmError, match="are free on its disk"):
        log.check_room()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    log = CallLog(tmp_path / "file" / "calls")
    with pytest.raises(LlmError, match=r"file/calls: a reply cannot be kept"):
        log.check_room()
    with pytest.raises(LlmError, match=r"file/calls: a reply cannot be kept"):
        log.append(answered("k"))
    assert log.find("k") is None


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from pcgeval.llm.call_log import CallLog, LoggedCall
from pcgeval.llm.protocol import ChatReply, LlmError
log = CallLog(Path(sys.argv[1]))
log.append(LoggedCall(key="k1", reply=ChatReply("one", 1, 1, "stop", 1.0)))
(path,) = Path(sys.argv[1]).iterdir()
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
try:
    log.append(LoggedCall(key="k2", reply=ChatReply("two", 1, 1, "stop", 1.0)))
except LlmError as error:
    print(error)
assert path.stat().st_size == size and log.find("k2") is None
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append(LoggedCall(key="k3", reply=ChatReply("three", 1, 1, "stop", 1.0)))
"""


def test_a_reply_that_does_not_fit_leaves_the_file_as_it_was(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(tmp_path)], check=True, capture_output=True, text=True
    )
    assert "a reply cannot be kept" in done.stdout
    assert found(tmp_path, "k1", "k2", "k3") == [True, False, True]


def test_recordings_are_only_read_and_win(tmp_path: Path):
    recording = tmp_path / "recording.jsonl"
    write_recording(recording, [answered("k1"), failed("k2"), failed("k3")])
    before = recording.read_bytes()
    filled(tmp_path / "calls", "k4")
    log = CallLog(tmp_path / "calls", [recording])
    assert log.find("k2") is None
    assert log.find("k3", failed_too=True) == failed("k3")
    log.append(answered("k2", leaf="a"))
    log.append(answered("k1", leaf="never used"))
    assert [log.find(key) for key in ("k1", "k2", "k4")] == [answered("k1"), answered("k2", leaf="a"), answered("k4")]
    assert recording.read_bytes() == before


LINE = json.loads(answered("k", letter="A", trial=1, turn=1).line())


def altered(**changes: Any) -> bytes:
    return json.dumps({name: value for name, value in {**LINE, **changes}.items() if value is not ...}).encode()


def with_reply(**changes: Any) -> bytes:
    return altered(reply={**LINE["reply"], **changes})


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b"7",
        b'"reply"',
        b"\xff",
        b"\0\0\0",
        b"[" * 100_000,
        altered(key=...),
        altered(reply=...),
        altered(reply=7),
        altered(reply=[]),
        altered(reply={"text": "a"}),
        altered(reason="also"),
        altered(more=1),
        altered(letter=1),
        altered(trial="1"),
        altered(turn=True),
        altered(key=None),
        altered(key=1),
        altered(vote="1"),
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
def test_a_line_of_a_recording_that_is_no_call_is_named(tmp_path: Path, line: bytes):
    path = tmp_path / "team.jsonl"
    path.write_bytes(b"\n".join([json.dumps(LINE).encode(), b"", line]))
    with pytest.raises(FileError, match=r"team\.jsonl:3: .*Restore the file from git"):
        list(read_recording(path))
    with pytest.raises(FileError, match=r"team\.jsonl:3: "):
        CallLog(tmp_path / "calls", [path])


def test_a_recording_that_is_missing_is_named(tmp_path: Path):
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(FileError, match="cannot be read"):
            list(read_recording(path))


def test_a_folder_that_cannot_be_written_is_named_before_the_call_is_paid_for(tmp_path: Path):
    (tmp_path / "asking").write_text("no folder")
    with pytest.raises(LlmError, match="cannot be kept"):
        CallLog(tmp_path).answer("k", lambda _: pytest.fail("the model was asked"), 1)
