import base64
import hashlib
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html import unescape

import pytest
from evaluated_round import NOTES, PARAMS, Noted, grade_path, reply, tree, write_round
from hypothesis import given, settings
from hypothesis import strategies as st
from page_for_tests import Page

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json, to_json, write_json
from pcgeval.core.layout import RANKING_JSON, REPORT
from pcgeval.report.collect import collect
from pcgeval.report.render import environment, render_page, write_report
from pcgeval.submissions.load import Notes


@pytest.fixture(scope="module")
def markup(evaluated, tmp_path_factory):
    return write_report(PARAMS, evaluated, tmp_path_factory.mktemp("out")).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(markup):
    return Page(markup)


def test_the_page_is_written_where_it_belongs(workspace):
    path = write_report(PARAMS, workspace, workspace / REPORT)
    assert path == workspace / "results" / "report" / "index.html"
    assert {each.name for each in path.parent.iterdir()} == {"index.html", "plots"}


def test_every_link_has_a_target_and_every_id_is_unique(page):
    ids = page.all("id")
    assert len(ids) == len(set(ids))
    assert set(page.all("href")) <= {f"#{each}" for each in ids}


def test_nothing_is_loaded_and_no_script_runs(page, markup):
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img", "link", "iframe", "object", "form", "base"})
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert page.all("src") == page.all("style") == []
    assert "://" not in markup
    assert "url(" not in markup
    policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
    style = re.search(r"<style>(.*?)</style>", markup, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_the_result_stands_on_the_page(page, evaluated):
    ranking = read_json(evaluated / RANKING_JSON)
    assert ranking["reason"] == "builders wins: it has the highest total, above the baseline zero-shot."
    assert ranking["reason"] in page.text
    for words in ("Test cup", "Edition 7 · final", "The Builders", "baseline", "disqualified", "winner", "told late"):
        assert words in page.text
    assert "used a picture of the letter" in page.text
    for row in ranking["teams"]:
        if row["normalised"] is not None:
            assert f"{float(row['normalised']):.2f}" in page.text
    assert ranking["engine"] in page.text
    assert ranking["classifier"] in page.text
    assert "a" * 64 in page.text


def test_the_verdict_and_the_command_ranking_round_the_same_total_alike(workspace, tmp_path):
    ranking = read_json(workspace / RANKING_JSON)
    best = ranking["teams"][0]
    best["total"] = "0.00339783327489470138"
    ranking["reason"] = f"{best['team']} wins with its total of {best['total']}."
    write_json(workspace / RANKING_JSON, ranking)
    page = Page(write_report(PARAMS, workspace, tmp_path / "out").read_text(encoding="utf-8"))
    printed = subprocess.check_output([sys.executable, "-m", "pcgeval", "ranking"], cwd=workspace, text=True)
    assert f"{best['team']} wins with its total of 0.003398." in page.text
    assert re.search(r"\s0\.003398\s", printed)


def test_every_trial_has_a_picture_or_a_reason(page, markup):
    trials = len(PARAMS.teams) * len(PARAMS.models) * 4
    figures = re.findall(r"<figure>.*?</figure>", markup)
    assert len(figures) == trials
    assert all(("<svg" in figure) != ("failed" in figure) for figure in figures)
    for words in ("took 501 s; the limit is 500 s", "Width boundary is intruded", "no closed fenced block"):
        assert words in page.text


def test_the_heat_map_has_every_letter_of_every_scored_team_and_model(page, markup):
    cells = re.findall(r'<td class="h[0-9]" title="([A-Z]), ([a-z-]+): ', markup)
    assert len(cells) == 4 * 2 * 2 * 2  # measures, scored teams, models, letters
    assert {team for _, team in cells} == {"zero-shot", "builders"}
    assert [attributes["id"] for tag, attributes in page.elements if tag == "input" and "checked" in attributes] == [
        "by-score"
    ]


def test_failures_are_counted_by_stage(markup):
    table = re.search(r'<table class="failures warm">.*?</table>', markup)[0]
    rows = re.findall(r"<tr><th.*?</tr>", table)
    assert len(rows) == 1 + len(PARAMS.teams) * len(PARAMS.models)
    small = next(row for row in rows if '"#builders.small"' in row)
    assert re.findall(r'<td class="number[^"]*">(\d+)</td>', small) == ["1", "1", "1", "1", "0", "0"]


def test_grades_show_the_tree_with_explanations(page, evaluated):
    for team in PARAMS.teams:
        tree_of_team = read_json(grade_path(evaluated, team))["graded_task_tree"]
        for leaf in tree_of_team["sub_tasks"]:
            assert leaf["requirements"] in page.text
            assert leaf["explanation"] in page.text


def test_the_same_files_give_the_same_bytes(evaluated, markup, tmp_path):
    elsewhere = shutil.copytree(evaluated, tmp_path / "other" / "place")
    again = write_report(PARAMS, elsewhere, tmp_path / "out").read_text(encoding="utf-8")
    assert again == markup
    assert str(tmp_path) not in again


def test_nothing_but_the_page_is_written_and_a_fault_leaves_the_old_one(workspace):
    page = write_report(PARAMS, workspace, workspace / REPORT)
    before = tree(workspace)
    (workspace / RANKING_JSON).write_text("{}")
    with pytest.raises(FileError):
        write_report(PARAMS, workspace, workspace / REPORT)
    (workspace / RANKING_JSON).unlink()
    assert tree(workspace) == {path: each for path, each in before.items() if path != RANKING_JSON}
    assert page.exists()


@pytest.fixture(scope="module")
def evaluation(evaluated):
    return collect(PARAMS, evaluated)


HOSTILE = st.text() | st.text("<>&\"'\x00\u202e\ud800{}%#/a \n")
LINE = environment().from_string('<p title="{{ attribute }}">{{ content }}</p>')


@given(HOSTILE, HOSTILE)
def test_no_text_makes_markup_in_a_template(content, attribute):
    found = Page(LINE.render(content=content, attribute=attribute))
    assert [(tag, list(attributes)) for tag, attributes in found.elements] == [("p", ["title"])]
    assert found.text.removesuffix("\n") == unescape(LINE.render(content=content, attribute="")[12:-4])


@settings(deadline=None, max_examples=15)
@given(HOSTILE)
def test_no_text_makes_markup_on_the_page(evaluation, page, text):
    """As the contents of an element (a title), as an attribute (a letter) and as preformatted text (a reply)."""
    (first, *others) = evaluation.teams
    submission = replace(first.submission, notes=Notes.model_construct(title=text))
    (letter, *letters) = first.models[0].letters
    trials = tuple(replace(trial, reply=text or "empty") for trial in letter.trials)
    model = replace(first.models[0], letters=(replace(letter, letter=text, trials=trials), *letters))
    changed = replace(first, submission=submission, models=(model, *first.models[1:]))
    found = Page(render_page(replace(evaluation, teams=(changed, *others))))
    assert [(tag, set(each)) for tag, each in found.elements] == [(tag, set(each)) for tag, each in page.elements]
    assert not {chr(0), chr(0x202E), chr(0xD800)} & set(found.text)


def test_what_hides_or_turns_text_around_is_replaced(evaluation):
    competition = PARAMS.competition.model_copy(update={"name": "a\u202eb\x00c\ud800d\u2066e\x1bf\r, é 漢 🙂"})
    renamed = replace(evaluation, params=PARAMS.model_copy(update={"competition": competition}))
    assert "<h1>a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffd, é 漢 🙂</h1>" in render_page(renamed)


ATTACK = "</title></style></pre></svg><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x00"


def test_what_teams_models_and_judges_say_stays_text(tmp_path):
    def hostile(model, team, trial):
        return reply(model, team, trial) and f"{ATTACK}{reply(model, team, trial)}"

    params = PARAMS.model_copy(
        update={
            "models": {
                key: model.model_copy(update={"name": ATTACK, "options": {"stop": ATTACK}})
                for key, model in PARAMS.models.items()
            },
            "competition": PARAMS.competition.model_copy(update={"name": ATTACK, "edition": ATTACK}),
            "teams": ("zero-shot", "builders"),
        }
    )
    notes = {**NOTES, "builders": to_json({"title": ATTACK.replace("\x00", "")})}
    rubric = {
        "id": "x",
        "requirements": ATTACK,
        "weight": 1,
        "sub_tasks": [],
        "task_category": "Code Execution",
    }
    noticed = Noted(flags=(("altered-answer", ATTACK),), contained=False)
    write_round(tmp_path, params, hostile, notes, rubric=rubric, noted=lambda *_: noticed)
    for team in params.teams:
        grade = read_json(grade_path(tmp_path, team))
        grade["graded_task_tree"]["explanation"] = ATTACK
        write_json(grade_path(tmp_path, team), grade)
    page = Page(write_report(params, tmp_path, tmp_path / "out").read_text(encoding="utf-8"))
    assert {tag for tag, _ in page.elements}.isdisjoint({"script", "img"})
    assert page.text.count("<script>alert(1)</script>") > 10
    assert "\u202e" not in page.text
    assert "\x00" not in page.text


def test_a_large_round_makes_a_page_of_three_megabytes_at_most(tmp_path):
    """Weigh one level of 40 blocks with its share of the page, and reckon it up to 702."""
    wall = "```\n" + "".join(f"drop_block('b11', {x})\n" for _ in range(4) for x in range(5, 15)) + "```"

    def size(trials):
        competition = PARAMS.competition.model_copy(update={"characters": "I", "trials": trials})
        params = PARAMS.model_copy(
            update={"competition": competition, "teams": ("zero-shot",), "models": {"large": PARAMS.models["large"]}}
        )
        root = tmp_path / str(trials)
        write_round(root, params, lambda *_: wall)
        return write_report(params, root, root / "out").stat().st_size

    small, large = size(2), size(6)
    assert small + 702 * (large - small) / 4 < 3_000_000
