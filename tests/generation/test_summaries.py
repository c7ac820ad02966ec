"""What later stages see of a trial: its cost, failure and flags, and which blocks the submission told the model."""

from pathlib import Path

import pytest

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes
from pcgeval.core.layout import Trial
from pcgeval.core.trials import (
    MAX_DETAIL,
    MAX_DETAILS,
    ChatReply,
    Exchange,
    Flag,
    Message,
    TrialRecord,
    TrialSummary,
    read_summaries,
    record_path,
    write_trial,
)
from pcgeval.generation.summaries import summarise_trials, supplied_blocks
from pcgeval.submissions.load import Program, Prompt, Submission

TRIAL = Trial("I", 1)
PROGRAM = Program(Path("team"), "main.py")


def reply(text: str) -> ChatReply:
    return ChatReply(text, 10, 5, "stop", 1.0)


def record_of(*exchanges: Exchange, response: str = "", reason: str | None = None, **values: object) -> TrialRecord:
    digest = sha256_bytes(response.encode())
    return TrialRecord("f" * 64, 7, "m:1", "d" * 64, exchanges, digest, reason, **values)  # type: ignore[arg-type]


def summary_of(folder: Path, record: TrialRecord, response: str = "") -> TrialSummary:
    """Write a trial, summarise it in a file and read it from there."""
    write_trial(folder, "team", TRIAL, response, record)
    summarise_trials(folder / "summaries.json", folder, Submission("team", PROGRAM), [TRIAL])
    return read_summaries(folder / "summaries.json")[TRIAL]


def test_the_usage_of_a_trial_is_what_its_record_says(tmp_path: Path):
    flags = (Flag("other-host", "tried to reach a.example"), Flag("altered-answer", "<b>\u202e"))
    exchanges = (Exchange("k", reply("text")), Exchange("k", reply("more")))
    usage = summary_of(tmp_path, record_of(*exchanges, flags=flags, contained=False)).usage
    assert (usage.calls, usage.tokens, usage.flags, usage.contained) == (2, 30, flags, False)
    assert usage.flag("altered-answer") == flags[1]
    assert usage.flag("invented-reply") is None
    assert usage.supplied.share is None


def test_a_summary_has_the_failure_and_changes_with_every_response(tmp_path: Path):
    failed = summary_of(tmp_path, record_of(reason="no answer", cause="server"))
    assert (failed.letter, failed.trial, failed.failure) == ("I", 1, "no answer")
    assert failed.sha256 == sha256_bytes(record_path(tmp_path, "team", TRIAL).read_bytes())
    one, two = (summary_of(tmp_path, record_of(response=text), text) for text in ("one", "two"))
    assert one.failure is None
    assert len({failed.sha256, one.sha256, two.sha256}) == 3


def test_responses_without_records_cannot_be_summarised(tmp_path: Path):
    assert read_summaries(tmp_path / "summaries.json") == {}
    with pytest.raises(PcgevalError, match=r"team_I_1\.json: is missing"):
        summarise_trials(tmp_path / "summaries.json", tmp_path, Submission("team", PROGRAM), [TRIAL])


def test_many_flags_of_one_kind_are_cut_and_hide_no_other(tmp_path: Path):
    many = [Flag("invented-reply", f"{number} " + "x" * 1000) for number in range(500)]
    flags = summary_of(tmp_path, record_of(flags=(*many, Flag("altered-answer", "late")))).usage.flags
    assert [flag.kind for flag in flags] == ["invented-reply"] * MAX_DETAILS + ["altered-answer"]
    assert {len(flag.detail) for flag in flags[:-1]} == {MAX_DETAIL}


def level(*calls: str) -> str:
    return "\n".join(["```", *calls, "```"])


BASE, STEM = "drop_block('b31', 9)", "drop_block('b13', 9)"


def exchange(said: str, *sent: str) -> Exchange:
    return Exchange("k", reply(said), tuple(Message("user", text) for text in sent), 0)


def shares(response: str, *exchanges: Exchange, work: Prompt | Program = PROGRAM) -> tuple[int, int]:
    counted = supplied_blocks(work, "I", response, record_of(*exchanges, response=response))
    return counted.supplied, counted.blocks


def test_what_the_model_names_first_is_its_own_also_when_a_program_sends_it_back():
    draft = level(BASE)
    assert shares(draft, exchange(draft, "Draw an I.")) == (0, 1)
    better = level(BASE, STEM)
    assert shares(better, exchange(draft, "Draw an I."), exchange(better, f"Repair this: {draft}")) == (0, 2)


def test_an_example_in_a_prompt_supplies_the_blocks_that_the_response_repeats():
    prompt = Prompt(f"Draw <OBJECT>, for example {BASE}.")
    response = level(BASE, STEM, BASE)
    assert shares(response, Exchange("k", reply(response)), work=prompt) == (2, 3)
    other = Prompt("Draw <OBJECT>; b31 is 3 wide and 1 high.")
    assert shares(response, Exchange("k", reply(response)), work=other) == (0, 3)


@pytest.mark.parametrize(
    "dictated",
    ["@('b31', 9)\n@('b13', 9)", 'put("b31",9) put("b13",9)', "b31 9; b13 9", "B31, 9\nB13, 9", "b31|9|b13|9"],
)
def test_renamed_calls_are_still_the_submissions(dictated: str):
    response = level(BASE, STEM)
    assert shares(response, exchange(response, f"Replace @ by drop_block: {dictated}")) == (2, 2)


def test_calls_dictated_one_a_message_and_joined_are_the_submissions():
    talk = (exchange(call, f"Say {call}") for call in (BASE, STEM))
    assert shares(level(BASE, STEM), *talk) == (2, 2)


def test_a_response_without_a_level_has_no_share():
    assert shares("Sorry.", exchange("Sorry.", f"Say {BASE}")) == (0, 0)
    assert shares("", exchange("", BASE)) == (0, 0)
