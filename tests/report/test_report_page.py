"""The pages of the report: what stands where, that they load nothing, and that strangers' texts stay text."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from evaluated_round import PARAMS
from lxml import html
from page_for_tests import Page, checked, dead_links, part, parts, ranking_row, team_page
from params_for_tests import contents
from pyarrow import parquet

from pcgeval import score_level
from pcgeval.cli.main import main
from pcgeval.core.errors import FileError
from pcgeval.core.files import to_json
from pcgeval.core.layout import EXAMPLE_LETTERS, RANKING_JSON, REPORT
from pcgeval.core.level_table import level_table
from pcgeval.core.stage_files import RankingFile
from pcgeval.report.collect import collect
from pcgeval.report.render import write_report

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def evaluation(evaluated):
    return collect(PARAMS, evaluated)


@pytest.fixture(scope="module")
def single(evaluated, tmp_path_factory):
    """The report as one file."""
    file = tmp_path_factory.mktemp("single") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(evaluated)
        main(["ranking", "--single-file", str(file)])
    return file.read_text("utf-8")


def test_every_link_has_a_target_and_nothing_else_is_loaded(index, pages, single):
    assert dead_links(index) == []
    for markup in pages.values():
        checked(markup)
    whole = checked(single)
    for name in PARAMS.teams:
        assert set(Page(team_page(pages, name)).all("id")) <= set(whole.all("id"))
    script = (index.parent / "report.js").read_text("utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", script)


def test_the_first_screen_says_who_won_by_how_much_and_shows_levels(pages, evaluated):
    first, second = (float(row.normalised) for row in RankingFile.read(evaluated / RANKING_JSON).teams[:2])
    head = pages["index.html"].partition('<section id="ranking"')[0]
    assert f"The Builders wins with {first:.2f} of 100 points, {first - second:.2f} more than Zero-shot.<" in head
    assert len(re.findall(r'<a class="level frame" href="teams/builders\.html#builders\.[^"]+"', head)) == 2
    assert "data-motion" in head


def test_without_a_winner_the_baseline_is_named(evaluation):
    teams = tuple(replace(team, row=team.row.model_copy(update={"winner": False})) for team in evaluation.teams)
    builders, zero_shot = (float(team.row.normalised) for team in evaluation.scored_teams)
    assert replace(evaluation, teams=teams).verdict == (
        f"No team beats the baseline. The best team, The Builders, has {builders:.2f} of 100 points; "
        f"Zero-shot has {zero_shot:.2f}."
    )
    no_baseline = evaluation.ranking.model_copy(update={"baseline": None})
    assert replace(evaluation, teams=teams, ranking=no_baseline).verdict == no_baseline.reason


def test_a_title_that_another_team_has_is_followed_by_the_name(workspace):
    title = to_json({"role": "baseline", "title": "The Builders"})
    (workspace / "data/submissions/zero-shot/submission.yaml").write_text(title)
    page = write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8")
    for name in ("zero-shot", "builders"):
        assert f">The Builders ({name})</a>" in page


def test_the_ranking_has_one_unit_and_marks_baselines(pages, evaluation):
    for team in evaluation.scored_teams:
        markup = ranking_row(pages["index.html"], team.name)
        total = float(team.row.normalised)
        assert float(re.search(r"<b title[^>]*>([0-9.]+)</b>", markup)[1]) == round(total, 2)
        numbers = re.findall(r'data-label="(?:small|large)">(<?[0-9.]+)<', markup)
        assert sum(map(float, numbers)) == pytest.approx(total, abs=0.011)
        assert ('<td class="rank"><small>baseline</small>' in markup) == (team.name == "zero-shot")
        letters = [letter for model in team.models for letter in model.letters]
        assert sum(evaluation.letter_points(letter) for letter in letters) == pytest.approx(total)
        trials = [(letter, trial) for letter in letters for trial in letter.trials]
        assert sum(evaluation.trial_points(*trial) for trial in trials) == pytest.approx(total)
    assert "used a picture of the letter" in ranking_row(pages["index.html"], "cheats")


def test_hand_made_letters_are_a_reference_and_no_team(workspace, pages):
    assert "Hand-made" not in pages["index.html"]
    for name in ("data/classifier", str(EXAMPLE_LETTERS)):
        shutil.copytree(REPOSITORY / name, workspace / name, dirs_exist_ok=True)
    (workspace / EXAMPLE_LETTERS / "T.txt").unlink()
    markup = write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8")
    score = score_level((REPOSITORY / EXAMPLE_LETTERS / "I.txt").read_text(), "I", physics=PARAMS.physics)
    (row,) = [row for row in parts(part(markup, "ranking"), "tr") if "Hand-made letters" in row]
    for words in ("<small>reference</small>", "not a team", f"<b>{score.similarity:.2f}</b> of 1 letter<"):
        assert words in " ".join(row.split())
    (level,) = html.fromstring(markup).get_element_by_id("reference").findall(".//li")
    assert " ".join(level.text_content().split()) == f"I1.00 · {score.similarity:.2f}"
    assert level.findall(".//path")
    (workspace / EXAMPLE_LETTERS / "I.txt").write_text("no calls")
    with pytest.raises(FileError, match=r"I\.txt"):
        write_report(PARAMS, workspace, workspace / REPORT)


def test_a_team_s_page_begins_with_its_levels_and_every_trial_has_a_picture_or_a_reason(pages):
    markup = team_page(pages, "builders")
    assert re.findall(r"<h2>([^<]+)</h2>", markup) == ["Levels", "Why it lost points", "Rubric grade", "Submission"]
    tree = html.fromstring(markup)
    ids = [[item.get("id") for item in gallery] for gallery in tree.find_class("levels")]
    assert ids == [["builders.small.I"], ["builders.large.I", "builders.large.T"]]
    assert '<a id="builders.small.T" href="#builders.small.T.1">' in markup  # both trials failed
    for team in PARAMS.teams:
        rows = html.fromstring(team_page(pages, team)).find_class("trial")
        assert len(rows) == len(PARAMS.models) * 4
        assert all(bool(row.xpath(".//svg/path")) != bool(row.find_class("failed")) for row in rows)
    text = Page(markup).text
    for words in ("took 501 s; the limit is 500 s", "Width boundary is intruded", "calls: b31 9, b13 9, b31 9"):
        assert words in text


def test_failures_are_counted_and_the_best_level_of_a_letter_is_shown(pages, evaluation):
    rows = [row for row in parts(part(pages["index.html"], "failures"), "tr") if "#builders.small" in row]
    assert re.findall(r'<td class="number[^"]*">(\d+)</td>', rows[0]) == ["1", "1", "1", "1", "0", "0"]
    items = html.fromstring(part(pages["index.html"], "levels")).xpath("//li[@data-letter]")
    likeness = {
        f"teams/{team.name}.html#{team.name}.{model.name}.{trial.trial.letter}.{trial.trial.number}": trial.likeness
        for team in evaluation.scored_teams
        for model in team.models
        for trial in model.trials
    }
    for letter in "IT":
        best, *others = [item for item in items if item.get("data-letter") == letter]
        assert best.xpath(".//a/@href")[0] == max(
            (link for link in likeness if f".{letter}." in link), key=likeness.get
        )
        assert best.get("hidden") is None
        assert all(item.get("hidden") is not None for item in others)


def test_the_same_files_give_the_same_bytes_and_a_fault_leaves_the_old_ones(evaluated, index, tmp_path):
    elsewhere, out = shutil.copytree(evaluated, tmp_path / "other" / "place"), tmp_path / "out"
    for name in ("teams/left.html", "tables/official/left/constants.json"):
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text("of a team or model that left")
    write_report(PARAMS, elsewhere, out)
    before = contents(out)
    assert before == contents(index.parent)
    (elsewhere / RANKING_JSON).unlink()
    with pytest.raises(FileError):
        write_report(PARAMS, elsewhere, out)
    assert contents(out) == before


def test_a_table_has_all_trials_with_the_columns_of_evaluate(index):
    rows = parquet.read_table(index.parent / "tables" / "levels.parquet").to_pylist()
    common = level_table([], "", None).column_names
    assert list(rows[0])[: len(common)] == common
    assert {(row["model"], row["team"]) for row in rows} == {(m, t) for m in PARAMS.models for t in PARAMS.teams}
    assert all((row["reason"] is None) == (row["failed_stage"] is None) for row in rows)
    scored = [row for row in rows if row["score"]]
    assert scored
    assert all(round(row[f"p_{row['letter']}"], 7) == row["similarity"] for row in scored)
    assert all(row["engine"] and row["classifier"] and row["blocks"] for row in scored)
