"""`pcgeval explain`: one trial from its prompt to its share of the total, with figures that add up to the ranking."""

import json
import os
import re
from decimal import Decimal
from pathlib import Path

import pytest

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes, sha256_file
from pcgeval.core.layout import OFFICIAL_RESULTS, RANKING_JSON, SUBMISSIONS, Trial, stage_dir, trial_file
from pcgeval.core.stage_files import RankingFile
from pcgeval.core.trials import ChatReply, Exchange, FailedCall, Flag, Message, TrialRecord, write_trial
from pcgeval.scoring.decimals import divide, exact_arithmetic

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


def explained(capsys, *words, code=0):
    assert main(["explain", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_figures_lead_exactly_to_the_total_in_the_ranking(capsys):
    (row,) = [team for team in RankingFile.read(RANKING_JSON).teams if team.team == "builders"]
    for letter in "IT":
        figures = explained(capsys, "builders", "large", letter, "1")["arithmetic"]
        with exact_arithmetic():
            weight = Decimal(1)
            for factor in ("stability", "similarity", "diversity"):
                weight *= Decimal(figures["weight"][factor])
            assert weight == Decimal(figures["weight"]["product"])
            mean = divide(sum(map(Decimal, figures["trials"].values())), 2)
            assert mean * Decimal(figures["diversity"]) == Decimal(figures["letters"][letter])
            assert divide(sum(map(Decimal, figures["letters"].values())), 2) == Decimal(figures["models"]["large"])
            assert sum(map(Decimal, figures["models"].values())) == row.total == Decimal(figures["total"])
            assert divide(row.total, Decimal(figures["all_totals"])) * 100 == row.normalised
        assert 0 < Decimal(figures["share"]) < row.total


def test_one_screen_says_what_was_asked_answered_built_and_seen(capsys):
    assert main(["explain", "builders", "large", "T", "1"]) == 0
    said = capsys.readouterr().out
    for part in (
        "T1 of builders with large (rank 1)",
        "Build T with drop_block, says builders.",
        "1 drop_block('b31', 9)  stayed",
        "3 of 3 blocks stayed: stability 1",
        "T is number",
        "weight of T",
        "normalised",
        f"the total is {RankingFile.read(RANKING_JSON).teams[0].total:f} exactly, as in results/ranking.json",
    ):
        assert part in said
    assert len(said.splitlines()) < 70
    assert max(map(len, said.splitlines())) <= 120


def test_the_calls_whose_blocks_fell_and_the_likeliest_letters_are_named(capsys):
    explanation = explained(capsys, "builders", "large", "T", "2")
    assert [entry["call"] for entry in explanation["blocks"]] == [
        "drop_block('b13', 9)",
        "drop_block('b31', 10)",
        "drop_block('b11', 11)",
        "drop_block('b11', 11)",
    ]
    fallen = [entry for entry in explanation["blocks"] if entry["fate"] in {"moved", "broke"}]
    assert explanation["stability"] == pytest.approx(1 - len(fallen) / 4)
    assert fallen
    assert all(entry["distance"] >= 0.1 for entry in fallen if entry["fate"] == "moved")
    assert main(["explain", "builders", "large", "T", "2"]) == 0
    assert re.search(r"drop_block\('b31', 10\)  (moved [0-9.]+ m|broke)", capsys.readouterr().out)
    values = list(explanation["probabilities"].values())
    assert len(values) == 26
    assert values == sorted(values, reverse=True)
    assert explanation["probabilities"]["T"] == explanation["similarity"]


@pytest.mark.parametrize(
    ("letter", "trial", "words"),
    [
        ("T", "2", "FAILED in generate: took 501 s"),
        ("T", "1", "FAILED in extract: no code"),
        ("I", "2", "FAILED in convert: Width boundary is intruded. (call 1: \"drop_block('b31', 19)\")"),
    ],
)
def test_a_failed_trial_says_where_and_why(letter, trial, words, capsys):
    assert main(["explain", "builders", "small", letter, trial]) == 0
    said = capsys.readouterr().out
    assert words in said
    assert "This trial is 0 of the total" in said
    assert "exactly, as in results/ranking.json" in said


def test_the_file_of_each_step_has_its_hash(capsys):
    explanation = explained(capsys, "builders", "large", "T", "1")
    assert {entry["step"] for entry in explanation["files"]} == {
        "submission",
        "generate",
        "extract",
        "convert",
        "simulate",
        "classify",
        "diversity",
        "score",
        "rank",
    }
    for entry in explanation["files"]:
        assert entry["sha256"] == sha256_file(Path(entry["path"]))
    assert main(["explain", "builders", "large", "T", "1", "--long"]) == 0
    said = capsys.readouterr().out
    assert all(f"{entry['sha256']}  {entry['path']}" in said for entry in explanation["files"])
    failed = explained(capsys, "builders", "small", "T", "1")
    assert {entry["step"] for entry in failed["files"] if entry["sha256"] is None} == {"extract", "convert", "simulate"}


def test_published_figures_that_the_measurements_do_not_make_are_named(capsys):
    total = format(RankingFile.read(RANKING_JSON).teams[0].total, "f")
    RANKING_JSON.write_text(RANKING_JSON.read_text().replace(f'"{total}"', '"0.5"'))
    path = OFFICIAL_RESULTS / "large" / "trial_scores.csv"
    path.write_text(re.sub(r'^("builders","T",1,)"[^"]+"', r'\1"0.25"', path.read_text(), flags=re.MULTILINE))
    assert main(["explain", "builders", "large", "T", "1"]) == 1
    said = capsys.readouterr().out
    assert f"the total of builders is 0.5; the measurements make {total}" in said
    assert "trial T1 is 0.25; the measurements make" in said
    assert "exactly, as in" not in said
    lock = Path(".dvc/tmp/rwlock")  # during a run they are those of the run before
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"write": {"data/raw/small": {"pid": os.getpid(), "cmd": "dvc repro"}}, "read": {}}))
    assert main(["explain", "builders", "large", "T", "1"]) == 0
    said = capsys.readouterr().out
    assert "run is under way" in said
    assert "DIFFERS" not in said


def test_a_disqualified_team_has_no_arithmetic(capsys):
    explanation = explained(capsys, "cheats", "large", "T", "1")
    assert explanation["arithmetic"] is None
    assert "used a picture of the letter" in explanation["unscored"]
    assert explanation["blocks"]
    assert main(["explain", "cheats", "large", "T", "1"]) == 0
    assert "disqualified" in capsys.readouterr().out


def test_before_the_end_of_a_run_what_is_there_is_explained(capsys):
    RANKING_JSON.unlink()
    for letter in "IT":
        (stage_dir("diversity", "small", "zero-shot") / f"{letter}.json").unlink()
    explanation = explained(capsys, "builders", "large", "T", "1")
    assert explanation["arithmetic"] is None
    assert "not all teams are evaluated yet" in explanation["unscored"]
    assert explanation["stability"] == 1
    trial_file(stage_dir("raw", "large", "builders"), "raw", "builders", Trial("T", 1)).unlink()
    assert main(["explain", "builders", "large", "T", "1"]) == 2
    assert "there is no reply yet" in capsys.readouterr().err


def test_files_that_do_not_belong_together_are_refused(capsys):
    code = trial_file(stage_dir("intermediate", "large", "builders"), "intermediate", "builders", Trial("T", 1))
    code.write_text(code.read_text() + "drop_block('b11', 1)\n")
    assert main(["explain", "builders", "large", "T", "1"]) == 2
    assert "4 calls and 3 blocks" in capsys.readouterr().err


def test_the_conversation_of_a_program_is_put_together_again(capsys):
    ask, again, other = Message("user", "Build I"), Message("user", "Better"), Message("user", "Something else")
    exchanges = (
        Exchange("a", reply("one"), (Message("system", "You build."), ask), 0),
        Exchange("b", reply("two"), (again,), 3),
        Exchange("c", reply("three"), (other,), 1),
        Exchange("d", reply("four"), (other,), 0),
    )
    write_record(exchanges, "two", failures=(FailedCall(3, "x", "HTTP 500"),))
    explanation = explained(capsys, "builders", "small", "I", "1")
    assert [f"{entry['speaker']}: {entry['text']}" for entry in explanation["conversation"]] == [
        "program as system: You build.",
        "program as user: Build I",
        "model: one",
        "program as user: Better",
        "model: two",
        "pcgeval: call 3 got no reply: HTTP 500",
        "pcgeval: the conversation goes on after the first 1 messages",
        "program as user: Something else",
        "model: three",
        "pcgeval: the conversation begins anew",
        "program as user: Something else",
        "model: four",
    ]


def test_what_is_shown_is_bounded(capsys):
    texts = [str(number) for number in range(40)] + ["x" * 10 * 4_000]
    write_record(tuple(Exchange("k", reply(text), (Message("user", "Go"),), 0) for text in texts), "y" * 2 * 4_000)
    explanation = explained(capsys, "builders", "small", "I", "1")
    assert len(explanation["conversation"]) == 40 + 1
    assert "left out" in explanation["conversation"][40 // 2]["text"]
    assert max(len(entry["text"]) for entry in explanation["conversation"]) < 4_000 + 50
    assert len(explanation["answer"]) < 4_000 + 50


def test_the_reply_to_another_submission_and_a_fault_of_the_server_are_named(capsys):
    (SUBMISSIONS / "builders/prompt.txt").write_text("Another prompt for <OBJECT>.")
    assert main(["explain", "builders", "large", "T", "1"]) == 0
    assert "T1 with large: made from another submission" in capsys.readouterr().err
    write_record((), "", reason="HTTP 500: out of memory", cause="server")
    main(["explain", "builders", "small", "I", "1"])
    assert "a fault of the server" in capsys.readouterr().out


def test_hostile_texts_are_harmless(capsys):
    exchange = Exchange("k", reply(HOSTILE), (Message("user", HOSTILE),), 0)
    write_record((exchange,), HOSTILE, flags=(Flag("altered-answer", HOSTILE),), reason=HOSTILE, model=HOSTILE)
    (SUBMISSIONS / "builders" / "submission.yaml").write_text('title: "\\x1b[2J"\n')
    for option in ("--long", "--json"):
        assert main(["explain", "builders", "small", "I", "1", option]) == 0
        said = capsys.readouterr()
        assert not set("\x1b\x9b\u202e\r") & set(said.out + said.err)
    assert main(["explain", "builders", "small", "I", "1"]) == 0
    said = capsys.readouterr().out
    assert not any(line.startswith("Trial A1: passed") for line in said.splitlines())


@pytest.mark.parametrize("words", ["nobody large T 1", "builders larg T 1", "builders large X 1", "builders large T 3"])
def test_what_is_not_there_is_named(words, capsys):
    assert main(["explain", *words.split()]) == 2
    assert "params.yaml has" in capsys.readouterr().err
