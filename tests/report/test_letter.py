"""A team's letter tells all about its own trials, nothing of the others but the ranking, and obeys no text in it."""

import json
import re
import shutil
from dataclasses import replace

import pytest
from evaluated_round import NOTES, PARAMS, Noted, write_round
from lxml import html
from markdown_it import MarkdownIt
from page_for_tests import Page

from pcgeval.cli.main import main
from pcgeval.core.layout import RANKING_JSON, STATE, SUBMISSIONS
from pcgeval.core.stage_files import RankingFile
from pcgeval.report.pseudonyms import Pseudonyms
from pcgeval.submissions.load import Notes, load_submission

LINE = "[click](javascript:alert(1)) <img src=x onerror=alert(1)> | cell | ```"
MARKUP = f"{LINE}\n# Heading\n\x1b[2J\u202e **bold** &amp;"
OWN_REASON, THEIR_REASON = "example.org of the builders", "their own secret"


def noted(_, team, trial):
    if team == "builders" and trial.number == 2:
        return Noted(flags=(("altered-answer", MARKUP), ("other-host", f"{OWN_REASON}, The Cheats")))
    return Noted(flags=(("other-host", THEIR_REASON),)) if team == "cheats" else Noted()


@pytest.fixture(scope="module")
def flagged_round(tmp_path_factory):
    root = tmp_path_factory.mktemp("flagged")
    title = json.dumps("The *Builders* <b>" + MARKUP)
    write_round(root, noted=noted, notes={**NOTES, "builders": f"title: {title}\n"})
    return root


@pytest.fixture(autouse=True)
def folder(flagged_round, tmp_path, monkeypatch):
    copy = shutil.copytree(flagged_round, tmp_path / "round")
    monkeypatch.chdir(copy)
    return copy


def tables(markup):
    """Return the cells of each table of a page, row by row."""
    found = html.fromstring(markup).iter("table")
    return [[[cell.text_content() for cell in row] for row in table.iter("tr")] for table in found]


def test_a_letter_has_place_scores_failures_flags_grade_and_how_to_reproduce(folder, capsys):
    assert main(["letter"]) == 0
    files = capsys.readouterr().out.split()
    assert files == [f"results/letters/{team}{suffix}" for team in PARAMS.teams for suffix in (".md", ".html")]
    ranking, small, large, failed, flags, *_, made_with = tables((folder / "results/letters/builders.html").read_text())
    assert ranking[1][:2] == ["1", "builders (you)"]
    assert [row[0] for row in small[1:]] == [row[0] for row in large[1:]] == ["I", "T"]
    assert float(large[2][1]) > 0
    assert failed[1] == [
        "small",
        "I2",
        "no valid level",
        "Width boundary is intruded. (call 1: \"drop_block('b31', 19)\")",
    ]
    assert [row[:3] for row in flags[1:3]] == [["small", "altered answer", "2"], ["small", "other host", "2"]]
    assert {"master seed", "classifier", "submission, SHA-256"} <= {row[0] for row in made_with}
    text = (folder / "results/letters/builders.md").read_text()
    assert "Rank 1 of 1 ranked team, and winner." in text
    assert "Grade by the rubric" in text
    assert "pcgeval try data/submissions/builders --model small" in text
    assert "used a picture of the letter" in (folder / "results/letters/cheats.md").read_text()
    assert "baseline" in (folder / "results/letters/zero-shot.md").read_text()


def test_the_leaves_that_are_not_met_are_named(folder):
    path = folder / "data/grades/builders/grade.json"
    grade = json.loads(path.read_text())
    unmet = [leaf for leaf in grade["graded_task_tree"]["sub_tasks"] if leaf["score"] < 1]
    assert main(["letter", "builders"]) == 0
    text = (folder / "results/letters/builders.md").read_text()
    assert all(leaf["requirements"] in text for leaf in unmet)
    assert f"{len(grade['graded_task_tree']['sub_tasks']) - len(unmet)} are met" in text


def test_nothing_is_told_about_others_but_the_ranking(folder):
    assert main(["letter"]) == 0
    own, theirs = ((folder / f"results/letters/{team}.md").read_text() for team in ("builders", "cheats"))
    assert OWN_REASON in own
    assert OWN_REASON not in theirs
    assert THEIR_REASON in theirs
    assert THEIR_REASON not in own
    assert "used a picture of the letter" not in own


def test_the_same_files_give_the_same_bytes(folder):
    assert main(["letter"]) == 0
    assert main(["letter", "--out", "again"]) == 0
    first, again = (
        {path.name: path.read_bytes() for path in (folder / out).iterdir()} for out in ("results/letters", "again")
    )
    assert first == again
    assert len(first) == 6


def test_hostile_texts_neither_format_the_letter_nor_link_to_anything(folder):
    assert main(["letter", "builders"]) == 0
    markup = (folder / "results/letters/builders.html").read_text()
    page = Page(markup)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "a", "script", "em"}
    assert sum(tag == "h1" for tag, _ in page.elements) == 1
    assert not any(name.startswith("on") or name == "style" for _, attributes in page.elements for name in attributes)
    assert LINE in page.text
    text = (folder / "results/letters/builders.md").read_text()
    assert not set("\x1b\u202e\r") & set(text + markup)
    github = MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(text)  # which lets HTML through
    assert not re.search("<(img|a|em|script) ?", github)
    widths = {len(row) for table in tables(markup) for row in table[1:] if len(row) != len(table[0])}
    assert not widths


def test_pseudonyms_stay_the_same_and_no_name_is_left(folder, capsys):
    assert main(["letter", "--anonymous", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = found["pseudonyms"]
    assert names["zero-shot"] == "zero-shot"
    assert len(set(names.values())) == 3
    for file in found["files"]:
        text = (folder / file).read_text() + file
        assert "builders" not in text.lower()
        assert "cheats" not in text.lower()
    key = folder / STATE / "pseudonyms.key"
    assert key.stat().st_mode & 0o077 == 0
    assert main(["letter", "builders", "--anonymous"]) == 0
    said = capsys.readouterr()
    assert f"{names['builders']} is builders" in said.err
    assert "builders" not in said.out
    key.write_text("another")
    assert main(["letter", "builders", "--anonymous", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["pseudonyms"]["builders"] != names["builders"]
    key.write_text("")
    assert main(["letter", "builders", "--anonymous"]) == 2
    assert "is empty" in capsys.readouterr().err


def test_a_team_that_is_called_like_a_letter_is_hidden_too(folder):
    submission = load_submission(folder / SUBMISSIONS / "builders")
    names = Pseudonyms([replace(submission, team="I", notes=Notes())], b"key")
    assert names.hide("the letter I; I wins", shortest=1).count("team-") == 2
    assert names.hide("the letter I") == "the letter I"
    assert Pseudonyms([submission], b"key").hide("BUILDERS_I_1.png, rebuilders").startswith("team-")


def test_the_ranking_is_printed_with_pseudonyms(folder, capsys):
    assert main(["ranking", "--anonymous", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert "builders" not in json.dumps(found)
    assert found["result"] is None
    assert found["winners"] == [found["teams"][0]["team"]]
    assert found["winners"][0] in found["reason"]
    assert RankingFile.model_validate_json(json.dumps(found)).baseline == "zero-shot"
    assert RankingFile.read(folder / RANKING_JSON).winners == ("builders",)
    assert main(["ranking", "--anonymous"]) == 0
    printed = capsys.readouterr()
    assert "builders" not in printed.out
    assert "result hash" not in printed.err
    assert main(["ranking"]) == 0
    assert (
        f"result hash {json.loads((folder / RANKING_JSON).read_text())['result']['sha256']}\n"
        in capsys.readouterr().err
    )


def test_letters_of_an_earlier_run_say_so(folder, capsys):
    assert main(["letter"]) == 0
    capsys.readouterr()
    with (folder / SUBMISSIONS / "builders" / "prompt.txt").open("a") as file:
        file.write("Please.")
    assert main(["letter"]) == 1
    said = capsys.readouterr()
    assert "it was made from other submissions" in said.err
    assert "make final-eval" in said.err
    assert "results/letters/builders.md" in said.out


def test_a_letter_to_nobody_or_before_the_results_says_what_to_do(folder, capsys):
    assert main(["letter", "nobody"]) == 2
    assert "params.yaml has" in capsys.readouterr().err
    (folder / RANKING_JSON).unlink()
    assert main(["letter"]) == 2
    assert "dvc repro" in capsys.readouterr().err
