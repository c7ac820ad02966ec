"""What later stages see of a trial: the hash of its record, and which blocks the submission told the model."""

from pathlib import Path

import pytest

from pcgeval.core.files import sha256_file, sha256_text
from pcgeval.formats import trials
from pcgeval.formats.failures import failure
from pcgeval.formats.layout import Trial
from pcgeval.formats.params import Model
from pcgeval.formats.trials import Exchange, TrialRecord, TrialSummary, record_path
from pcgeval.generation.summaries import summarise_trials
from pcgeval.llm.protocol import ChatReply, Message
from pcgeval.submissions.load import Program, Prompt, Submission

TRIAL = Trial("I", 1)
PROGRAM = Program(Path("team"), "main.py")


MODEL = Model(backend="ollama", name="m:1", options={"num_predict": 200, "num_ctx": 2048})


def summary(folder: Path, *exchanges: Exchange, response: str, work: Prompt | Program = PROGRAM) -> TrialSummary:
    """Write a trial, summarise it in a file and read it from there."""
    record = TrialRecord("f" * 64, 7, "m:1", "d" * 64, exchanges, sha256_text(response), None)
    trials.write_trial(folder, "team", TRIAL, response, record)
    summarise_trials(folder / "summaries.json", folder, Submission("team", work), [TRIAL], MODEL)
    return trials.read_summaries(folder / "summaries.json")[TRIAL]


def exchange(reply: str, *sent: str) -> Exchange:
    messages = tuple(Message("user", text) for text in sent)
    return Exchange("k", ChatReply(reply, 10, 5, "stop", 1.0), messages, 0)


def test_a_summary_has_the_hash_of_its_record_which_changes_with_every_response(tmp_path):
    one = summary(tmp_path, response="one").sha256
    assert one == sha256_file(record_path(tmp_path, "team", TRIAL))
    assert one != summary(tmp_path, response="two").sha256


def test_a_record_has_one_hash_whatever_words_a_program_ended_with():
    records = [
        TrialRecord("f" * 64, 7, "m:1", "d" * 64, (), sha256_text(""), failure("program-error", detail=words))
        for words in ("KeyError: /home/one", "KeyError: /home/two")
    ]
    assert records[0].sha256 == records[1].sha256
    assert records[0] != records[1]


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (ChatReply("```\ndrop", 100, 200, "length", 1.0), "cut off after 200 tokens (num_predict)"),
        (ChatReply("```\ndrop", 1900, 148, "length", 1.0), "cut off after 148 tokens (num_ctx)"),
        (ChatReply("", 100, 1000, "length", 1.0, thoughts=True), "1 000 tokens of thoughts and no text"),
        (ChatReply("Yes?", 2047, 9, "stop", 1.0), "the prompt filled the context of 2 048 tokens"),
        (ChatReply("", 100, 3, "content_filter", 1.0), "the model refused, or a filter ended the reply"),
        (ChatReply("No level.", 100, 3, "stop", 1.0), None),
    ],
)
def test_the_ending_of_a_reply_is_told_with_its_number(tmp_path, reply, sentence):
    exchanges = [Exchange("k", each) for each in (ChatReply(reply.text, 1, 1, "stop", 1.0), reply)]  # the last counts
    ending = summary(tmp_path, *exchanges, response=reply.text).ending
    assert (ending and ending.sentence) == sentence


BASE, STEM = "drop_block('b31', 9)", "drop_block('b13', 9)"
DRAFT, BETTER, THREE = (f"```\n{calls}\n```" for calls in (BASE, f"{BASE}\n{STEM}", f"{BASE}\n{STEM}\n{BASE}"))
DICTATED = ["@('b31', 9)\n@('b13', 9)", 'put("b31",9) put("b13",9)', "b31 9; b13 9.", "B31, 9\nB13, 9", "b31|9|b13|9"]
REPAIRED = [exchange(DRAFT, "Draw an I."), exchange(BETTER, f"Repair this: {DRAFT}")]
JOINED = [exchange(call, f"Say {call}") for call in (BASE, STEM)]


@pytest.mark.parametrize(
    ("response", "exchanges", "work", "supplied"),
    [
        pytest.param(DRAFT, [exchange(DRAFT, "Draw an I.")], PROGRAM, (0, 1, False), id="the model named it first"),
        pytest.param(BETTER, REPAIRED, PROGRAM, (0, 2, False), id="the model named it before the program sent it back"),
        *((BETTER, [exchange(BETTER, f"Replace @ by drop_block: {text}")], PROGRAM, (2, 2, True)) for text in DICTATED),
        pytest.param(BETTER, JOINED, PROGRAM, (2, 2, True), id="dictated one call a message and joined"),
        pytest.param(BETTER, [exchange(BETTER, f"{STEM}, {BASE}")], PROGRAM, (2, 2, False), id="in another order"),
        pytest.param(BETTER, [exchange(BETTER, f"1. {THREE}")], PROGRAM, (2, 2, True), id="the start of a level"),
        pytest.param(
            BETTER, [exchange(BETTER, "Draw."), exchange(BETTER, BETTER)], PROGRAM, (0, 2, False), id="sent back whole"
        ),
        ("Sorry.", [exchange("Sorry.", f"Say {BASE}")], PROGRAM, (0, 0, False)),
        pytest.param(
            THREE, [exchange(THREE)], Prompt(f"Draw <OBJECT> as {BASE}."), (2, 3, False), id="a prompt's example"
        ),
        pytest.param(BETTER, [exchange(BETTER)], Prompt(f"<OBJECT> as {THREE}."), (2, 2, True), id="a copied example"),
        pytest.param(
            THREE, [exchange(THREE)], Prompt("<OBJECT>: b31 is 3 wide, b31 9.5, ab31 9"), (0, 3, False), id="no blocks"
        ),
    ],
)
def test_blocks_and_levels_that_a_submission_told_the_model_are_supplied(tmp_path, response, exchanges, work, supplied):
    counted = summary(tmp_path, *exchanges, response=response, work=work).usage.supplied
    assert (counted.supplied, counted.blocks, counted.whole) == supplied
