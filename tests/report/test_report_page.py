"""The pages of the report: what stands where, that they load nothing, and that strangers' texts stay text."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from evaluated_round import NOTES, PARAMS, Noted, reply, write_round
from lxml import html
from page_for_tests import Page, dead_links, part, parts, ranking_row, read_report, sha256_base64, team_page
from params_for_tests import contents
from pyarrow import parquet

from pcgeval import score_level
from pcgeval.cli.main import main
from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json, to_json, write_json
from pcgeval.core.layout import (
    EXAMPLE_LETTERS,
    RANKING_JSON,
    REPORT,
    SIMULATIONS_FILE,
    grade_file,
    stage_dir,
)
from pcgeval.core.level_table import level_table
from pcgeval.core.stage_files import RankingFile
from pcgeval.report.collect import collect
from pcgeval.report.render import render_pages, write_report

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


def check_policy(markup, *, is_single=False):
    """Check that a page loads nothing but our style and script, that no other script runs, and that all is closed."""
    page = Page(markup)
    assert {tag for tag, _ in page.elements}.isdisjoint({"img", "iframe", "object", "form", "base"})
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.all("style") == []
    assert "://" not in markup.replace("http://www.w3.org/2000/svg", "")
    assert "url(" not in markup
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    sources = ["'self'"] * 2
    if is_single:
        inline = [re.search(rf"<{tag}>(.*?)</{tag}>", markup, re.DOTALL)[1] for tag in ("style", "script")]
        sources = [f"'sha256-{sha256_base64(text)}'" for text in inline]
    style, script = sources
    scripts = [attributes.get("src", "inline") for tag, attributes in page.elements if tag == "script"]
    links = [attributes["href"] for tag, attributes in page.elements if tag == "link"]
    assert [name.removeprefix("../") for name in scripts + links] == (
        ["inline"] if is_single else ["report.js", "report.css"]
    )
    kinds = f"default-src 'none'; style-src {style}; script-src {script}; base-uri 'none'; form-action 'none'"
    assert policy == kinds
    ids = page.all("id")
    assert len(ids) == len(set(ids))


def test_every_link_has_a_target_and_nothing_else_is_loaded(index, pages, single):
    assert dead_links(index) == []
    for markup in pages.values():
        check_policy(markup)
    check_policy(single, is_single=True)
    whole = Page(single)
    assert {href.removeprefix("#") for href in whole.all("href")} <= set(whole.all("id"))
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
    (builders, zero_shot), ranking = evaluation.scored_teams, evaluation.ranking
    best, base = (f"{team.title}, has {team.row.normalised:.2f}" for team in (builders, zero_shot))
    words = replace(evaluation, teams=teams).verdict
    assert words.startswith(f"No team beats the baseline. The best team, {best} of 100 points; ")
    assert words.endswith(f"{base.replace(',', '')}.")
    no_baseline = ranking.model_copy(update={"baseline": None})
    assert replace(evaluation, teams=teams, ranking=no_baseline).verdict == ranking.reason


def test_a_title_that_another_team_has_is_followed_by_the_name(workspace):
    title = to_json({"role": "baseline", "title": "The Builders"})
    (workspace / "data/submissions/zero-shot/submission.yaml").write_text(title)
    page = write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8")
    for name in ("zero-shot", "builders"):
        assert f">The Builders ({name})</a>" in page


def test_the_ranking_has_one_unit_and_marks_baselines(pages, evaluation):
    for team in evaluation.teams:
        markup = ranking_row(pages["index.html"], team.name)
        if team.is_disqualified:
            assert "used a picture of the letter" in markup
            continue
        total = float(team.row.normalised)
        assert float(re.search(r"<b title[^>]*>([0-9.]+)</b>", markup)[1]) == round(total, 2)
        numbers = re.findall(r'data-label="(?:small|large)">(<?[0-9.]+)<', markup)
        assert sum(map(float, numbers)) == pytest.approx(total, abs=0.011)
        assert ('<tr class="baseline"' in markup) == (team.name == "zero-shot")
        assert ('<td class="rank"><small>baseline</small>' in markup) == (team.name == "zero-shot")
        letters = [letter for model in team.models for letter in model.letters]
        assert sum(evaluation.letter_points(letter) for letter in letters) == pytest.approx(total)
        trials = [(letter, trial) for letter in letters for trial in letter.trials]
        assert sum(evaluation.trial_points(*trial) for trial in trials) == pytest.approx(total)


def test_hand_made_letters_are_a_reference_and_no_team(workspace, pages):
    assert "Hand-made" not in pages["index.html"]
    for name in ("data/classifier", str(EXAMPLE_LETTERS)):
        shutil.copytree(REPOSITORY / name, workspace / name, dirs_exist_ok=True)
    (workspace / EXAMPLE_LETTERS / "T.txt").unlink()
    before = (workspace / RANKING_JSON).read_bytes()
    markup = write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8")
    score = score_level((REPOSITORY / EXAMPLE_LETTERS / "I.txt").read_text(), "I", physics=PARAMS.physics)
    assert score.stability == 1
    (row,) = [row for row in parts(part(markup, "ranking"), "tr") if "Hand-made letters" in row]
    for words in ("<small>reference</small>", "not a team", f"<b>{score.similarity:.2f}</b> of 1 letter<"):
        assert words in " ".join(row.split())
    (level,) = html.fromstring(markup).get_element_by_id("reference").findall(".//li")
    assert " ".join(level.text_content().split()) == f"I1.00 · {score.similarity:.2f}"
    assert level.findall(".//path")
    assert (workspace / RANKING_JSON).read_bytes() == before
    assert write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8") == markup
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
    for words in ("took 501 s; the limit is 500 s", "Width boundary is intruded", "no closed fenced block"):
        assert words in Page(markup).text
    text = " ".join(tree.get_element_by_id("builders.large.I.1").text_content().split())
    assert "calls: b31 9, b13 9, b31 9" in text
    assert "drop_block('b13', 9)" in text


def test_a_fragile_level_has_the_spread_of_its_stability(workspace):
    file = workspace / stage_dir("stability", "large", "builders") / SIMULATIONS_FILE
    simulations = read_json(file)
    simulations["trials"][0]["starts"] = [0.25, 1.0, 0.5]
    simulations["trials"][1]["starts"] = [0.5, 0.5, 0.5]
    write_json(file, simulations)
    params = PARAMS.model_copy(update={"physics": PARAMS.physics.model_copy(update={"starts": 3})})
    markup = team_page(dict(render_pages(collect(params, workspace))), "builders")
    assert markup.count("<small>0.25 – 1.00</small>") == 1
    assert "<b>1</b> level is fragile" in markup


def test_failures_are_counted_and_the_best_level_of_a_letter_is_shown(pages, evaluation):
    rows = [row for row in parts(part(pages["index.html"], "failures"), "tr") if "teams/builders.html" in row]
    small = next(row for row in rows if "#builders.small" in row)
    assert re.findall(r'<td class="number[^"]*">(\d+)</td>', small) == ["1", "1", "1", "1", "0", "0"]
    items = html.fromstring(part(pages["index.html"], "levels")).xpath("//li[@data-letter]")
    likeness = {
        f"teams/{team.name}.html#{team.name}.{model.name}.{trial.trial.letter}.{trial.trial.number}": trial.likeness
        for team in evaluation.scored_teams
        for model in team.models
        for trial in model.trials
    }
    for letter in "IT":
        best, *others = [item for item in items if item.get("data-letter") == letter]
        most = max(value for link, value in likeness.items() if f".{letter}." in link)
        assert likeness[best.xpath(".//a/@href")[0]] == most
        assert best.get("hidden") is None
        assert all(item.get("hidden") is not None for item in others)


def test_the_same_files_give_the_same_bytes_without_pages_of_teams_that_left_and_a_fault_leaves_the_old_ones(
    evaluated, index, pages, tmp_path
):
    elsewhere, out = shutil.copytree(evaluated, tmp_path / "other" / "place"), tmp_path / "out"
    for name in ("teams/left.html", "tables/official/left/constants.json"):
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text("of an earlier run")
    write_report(PARAMS, elsewhere, out)
    before = contents(out)
    assert before == contents(index.parent)
    assert str(tmp_path) not in "".join(pages.values())
    (elsewhere / RANKING_JSON).unlink()
    with pytest.raises(FileError):
        write_report(PARAMS, elsewhere, out)
    assert contents(out) == before


def test_a_table_has_all_trials_with_the_columns_of_evaluate(index):
    rows = parquet.read_table(index.parent / "tables" / "levels.parquet").to_pylist()
    common = level_table([], "", None).column_names
    assert list(rows[0])[: len(common)] == common
    assert {(row["model"], row["team"]) for row in rows} == {(m, t) for m in PARAMS.models for t in PARAMS.teams}
    assert {row["reason"] is None for row in rows} == {True, False}
    assert all((row["reason"] is None) == (row["failed_stage"] is None) for row in rows)
    scored = [row for row in rows if row["score"]]
    assert scored
    assert all(round(row[f"p_{row['letter']}"], 7) == row["similarity"] for row in scored)
    assert all(row["engine"] and row["classifier"] and row["blocks"] for row in scored)


ATTACK = "</title></style></pre></svg><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x00"


def test_what_teams_models_and_judges_say_stays_text(tmp_path):
    def hostile(model, team, trial):
        return reply(model, team, trial) and f"{ATTACK}{reply(model, team, trial)}"

    models = {
        key: model.model_copy(update={"name": ATTACK, "options": {"stop": ATTACK}})
        for key, model in PARAMS.models.items()
    }
    competition = PARAMS.competition.model_copy(update={"name": ATTACK, "edition": ATTACK})
    params = PARAMS.model_copy(
        update={"models": models, "competition": competition, "teams": ("zero-shot", "builders")}
    )
    notes = {**NOTES, "builders": to_json({"title": ATTACK.replace("\x00", "")})}
    rubric = {"id": "x", "requirements": ATTACK, "weight": 1, "sub_tasks": [], "task_category": "Code Execution"}
    noticed = Noted(flags=(("altered-answer", ATTACK),), contained=False)
    write_round(tmp_path, params, hostile, notes, rubric=rubric, noted=lambda *_: noticed)
    for team in params.teams:
        grade = read_json(tmp_path / grade_file(team))
        grade["graded_task_tree"]["explanation"] = ATTACK
        write_json(tmp_path / grade_file(team), grade)
    texts = ""
    for markup in read_report(write_report(params, tmp_path, tmp_path / "out")).values():
        page = Page(markup)
        assert [tag for tag, _ in page.elements].count("script") == 1
        assert "img" not in {tag for tag, _ in page.elements}
        texts += page.text
    assert texts.count("<script>alert(1)</script>") > 10
    assert not {"\u202e", "\x00"} & set(texts)
