"""The pages of the report: what stands where, that they load nothing, and what broken files are called."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from evaluated_round import PARAMS
from hypothesis import given
from hypothesis import strategies as st
from lxml import html
from page_for_tests import Page, checked, dead_links, part, parts, ranking_row, team_page
from params_for_tests import contents, file_states
from pyarrow import parquet

from pcgeval import score_level
from pcgeval.bulk.level_table import level_table
from pcgeval.cli.main import main
from pcgeval.core.errors import FileError
from pcgeval.core.files import write_json
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import EXAMPLE_LETTERS, RANKING_JSON, REPORT
from pcgeval.formats.params import Team
from pcgeval.formats.results import RankingFile
from pcgeval.report.collect import CACHE, collect
from pcgeval.report.markup import figure
from pcgeval.report.render import write_report

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def evaluation(evaluated):
    return collect(PARAMS, evaluated)


@pytest.fixture(scope="module")
def single(evaluated, tmp_path_factory):
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
    best = re.findall(r'<a class="level frame" href="teams/builders\.html#([^"]+)"', head)
    assert best == ["builders.large.I.1", "builders.large.T.1"]


def test_without_a_winner_the_baseline_is_named(evaluation):
    teams = tuple(replace(team, row=team.row.model_copy(update={"winner": False})) for team in evaluation.teams)
    points = f"{float(evaluation.scored_teams[0].row.normalised):.2f} of 100 points"
    verdict = replace(evaluation, teams=teams).verdict
    assert verdict.startswith(f"No team beats the baseline. The best team, The Builders, has {points}; Zero-shot has ")


def test_a_title_that_another_team_has_is_followed_by_the_name(workspace):
    teams = {**PARAMS.teams, "zero-shot": Team(role="baseline", title="The Builders")}
    page = write_report(PARAMS.model_copy(update={"teams": teams}), workspace, workspace / REPORT).read_text("utf-8")
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
    letter = workspace / EXAMPLE_LETTERS / "I.txt"
    letter.parent.mkdir(parents=True)
    letter.write_text((REPOSITORY / EXAMPLE_LETTERS / "I.txt").read_text())
    markup = write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8")
    similarity = score_level(letter.read_text(), "I", physics=PARAMS.physics).similarity
    (level,) = html.fromstring(markup).get_element_by_id("reference").findall(".//li")
    assert " ".join(level.text_content().split()) == f"I1.00 · {similarity:.2f}"
    letter.write_text("no calls")
    with pytest.raises(FileError, match=r"I\.txt"):
        write_report(PARAMS, workspace, workspace / REPORT)


def test_a_change_of_one_submission_makes_one_page_and_the_index_and_a_lost_cache_changes_no_byte(workspace):
    write_report(PARAMS, workspace, workspace / REPORT)
    kept, written = (file_states(workspace / place) for place in (CACHE, REPORT))
    prompt = workspace / "data/submissions/builders/prompt.txt"
    prompt.write_text(prompt.read_text() + "Build well.\n")
    ranking = read_json(workspace / RANKING_JSON)
    write_json(workspace / RANKING_JSON, {**ranking, "result": {**ranking["result"], "sha256": "c" * 64}})
    write_report(PARAMS, workspace, workspace / REPORT)

    def changed(place, before):
        return {name for name, state in file_states(workspace / place).items() if state != before.get(name)}

    assert changed(CACHE, kept) == {"builders.html"}
    assert changed(REPORT, written) == {"index.html", "teams/builders.html", "tables/ranking.json"}
    assert "Build well." in (workspace / REPORT / "teams/builders.html").read_text("utf-8")
    report = contents(workspace / REPORT)
    (workspace / CACHE / "builders.html").write_bytes(b"torn")
    (workspace / CACHE / "levels.parquet").unlink()
    write_report(PARAMS, workspace, workspace / REPORT)
    assert contents(workspace / REPORT) == report


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
    reasons = ("took more than 500 s", "Width boundary is intruded", "no diversity")
    for words in (*reasons, "calls: b31 9, b13 9, b31 9"):
        assert words in text


def test_failures_are_counted_by_what_went_wrong(pages):
    rows = parts(part(pages["index.html"], "failures"), "tr")[1:]
    shown = {re.findall(r"<th[^>]*>([^<]+)", row)[0]: re.findall(r">(\d+)</td>", row) for row in rows}
    assert shown == {title: ["2", "2", "0"] for title in ("no fence", "time limit", "too wide")}  # all, small, large


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


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("results/official/large/trial_scores.csv", b"\xff\xfe"),
        ("data/stability/large/builders/trials.json", b"[" * 100_000),
        ("data/raw/large/builders/T/builders_T_1.txt", None),
        ("data/grades/cheats/grade.json", b'{"a": NaN}'),
    ],
)
def test_a_broken_or_missing_file_is_named(workspace, name, content):
    (workspace / name).unlink()
    if content is not None:
        (workspace / name).write_bytes(content)
    with pytest.raises(FileError, match=rf"{name}.*dvc repro") as caught:
        collect(PARAMS, workspace)
    assert len(str(caught.value)) < 2000


def test_a_trial_that_did_not_fail_lacks_no_measurement_and_a_long_response_is_cut(workspace):
    response = b"\xff" + "é".encode() * 1_000_000
    (workspace / "data/raw/large/builders/I/builders_I_1.txt").write_bytes(response)
    builders, *_ = collect(PARAMS, workspace).teams
    assert [trial.reply for trial in builders.trials if len(trial.reply) > 1000] == [f"\ufffd{'é' * 1999}…"]
    path = workspace / "data/similarity/large/builders/I.json"
    write_json(path, read_json(path) | {"trials": read_json(path)["trials"][:-1]})
    with pytest.raises(FileError, match="letter I, trial 2 did not fail"):
        collect(PARAMS, workspace)


def test_a_ranking_of_other_params_is_refused(evaluated):
    for change in ({"teams": {"zero-shot": Team(), "builders": Team()}}, {"models": {"large": PARAMS.models["large"]}}):
        with pytest.raises(FileError, match=r"ranking\.json: has other teams, models, letters or trials"):
            collect(PARAMS.model_copy(update=change), evaluated)


@given(st.floats(0, 1000, exclude_min=True), st.integers(1, 6))
def test_only_zero_looks_like_zero(value, digits):
    shown = figure(value, digits)
    assert shown.startswith("<") or float(shown) > 0
    assert abs(float(shown.lstrip("<")) - value) <= 10.0**-digits
    assert figure(0, digits) == "0"
