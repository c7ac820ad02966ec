"""`pcgeval explain`: one trial from its prompt to its share of the total, with figures that add up to the ranking."""

import json
import re
from decimal import Decimal
from pathlib import Path

import pytest
from test_inspection import HOSTILE, reply, write_record

from pcgeval.cli.main import main
from pcgeval.core.files import sha256_file
from pcgeval.core.layout import OFFICIAL_RESULTS, RANKING_JSON, SUBMISSIONS, Trial, stage_dir, trial_file
from pcgeval.core.stage_files import RankingFile
from pcgeval.core.trials import Exchange, Flag, Message
from pcgeval.scoring.decimals import divide, exact_arithmetic


@pytest.fixture(autouse=True)
def in_workspace(workspace, monkeypatch):
    monkeypatch.chdir(workspace)


def explained(capsys, *words, code=0):
    assert main(["explain", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_the_figures_lead_exactly_to_the_total_in_the_ranking(capsys):
    (row,) = [each for each in RankingFile.read(RANKING_JSON).teams if each.team == "builders"]
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


def test_the_calls_whose_blocks_fell_are_named(capsys):
    found = explained(capsys, "builders", "large", "T", "2")
    assert [each["call"] for each in found["blocks"]] == [
        "drop_block('b13', 9)",
        "drop_block('b31', 10)",
        "drop_block('b11', 11)",
        "drop_block('b11', 11)",
    ]
    fallen = [each for each in found["blocks"] if each["fate"] in {"moved", "broke"}]
    assert found["stability"] == pytest.approx(1 - len(fallen) / 4)
    assert fallen
    assert all(each["distance"] >= 0.1 for each in fallen if each["fate"] == "moved")
    assert main(["explain", "builders", "large", "T", "2"]) == 0
    assert re.search(r"drop_block\('b31', 10\)  (moved [0-9.]+ m|broke)", capsys.readouterr().out)


def test_the_likeliest_letters_come_first(capsys):
    found = explained(capsys, "builders", "large", "I", "1")
    values = list(found["probabilities"].values())
    assert len(values) == 26
    assert values == sorted(values, reverse=True)
    assert found["probabilities"]["I"] == found["similarity"]


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
    found = explained(capsys, "builders", "large", "T", "1")
    assert {each["step"] for each in found["files"]} == {
        *("submission", "generate", "extract", "convert", "simulate", "classify", "diversity", "score", "rank")
    }
    for each in found["files"]:
        assert each["sha256"] == sha256_file(Path(each["path"]))
    assert main(["explain", "builders", "large", "T", "1", "--long"]) == 0
    said = capsys.readouterr().out
    assert all(f"{each['sha256']}  {each['path']}" in said for each in found["files"])
    failed = explained(capsys, "builders", "small", "T", "1")
    assert {each["step"] for each in failed["files"] if each["sha256"] is None} == {"extract", "convert", "simulate"}


def test_a_ranking_with_other_figures_is_named(capsys):
    text = RANKING_JSON.read_text()
    total = format(RankingFile.read(RANKING_JSON).teams[0].total, "f")
    RANKING_JSON.write_text(text.replace(f'"{total}"', '"0.5"'))
    assert main(["explain", "builders", "large", "T", "1"]) == 1
    said = capsys.readouterr().out
    assert f"the total of builders is 0.5; the measurements make {total}" in said
    assert "exactly, as in" not in said


def test_an_altered_trial_score_is_named(capsys):
    path = OFFICIAL_RESULTS / "large" / "trial_scores.csv"
    lines = path.read_text().splitlines()
    number = next(place for place, line in enumerate(lines) if line.startswith('"builders","T",1,'))
    fields = lines[number].split(",")
    fields[3] = '"0.25"'
    lines[number] = ",".join(fields)
    path.write_text("\n".join(lines))
    found = explained(capsys, "builders", "large", "T", "1", code=1)
    assert "trial T1 is 0.25; the measurements make" in found["differences"][0]


def test_a_disqualified_team_has_no_arithmetic(capsys):
    found = explained(capsys, "cheats", "large", "T", "1")
    assert found["arithmetic"] is None
    assert "used a picture of the letter" in found["unscored"]
    assert found["blocks"]
    assert main(["explain", "cheats", "large", "T", "1"]) == 0
    assert "disqualified" in capsys.readouterr().out


def test_before_the_end_of_a_run_what_is_there_is_explained(capsys):
    RANKING_JSON.unlink()
    for letter in "IT":
        (stage_dir("diversity", "small", "zero-shot") / f"{letter}.json").unlink()
    found = explained(capsys, "builders", "large", "T", "1")
    assert found["arithmetic"] is None
    assert "not all teams are evaluated yet" in found["unscored"]
    assert found["stability"] == 1
    trial_file(stage_dir("raw", "large", "builders"), "raw", "builders", Trial("T", 1)).unlink()
    assert main(["explain", "builders", "large", "T", "1"]) == 2
    assert "there is no reply yet" in capsys.readouterr().err


def test_files_that_do_not_belong_together_are_refused(capsys):
    code = trial_file(stage_dir("intermediate", "large", "builders"), "intermediate", "builders", Trial("T", 1))
    code.write_text(code.read_text() + "drop_block('b11', 1)\n")
    assert main(["explain", "builders", "large", "T", "1"]) == 2
    assert "4 calls and 3 blocks" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    "words",
    [
        ["nobody", "large", "T", "1"],
        ["builders", "larg", "T", "1"],
        ["builders", "large", "X", "1"],
        ["builders", "large", "T", "3"],
    ],
)
def test_what_is_not_there_is_named(words, capsys):
    assert main(["explain", *words]) == 2
    assert "params.yaml has" in capsys.readouterr().err
