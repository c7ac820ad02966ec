import pytest

from pcgeval.core.conduct import LONGEST_DETAIL, MOST_DETAILS, Conduct, Flag, read_conduct
from pcgeval.core.files import FileError, sha256_bytes
from pcgeval.core.layout import Trial
from pcgeval.generation import records
from pcgeval.generation.records import Exchange, TrialRecord, record_path, write_trial
from pcgeval.llm.protocol import ChatReply, Message

TRIAL = Trial("A", 1)
USER = (Message("user", "Build."),)
# as the generate step wrote it for a prompt before there were programs
OLD = (
    '{"digest": "d", "exchanges": [{"key": "k", "reply": {"done_reason": "stop", "output_tokens": 9, '
    '"prompt_tokens": 153, "seconds": 3.664, "text": "drop"}}], "fingerprint": "f", "model": "m", "reason": null, '
    '"response_sha256": "r", "seed": 1}'
)


def exchange(prompt, output):
    return Exchange("k", ChatReply("text", prompt, output, "stop", 0.5), USER)


def write(folder, exchanges=(), flags=(), contained=True):
    record = TrialRecord("f", 1, "m", "d", exchanges, sha256_bytes(b""), None, flags=flags, contained=contained)
    write_trial(folder, "team", TRIAL, "", record)


def write_raw(folder, content):
    path = record_path(folder, "team", TRIAL)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_what_the_generate_step_records_is_read_back(tmp_path):
    flags = (records.Flag("other-host", "tried to reach a.example"), records.Flag("altered-answer", "<b>\u202e"))
    write(tmp_path, (exchange(10, 5), exchange(20, 7)), flags, contained=False)
    found = read_conduct(tmp_path, "team", TRIAL)
    assert found == Conduct(2, 42, tuple(Flag(each.kind, each.detail) for each in flags), contained=False)
    assert found.flag("altered-answer") == Flag("altered-answer", "<b>\u202e")
    assert found.flag("invented-reply") is None


def test_a_trial_without_anything_to_tell(tmp_path):
    write(tmp_path)
    assert read_conduct(tmp_path, "team", TRIAL) == Conduct(0, 0, (), contained=True)


def test_old_records_have_no_flags(tmp_path):
    write_raw(tmp_path, OLD.encode())
    assert read_conduct(tmp_path, "team", TRIAL) == Conduct(1, 162, (), contained=True)


def test_a_response_without_a_record_says_nothing(tmp_path):
    assert read_conduct(tmp_path, "team", TRIAL) is None


def test_many_flags_of_one_kind_are_cut_and_hide_no_other(tmp_path):
    many = [records.Flag("invented-reply", f"{number} " + "x" * 1000) for number in range(500)]
    write(tmp_path, flags=(*many, records.Flag("altered-answer", "late")))
    found = read_conduct(tmp_path, "team", TRIAL)
    assert [flag.kind for flag in found.flags] == ["invented-reply"] * MOST_DETAILS + ["altered-answer"]
    assert {len(flag.detail) for flag in found.flags[:-1]} == {LONGEST_DETAIL}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"exchanges": [{"key": "k"}]}',
        b'{"exchanges": [{"reply": {"prompt_tokens": -1, "output_tokens": 1}}]}',
        b'{"exchanges": [], "flags": [{"kind": "bribed-judge", "detail": "x"}]}',
        b'{"exchanges": [], "flags": [{"kind": "other-host", "detail": 5}]}',
        b'{"exchanges": [], "contained": "perhaps"}',
    ],
)
def test_a_broken_record_is_named(tmp_path, content):
    write_raw(tmp_path, content)
    with pytest.raises(FileError, match=r"team_A_1\.json: not the record of a trial .*dvc repro") as caught:
        read_conduct(tmp_path, "team", TRIAL)
    assert len(str(caught.value)) < 1000


def test_a_record_that_is_a_folder_is_named(tmp_path):
    record_path(tmp_path, "team", TRIAL).mkdir(parents=True)
    with pytest.raises(FileError, match=r"team_A_1\.json: cannot be read"):
        read_conduct(tmp_path, "team", TRIAL)
