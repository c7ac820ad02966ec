import json
import os
import random
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcgeval.core.files import FileError
from pcgeval.judge import exchanges as module
from pcgeval.judge.exchanges import (
    CALL_KINDS,
    Exchanges,
    ExchangesError,
    JudgeExchange,
    named_recordings,
    read_exchanges,
)
from pcgeval.llm import keeping
from pcgeval.llm.protocol import ChatReply, LlmError

REPLY = ChatReply("Sc\u00f6re: 1\n\u2028", 100, 20, "stop", 1.25)


def exchange(key, leaf="root/a", kind="grade", reply=REPLY, reason=None, **more):
    return JudgeExchange(key, leaf, kind, more.get("vote", 0), more.get("attempt", 0), "ab" * 32, reply, reason)


def failed(key, reason="no reply within 3 s"):
    return exchange(key, reply=None, reason=reason)


def kept(path):
    return list(read_exchanges(path))


def test_what_was_kept_is_found_by_the_next_grading(tmp_path):
    journal = tmp_path / "sub" / "exchanges.jsonl"
    with Exchanges(journal) as store:
        store.keep(exchange("k1"))
        store.keep(failed("k2"))
        assert store.find("k1", failed_too=False) == exchange("k1")
    with Exchanges(journal) as store:
        assert store.find("k1", failed_too=False) == exchange("k1")
        assert store.find("k2", failed_too=False) is None
        assert store.find("k2", failed_too=True) == failed("k2")
        assert store.find("k3", failed_too=True) is None
        store.keep(exchange("k2"))  # asked again
    with Exchanges(journal) as store:
        assert store.find("k2", failed_too=True) == exchange("k2")


def test_recordings_are_only_read_and_the_journal_wins(tmp_path):
    recording, journal = tmp_path / "recording.jsonl", tmp_path / "journal.jsonl"
    with Exchanges(recording) as store:
        store.keep(exchange("k1"))
        store.keep(failed("k2"))
    before = recording.read_bytes()
    with Exchanges(journal, [recording, tmp_path / "none.jsonl"]) as store:
        assert store.find("k1", failed_too=False)
        store.keep(exchange("k2"))
        store.keep(exchange("k3"))
        store.finish(is_complete=True)
    assert recording.read_bytes() == before
    assert {each.key for each in kept(journal)} == {"k1", "k2", "k3"}
    with Exchanges(None, [recording, journal]) as store:
        assert store.find("k2", failed_too=False)


def test_a_finished_journal_is_sorted_and_holds_what_was_used(tmp_path):
    calls = [
        exchange(f"{leaf}{kind}{vote}{attempt}", leaf, kind, vote=vote, attempt=attempt)
        for leaf in ("root/a", "root/b", "root/c")
        for vote in range(2)
        for kind in CALL_KINDS
        for attempt in range(2)
    ]
    contents = []
    for seed in range(3):
        journal = tmp_path / f"{seed}.jsonl"
        with Exchanges(journal) as store:
            for each in random.Random(seed).sample(calls, len(calls)):
                store.keep(each)
        with Exchanges(journal) as store:
            for each in calls[: -len(calls) // 3]:
                store.find(each.key, failed_too=True)
            store.finish(is_complete=True)
        contents.append(journal.read_bytes())
    assert contents[0] == contents[1] == contents[2]
    assert kept(journal) == calls[: -len(calls) // 3]


def test_an_incomplete_grading_forgets_nothing(tmp_path):
    journal = tmp_path / "journal.jsonl"
    with Exchanges(journal) as store:
        store.keep(exchange("k1"))
    with Exchanges(journal) as store:
        store.keep(exchange("k2"))
        store.finish(is_complete=False)
    assert [each.key for each in kept(journal)] == ["k1", "k2"]


@given(data=st.data())
def test_a_torn_last_line_is_cut_off(tmp_path_factory, data):
    journal = tmp_path_factory.mktemp("torn") / "journal.jsonl"
    calls = [exchange(f"k{number}") for number in range(3)]
    with Exchanges(journal) as store:
        for each in calls:
            store.keep(each)
    content = journal.read_bytes()
    cut = data.draw(st.integers(0, len(content)))
    journal.write_bytes(content[:cut])
    whole = content[:cut].count(b"\n")
    with Exchanges(journal) as store:
        assert [bool(store.find(each.key, failed_too=True)) for each in calls] == [
            number < whole for number in range(3)
        ]
        store.keep(exchange("new"))
    assert [each.key for each in kept(journal)] == [*(each.key for each in calls[:whole]), "new"]


def test_garbage_that_a_disk_left_in_a_journal_is_passed_over(tmp_path):
    journal = tmp_path / "journal.jsonl"
    with Exchanges(journal) as store:
        store.keep(exchange("k1"))
    journal.write_bytes(journal.read_bytes() + b"\0\0\0\n" + b"\xff\n")
    with Exchanges(journal) as store:
        assert store.find("k1", failed_too=False)


@pytest.mark.parametrize("content", [b"# Notes\n", b"no end of line", b"\n", b'{"id": 1}\n', b"\0\0\0\n"])
def test_a_file_of_another_kind_stays_as_it_is(tmp_path, content):
    path = tmp_path / "notes.md"
    path.write_bytes(content)
    with pytest.raises(
        FileError, match=r"notes\.md: holds no exchanges of a judge\. Name another file, or remove it\."
    ):
        Exchanges(path)
    assert path.read_bytes() == content


def test_a_recording_that_somebody_named_has_to_be_there(tmp_path):
    assert named_recordings(None) == []
    with pytest.raises(FileError, match=r"none\.jsonl: no such recording"):
        named_recordings(tmp_path / "none.jsonl")


def test_a_journal_is_not_closed_while_a_reply_is_being_kept(tmp_path, monkeypatch):
    def slow(file, content):
        closing.start()
        closing.join(0.05)
        assert closing.is_alive()
        append(file, content)

    append = module._append
    monkeypatch.setattr(module, "_append", slow)
    store = Exchanges(tmp_path / "journal.jsonl")
    closing = threading.Thread(target=store.close)
    store.keep(exchange("k1"))
    closing.join()
    assert [each.key for each in kept(store.journal)] == ["k1"]


@pytest.mark.parametrize(
    "change",
    [
        {"reply": None},
        {"reason": "both"},
        {"kind": "guess"},
        {"vote": True},
        {"vote": "1"},
        {"key": 1},
        {"more": 1},
        {"reply": {"text": "a"}},
        {"reply": {**vars(REPLY), "seconds": float("inf")}},
    ],
)
def test_a_broken_line_of_a_recording_is_named(tmp_path, change):
    recording = tmp_path / "recording.jsonl"
    with Exchanges(recording) as store:
        store.keep(exchange("k1"))
        store.keep(exchange("k2"))
    first, second = recording.read_text().rstrip("\n").split("\n")
    recording.write_text(first + "\n" + json.dumps({**json.loads(second), **change}) + "\n")
    with pytest.raises(FileError, match=r"recording\.jsonl:2: no exchange"):
        Exchanges(tmp_path / "journal.jsonl", [recording])


def test_two_gradings_cannot_use_one_journal_at_once(tmp_path):
    journal = tmp_path / "journal.jsonl"
    with Exchanges(journal) as store:
        with pytest.raises(ExchangesError, match="another grading"):
            Exchanges(journal)
        store.finish(is_complete=True)
    with Exchanges(journal):
        pass


def test_the_lock_vanishes_with_its_process(tmp_path):
    journal = tmp_path / "journal.jsonl"
    script = (
        "import os, pathlib, sys; from pcgeval.judge.exchanges import Exchanges; "
        "store = Exchanges(pathlib.Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", script, str(journal)], check=False)
    with Exchanges(journal):
        pass


def test_no_reply_is_paid_for_that_cannot_be_kept(tmp_path, monkeypatch):
    with Exchanges(tmp_path / "journal.jsonl") as store:
        store.check_room()
        monkeypatch.setattr(keeping, "ROOM", 2**62)
        with pytest.raises(LlmError, match="Make room on the disk"):
            store.check_room()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device here")  # noqa: PTH110
def test_a_full_disk_is_a_fault_that_can_be_mended(tmp_path):
    with Exchanges(tmp_path / "journal.jsonl") as store:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, store._file)
        os.close(full)
        with pytest.raises((LlmError, OSError)):
            store.keep(exchange("k1"))


def test_without_a_journal_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Exchanges() as store:
        store.check_room()
        store.keep(exchange("k1"))
        assert store.find("k1", failed_too=False)
        store.finish(is_complete=True)
    assert not list(tmp_path.iterdir())
