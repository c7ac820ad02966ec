"""What later stages see of a trial: its cost, failure and flags, and which blocks the submission told the model."""

from pathlib import Path

import pytest

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_file, sha256_text
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
from pcgeval.generation.summaries import summarise_trials
from pcgeval.submissions.load import Program, Prompt, Submission

TRIAL = Trial("I", 1)
PROGRAM = Program(Path("team"), "main.py")


def reply(text: str) -> ChatReply:
    return ChatReply(text, 10, 5, "stop", 1.0)


@pytest.fixture
def summary(tmp_path: Path):
    """Return a function that writes a trial, summarises it in a file and reads it from there."""

    def summary_of(
        *exchanges: Exchange, response: str = "", work: Prompt | Program = PROGRAM, reason: str | None = None, **values
    ) -> TrialSummary:
        record = TrialRecord("f" * 64, 7, "m:1", "d" * 64, exchanges, sha256_text(response), reason, **values)
        write_trial(tmp_path, "team", TRIAL, response, record)
        summarise_trials(tmp_path / "summaries.json", tmp_path, Submission("team", work), [TRIAL])
        return read_summaries(tmp_path / "summaries.json")[TRIAL]

    return summary_of


def test_a_summary_says_what_its_record_says(summary):
    flags = (Flag("other-host", "tried to reach a.example"), Flag("altered-answer", "<b>\u202e"))
    usage = summary(Exchange("k", reply("text")), Exchange("k", reply("more")), flags=flags, contained=False).usage
    assert (usage.calls, usage.tokens, usage.flags, usage.contained) == (2, 30, flags, False)
    assert usage.flag("altered-answer") == flags[1]
    assert usage.flag("invented-reply") is None
    assert usage.supplied.share is None


def test_a_summary_has_the_failure_and_changes_with_every_response(summary, tmp_path: Path):
    failed = summary(reason="no answer", cause="server")
    assert (failed.letter, failed.trial, failed.failure) == ("I", 1, "no answer")
    assert failed.sha256 == sha256_file(record_path(tmp_path, "team", TRIAL))
    one, two = (summary(response=text) for text in ("one", "two"))
    assert one.failure is None
    assert len({failed.sha256, one.sha256, two.sha256}) == 3


def test_responses_without_records_cannot_be_summarised(tmp_path: Path):
    assert read_summaries(tmp_path / "summaries.json") == {}
    with pytest.raises(PcgevalError, match=r"team_I_1\.json: is missing"):
        summarise_trials(tmp_path / "summaries.json", tmp_path, Submission("team", PROGRAM), [TRIAL])


def test_many_flags_of_one_kind_are_cut_and_hide_no_other(summary):
    many = [Flag("invented-reply", f"{number} " + "x" * 1000) for number in range(500)]
    flags = summary(flags=(*many, Flag("altered-answer", "late"))).usage.flags
    assert [flag.kind for flag in flags] == ["invented-reply"] * MAX_DETAILS + ["altered-answer"]
    assert {len(flag.detail) for flag in flags[:-1]} == {MAX_DETAIL}


def level(*calls: str) -> str:
    return "\n".join(["```", *calls, "```"])


BASE, STEM = "drop_block('b31', 9)", "drop_block('b13', 9)"


def exchange(said: str, *sent: str) -> Exchange:
    return Exchange("k", reply(said), tuple(Message("user", text) for text in sent), 0)


DRAFT, BETTER = level(BASE), level(BASE, STEM)
DICTATED = ["@('b31', 9)\n@('b13', 9)", 'put("b31",9) put("b13",9)', "b31 9; b13 9", "B31, 9\nB13, 9", "b31|9|b13|9"]


@pytest.mark.parametrize(
    ("response", "exchanges", "supplied", "blocks"),
    [
        pytest.param(DRAFT, [exchange(DRAFT, "Draw an I.")], 0, 1, id="the model named it first"),
        pytest.param(
            BETTER,
            [exchange(DRAFT, "Draw an I."), exchange(BETTER, f"Repair this: {DRAFT}")],
            *(0, 2),
            id="the model named it before the program sent it back",
        ),
        *((BETTER, [exchange(BETTER, f"Replace @ by drop_block: {text}")], 2, 2) for text in DICTATED),
        pytest.param(
            BETTER,
            [exchange(call, f"Say {call}") for call in (BASE, STEM)],
            *(2, 2),
            id="dictated one call a message and joined",
        ),
        ("Sorry.", [exchange("Sorry.", f"Say {BASE}")], 0, 0),
        ("", [exchange("", BASE)], 0, 0),
    ],
)
def test_blocks_that_a_program_told_the_model_are_supplied(
    summary, response: str, exchanges: list[Exchange], supplied: int, blocks: int
):
    counted = summary(*exchanges, response=response).usage.supplied
    assert (counted.supplied, counted.blocks) == (supplied, blocks)


@pytest.mark.parametrize(("example", "supplied"), [(f"for example {BASE}", 2), ("b31 is 3 wide and 1 high", 0)])
def test_an_example_in_a_prompt_supplies_the_blocks_that_the_response_repeats(summary, example: str, supplied: int):
    response = level(BASE, STEM, BASE)
    prompt = Prompt(f"Draw <OBJECT>, {example}.")
    counted = summary(Exchange("k", reply(response)), response=response, work=prompt).usage.supplied
    assert (counted.supplied, counted.blocks) == (supplied, 3)
