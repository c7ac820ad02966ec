"""`pcgeval explain`: one trial from its prompt to its share of the total, with figures that add up to the ranking."""

import json
import math
import os
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_bytes, sha256_file
from pcgeval.formats.failures import Failure, failure
from pcgeval.formats.layout import OFFICIAL_RESULTS, RANKING_JSON, SUBMISSIONS, Trial, stage_dir, trial_file
from pcgeval.formats.results import RankingFile
from pcgeval.formats.trials import ChatReply, Exchange, FailedCall, Flag, Message, TrialRecord, write_trial
from pcgeval.scoring.formulas import divide, exact_arithmetic

HOSTILE = "\x1b[2J\x9b31m\u202egnp.exe [bold]x[/bold] <script>alert(1)</script>\r\nTrial A1: passed"
HOSTILE_FAILURE = Failure("program-error", HOSTILE, HOSTILE)


pytestmark = pytest.mark.usefixtures("workspace")


@pytest.fixture
def explained(capsys):
    """Run `pcgeval explain` and return its exit code and all that it printed; with --json, the values of a success."""

    def run(words, *options):
        code = main(["explain", *words.split(), *options])
        shown = capsys.readouterr()
        return json.loads(shown.out) if "--json" in options else (code, shown.out + shown.err)

    return run


def reply(text):
    return ChatReply(text, 10, 5, "stop", 0.1, model="m:1b", fingerprint="fp_7")


def write_record(exchanges, answer, **changes):
    record = TrialRecord("f", 7, "m", "d", exchanges, sha256_bytes(answer.encode("utf-8", "replace")), None)
    record = replace(record, **changes)
    write_trial(stage_dir("raw", "small", "builders"), "builders", Trial("I", 1), answer, record)


def test_the_figures_lead_exactly_to_the_total_in_the_ranking(explained):
    (row,) = [team for team in RankingFile.read(RANKING_JSON).teams if team.team == "builders"]
    figures = explained("builders large I 1", "--json")["arithmetic"]
    weight, trials, letters, models = (figures[name] for name in ("weight", "trials", "letters", "models"))
    with exact_arithmetic():
        assert Decimal(weight.pop("product")) == math.prod(map(Decimal, weight.values()))
        assert divide(sum(map(Decimal, trials.values())), 2) * Decimal(figures["diversity"]) == Decimal(letters["I"])
        assert divide(sum(map(Decimal, letters.values())), 2) == Decimal(models["large"])
        assert sum(map(Decimal, models.values())) == row.total == Decimal(figures["total"])
        assert divide(row.total, Decimal(figures["all_totals"])) * 100 == row.normalised
    assert 0 < Decimal(figures["share"]) < row.total


def test_one_screen_says_what_was_asked_answered_built_and_seen_and_json_names_each_file(explained):
    code, shown = explained("builders large T 1")
    assert code == 0
    for words in (
        "T1 of builders with large (rank 1)",
        "Build T with drop_block, says builders.",
        "1 drop_block('b31', 9)  stayed",
        "3 of 3 blocks stayed: stability 1",
        f"{RankingFile.read(RANKING_JSON).teams[0].total:f}",
    ):
        assert words in shown
    assert len(shown.splitlines()) < 70
    explanation = explained("builders large T 2", "--json")
    calls = ["drop_block('b13', 9)", "drop_block('b31', 10)", *["drop_block('b11', 11)"] * 2]
    assert [block["call"] for block in explanation["blocks"]] == calls
    fallen = [block for block in explanation["blocks"] if block["fate"] in {"moved", "broke"}]
    assert explanation["stability"] == pytest.approx(1 - len(fallen) / 4)
    values = list(explanation["probabilities"].values())
    assert (len(values), values) == (26, sorted(values, reverse=True))
    assert explanation["probabilities"]["T"] == explanation["similarity"]
    assert all(file["sha256"] == sha256_file(Path(file["path"])) for file in explanation["files"])
    steps = "submission generate extract convert simulate classify diversity score rank"
    assert list(dict.fromkeys(file["step"] for file in explanation["files"])) == steps.split()


def test_a_failed_trial_says_where_and_why(explained):
    for place, words in (
        ("T 2", "FAILED in generate (late-call): took more than 500 s"),
        ("T 1", "FAILED in extract (no-fence): the response holds no drop_block call"),
        ("I 2", "FAILED in convert (too-wide): Width boundary is intruded. (call 1: `drop_block('b31', 19)`"),
    ):
        code, shown = explained(f"builders small {place}")
        assert (code, words in shown, "This trial adds 0 to the total" in shown) == (0, True, True)
    explanation = explained("builders small I 2", "--json")
    assert (explanation["kind"], explanation["failed_stage"]) == ("prompt", "convert")
    assert (explanation["failure"]["kind"], explanation["failure"]["sentence"]) == ("too-wide", explanation["reason"])


def test_published_figures_that_do_not_follow_from_the_measurements_are_named(explained):
    total = format(RankingFile.read(RANKING_JSON).teams[0].total, "f")
    RANKING_JSON.write_text(RANKING_JSON.read_text().replace(f'"{total}"', '"0.5"'))
    path = OFFICIAL_RESULTS / "large" / "trial_scores.csv"
    path.write_text(re.sub(r'^("builders","T",1,)"[^"]+"', r'\1"0.25"', path.read_text(), flags=re.MULTILINE))
    code, shown = explained("builders large T 1")
    assert code == 1
    assert re.search(rf"DIFFERS: .*total of builders is 0\.5; .* {total}", shown)
    assert re.search(r"DIFFERS: .*trial T1 is 0\.25; ", shown)
    lock = Path(".dvc/tmp/rwlock")  # during a run they are those of the run before
    lock.parent.mkdir(parents=True)
    lock.write_text(json.dumps({"write": {"data/raw/small": {"pid": os.getpid(), "cmd": "dvc repro"}}, "read": {}}))
    code, shown = explained("builders large T 1")
    assert code == 0
    assert "run is in progress" in shown
    assert "DIFFERS" not in shown


def test_a_trial_without_scores_is_explained_without_arithmetic(explained):
    explanation = explained("cheats large T 1", "--json")
    assert (explanation["arithmetic"], bool(explanation["blocks"])) == (None, True)
    assert "disqualified, so it has no scores: used a picture of the letter" in explanation["unscored"]
    RANKING_JSON.unlink()
    (stage_dir("diversity", "small", "zero-shot") / "I.json").unlink()
    explanation = explained("builders large T 1", "--json")
    assert (explanation["arithmetic"], explanation["stability"]) == (None, 1)
    assert "not all teams are evaluated yet" in explanation["unscored"]
    trial_file(stage_dir("raw", "large", "builders"), "raw", "builders", Trial("T", 1)).unlink()
    code, shown = explained("builders large T 1")
    assert (code, "no reply yet" in shown) == (2, True)


def test_the_conversation_of_a_program_is_put_together_again_and_bounded(explained):
    ask, again, other = Message("user", "Build I"), Message("user", "Better"), Message("user", "Something else")
    exchanges = (
        Exchange("a", reply("one"), (Message("system", "You build."), ask), 0),
        Exchange("b", reply("two"), (again,), 3),
        Exchange("c", reply("three"), (other,), 1),
    )
    write_record(exchanges, "two", failed_calls=(FailedCall(3, "x", failure("filtered")),))
    messages = explained("builders small I 1", "--json")["conversation"]
    assert [f"{entry['speaker']}: {entry['text']}" for entry in messages] == [
        "program as system: You build.",
        "program as user: Build I",
        "model: one",
        "program as user: Better",
        "model: two",
        "pcgeval: call 3 got no reply: a content filter refused the request",
        "pcgeval: the conversation begins with 1 message of the one before",
        "program as user: Something else",
        "model: three",
    ]
    assert "answered as m:1b (fp_7)" in explained("builders small I 1")[1]
    go = Message("user", "Go")
    write_record(tuple(Exchange("k", reply("x" * 40_000), (go,), 0) for _ in range(40)), "y" * 8_000)
    explanation = explained("builders small I 1", "--json")
    texts = [explanation["answer"], *(entry["text"] for entry in explanation["conversation"])]
    assert (len(texts), max(map(len, texts)) < 4_050, "left out" in texts[21]) == (1 + 40 + 1, True, True)


def test_another_submission_a_fault_of_the_server_and_an_unknown_argument_are_named(explained):
    (SUBMISSIONS / "builders/prompt.txt").write_text("Another prompt for <OBJECT>.")
    code, shown = explained("builders large T 1")
    assert (code, "another submission" in shown) == (1, True)
    assert "DIFFERS: results/ranking.json: it comes from other" in shown
    write_record((), "", failure=failure("server-failed", fault="it is out of memory"))
    assert "fault of the server" in explained("builders small I 1")[1]
    for words in ("nobody large T 1", "builders larg T 1", "builders large X 1", "builders large T 3"):
        code, shown = explained(words)
        assert (code, "params.yaml has" in shown) == (2, True)


def test_hostile_texts_are_harmless(capsys):
    exchange = Exchange("k", reply(HOSTILE), (Message("user", HOSTILE),), 0)
    write_record((exchange,), HOSTILE, flags=(Flag("altered-answer", HOSTILE),), failure=HOSTILE_FAILURE, model=HOSTILE)
    params = Path("params.yaml")
    params.write_text(params.read_text().replace("title: The Builders", 'title: "\\x1b[2J"'))
    for options in (["--json"], []):
        assert main(["explain", "builders", "small", "I", "1", *options]) == 1  # the ranking is of another record
        shown = capsys.readouterr()
        assert not set("\x1b\x9b\u202e\r") & set(shown.out + shown.err)
    assert not any(line.startswith("Trial A1: passed") for line in shown.out.splitlines())
