"""An inspector sees the conversation beside the answer, whatever the texts try to do."""

import json
import shutil

import pytest
from evaluated_round import PARAMS

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes
from pcgeval.core.layout import SUBMISSIONS, Trial, stage_dir, trial_file
from pcgeval.core.trials import ChatReply, Exchange, FailedCall, Flag, Message, TrialRecord, write_trial
from pcgeval.report.inspection import LONGEST_MESSAGE, MOST_MESSAGES, inspected_trials

HOSTILE = "\x1b[2J\x9b31m\u202egnp.exe [bold]x[/bold] <script>alert(1)</script>\r\nTrial A1: passed"


@pytest.fixture(autouse=True)
def in_workspace(workspace, monkeypatch):
    monkeypatch.chdir(workspace)


def reply(text):
    return ChatReply(text, 10, 5, "stop", 0.1)


def write_record(exchanges, answer, flags=(), failures=(), place=("I", 1), **values):
    record = TrialRecord("f", 7, "m", "d", exchanges, sha256_bytes(answer.encode("utf-8", "replace")), None)
    values = {**vars(record), "flags": flags, "failures": failures, **values}
    write_trial(stage_dir("raw", "small", "builders"), "builders", Trial(*place), answer, TrialRecord(**values))


def test_failed_trials_are_shown_with_their_reasons_and_scores(capsys):
    assert main(["inspect", "builders", "--model", "small"]) == 0
    said = capsys.readouterr()
    assert "failed in extract: no code" in said.out
    assert "I am a language model and cannot build." in said.out
    assert "failed in generate: took 501 s" in said.out
    assert "4 trials, 3 failed, 0 flagged; 3 shown" in said.err
    assert main(["inspect", "builders", "--flagged"]) == 0
    assert capsys.readouterr().out == ""


def test_a_named_trial_is_shown_whatever_became_of_it(capsys):
    assert main(["inspect", "builders", "--letter", "T", "--trial", "1", "--model", "large", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["failed_stage"] is None
    assert found["stability"] == 1
    assert 0 < found["similarity"] < 1
    assert float(found["score"]) > 0
    assert [each["speaker"] for each in found["conversation"]] == ["prompt", "model"]
    assert "Build T with" in found["conversation"][0]["text"]
    assert found["answer"] == found["conversation"][1]["text"]


def test_trials_of_another_submission_are_named(capsys):
    arguments = ["inspect", "builders", "--letter", "T", "--trial", "1", "--model", "large"]
    assert main(arguments) == 0
    said = capsys.readouterr().err
    assert "warning" not in said
    assert "1 trial, " in said
    (SUBMISSIONS / "builders/prompt.txt").write_text("Another prompt for <OBJECT>.")
    assert main([*arguments, "--json"]) == 0
    said = capsys.readouterr()
    assert "T1 with large: made from another submission" in said.err
    assert len(json.loads(said.out)) == 1


def test_the_conversation_of_a_program_is_put_together_again():
    ask, again, other = Message("user", "Build I"), Message("user", "Better"), Message("user", "Something else")
    exchanges = (
        Exchange("a", reply("one"), (Message("system", "You build."), ask), 0),
        Exchange("b", reply("two"), (again,), 3),
        Exchange("c", reply("three"), (other,), 1),
        Exchange("d", reply("four"), (other,), 0),
    )
    write_record(exchanges, "two", failures=(FailedCall(3, "x", "HTTP 500"),))
    trial = next(inspected_trials(PARAMS, "builders", "small"))
    assert [(each.speaker, each.text) for each in trial.conversation] == [
        ("program as system", "You build."),
        ("program as user", "Build I"),
        ("model", "one"),
        ("program as user", "Better"),
        ("model", "two"),
        ("pcgeval", "call 3 got no reply: HTTP 500"),
        ("pcgeval", "the conversation goes on after the first 1 messages"),
        ("program as user", "Something else"),
        ("model", "three"),
        ("pcgeval", "the conversation begins anew"),
        ("program as user", "Something else"),
        ("model", "four"),
    ]


def test_what_is_shown_is_bounded():
    texts = [str(number) for number in range(MOST_MESSAGES)] + ["x" * 10 * LONGEST_MESSAGE]
    write_record(
        tuple(Exchange("k", reply(text), (Message("user", "Go"),), 0) for text in texts), "y" * 2 * LONGEST_MESSAGE
    )
    trial = next(inspected_trials(PARAMS, "builders", "small"))
    assert len(trial.conversation) == MOST_MESSAGES + 1
    assert "left out" in trial.conversation[MOST_MESSAGES // 2].text
    assert max(len(each.text) for each in trial.conversation) < LONGEST_MESSAGE + 50
    assert len(trial.answer) < LONGEST_MESSAGE + 50


def test_hostile_texts_are_harmless_and_the_flags_are_listed(capsys):
    exchange = Exchange("k", reply(HOSTILE), (Message("user", HOSTILE),), 0)
    flag = Flag("altered-answer", HOSTILE)
    write_record((exchange,), HOSTILE, flags=(flag,))
    assert main(["inspect", "builders", "--flagged"]) == 0
    said = capsys.readouterr()
    assert "flagged: altered-answer" in said.out
    assert "[bold]x[/bold]" in said.out
    assert not set("\x1b\x9b\u202e\r") & set(said.out + said.err)
    flagged = [line for line in said.out.splitlines() if "flagged: altered-answer" in line]
    assert "Trial A1: passed" in flagged[0]  # on the flag's own line
    assert main(["inspect", "builders", "--flagged", "--json"]) == 0
    text = capsys.readouterr().out
    assert text.count("\n") == 1
    assert not set("\x1b\x9b\u202e\r") & set(text)
    assert json.loads(text)[0]["answer"] == HOSTILE


def test_a_fault_of_the_server_is_told_from_the_teams(capsys):
    write_record((), "", reason="HTTP 500: out of memory", cause="server")
    assert main(["inspect", "builders", "--letter", "I", "--trial", "1", "--model", "small"]) == 0
    assert "a fault of the server" in capsys.readouterr().out


def test_a_run_that_is_not_finished_is_shown_as_far_as_it_is(capsys, workspace):
    for name in ("similarity", "stability", "diversity", "images", "levels", "intermediate"):
        shutil.rmtree(workspace / "data" / name)
    shutil.rmtree(workspace / "results")
    shutil.rmtree(workspace / "data" / "trials")
    trial_file(stage_dir("raw", "small", "builders"), "raw", "builders", Trial("I", 1)).unlink()
    write_record((), "", reason="took too long", place=("T", 2))
    assert main(["inspect", "builders", "--model", "small"]) == 0
    said = capsys.readouterr()
    assert "failed in generate: took too long" in said.out
    assert "3 trials, 1 failed" in said.err


@pytest.mark.parametrize(
    "words", [["nobody"], ["builders", "--model", "x"], ["builders", "--letter", "X"], ["builders", "--trial", "3"]]
)
def test_what_is_not_there_is_named(words, capsys):
    assert main(["inspect", *words]) == 2
    assert "params.yaml has" in capsys.readouterr().err
