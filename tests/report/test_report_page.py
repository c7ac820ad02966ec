import re
import shutil
from dataclasses import replace
from html import unescape

import pytest
from evaluated_round import NOTES, PARAMS, Noted, grade_path, reply, tree, write_round
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import html
from page_for_tests import Page, dead_links, part, read_report, sha256_base64, team_page

from pcgeval.core.errors import FileError
from pcgeval.core.files import read_json, to_json, write_json, write_text
from pcgeval.core.layout import OFFICIAL_RESULTS, RANKING_JSON, REPORT, SEAL, SIMULATIONS_FILE, stage_dir
from pcgeval.core.stage_files import TrialRow, read_csv
from pcgeval.report.collect import collect
from pcgeval.report.markup import environment
from pcgeval.report.render import render_pages, write_report
from pcgeval.scoring.official_files import TRIAL_SCORES
from pcgeval.scoring.seal import make_seal
from pcgeval.submissions.load import Notes


@pytest.fixture(scope="module")
def index(evaluated, tmp_path_factory):
    return write_report(PARAMS, evaluated, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def pages(index):
    return read_report(index)


@pytest.fixture(scope="module")
def page(pages):
    return Page(pages["index.html"])


def test_the_pages_are_written_where_they_belong_and_those_of_other_teams_removed(workspace):
    old = write_report(PARAMS, workspace, workspace / REPORT).read_text("utf-8")
    write_text(workspace / REPORT / "teams" / "of-another-round.html", old)
    write_text(workspace / REPORT / "letters" / "Z.html", old)
    path = write_report(PARAMS, workspace, workspace / REPORT)
    assert path == workspace / "results" / "report" / "index.html"
    assert {each.name for each in path.parent.iterdir()} == {"index.html", "letters", "plots", "tables", "teams"}
    assert sorted(each.name for each in (path.parent / "letters").iterdir()) == ["I.html", "T.html"]
    assert sorted(each.name for each in (path.parent / "teams").iterdir()) == sorted(
        f"{team}.html" for team in PARAMS.teams
    )


def test_the_page_shows_the_seal_and_what_differs(workspace, page):
    assert "Seal (SHA-256)\nnone" in page.text
    seal = make_seal(PARAMS, workspace)
    seal.write(workspace / SEAL)
    index = workspace / REPORT / "index.html"
    write_report(PARAMS, workspace, workspace / REPORT)
    assert f"Seal (SHA-256)\n{seal.sha256}, agrees" in Page(index.read_text("utf-8")).text
    seal.model_copy(update={"submissions": {**seal.submissions, "<b>": "a" * 64}}).write(workspace / SEAL)
    write_report(PARAMS, workspace, workspace / REPORT)
    text = Page(index.read_text("utf-8")).text
    assert f"Seal (SHA-256)\n{seal.sha256}, differs" in text
    assert "results/seal.json was altered" in text
    assert "Team <b> is in the seal; it was removed afterwards." in text
    (workspace / SEAL).write_text("{}")
    with pytest.raises(FileError, match=r"seal\.json"):
        write_report(PARAMS, workspace, workspace / REPORT)


def test_every_link_has_a_target_and_every_id_is_unique(index, pages):
    assert dead_links(index) == []
    for markup in pages.values():
        ids = Page(markup).all("id")
        assert len(ids) == len(set(ids))


def test_nothing_is_loaded_and_no_script_runs_but_ours(pages):
    for markup in pages.values():
        page = Page(markup)
        assert {tag for tag, _ in page.elements}.isdisjoint({"img", "link", "iframe", "object", "form", "base"})
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert page.all("src") == page.all("style") == []
        script = "".join(re.findall(r"<script>(.*?)</script>", markup, re.DOTALL))
        assert "://" not in markup.replace("http://www.w3.org/2000/svg", "")
        assert "url(" not in markup
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", script)
        policy = next(attributes["content"] for _, attributes in page.elements if "http-equiv" in attributes)
        style = re.search(r"<style>(.*?)</style>", markup, re.DOTALL)[1]
        assert policy.startswith("default-src 'none'; ")
        assert policy.endswith("; base-uri 'none'; form-action 'none'")
        assert f"style-src 'sha256-{sha256_base64(style)}'" in policy
        assert not script or f"script-src 'sha256-{sha256_base64(script)}'" in policy


def test_the_result_stands_on_the_page(page, evaluated):
    ranking = read_json(evaluated / RANKING_JSON)
    assert ranking["reason"] == "builders wins: it has the highest total, above the baseline zero-shot."
    assert ranking["result"]["sha256"] in page.text
    assert ranking["reason"] in page.text
    for words in ("Test cup", "Edition 7 · final", "The Builders", "baseline", "disqualified", "winner"):
        assert words in page.text
    assert "used a picture of the letter" in page.text
    for row in ranking["teams"]:
        if row["normalised"] is not None:
            assert f"{float(row['normalised']):.2f}" in page.text
    assert ranking["engine"] in page.text
    assert ranking["classifier"] in page.text
    assert "a" * 64 in page.text


def test_every_trial_has_an_outline_or_a_reason(pages):
    for team in PARAMS.teams:
        rows = [row for row in html.fromstring(team_page(pages, team)).iter("tr") if row.get("id", "").count(".") == 2]
        assert len(rows) == len(PARAMS.models) * 4
        assert all(("data-level" in row.attrib) != bool(row.find_class("failed")) for row in rows)
        assert all(
            ("data-stayed" in row.attrib or "data-moved" in row.attrib) == ("data-level" in row.attrib) for row in rows
        )
    text = Page(team_page(pages, "builders")).text
    for words in ("took 501 s; the limit is 500 s", "Width boundary is intruded", "no closed fenced block"):
        assert words in text


def test_a_level_s_row_has_its_calls_probabilities_and_score(pages, evaluated):
    row = html.fromstring(team_page(pages, "builders")).get_element_by_id("m-large.I.1")
    assert row.get("data-calls") == "b31 9, b13 9, b31 9"
    likeliest = [each.split() for each in row.get("data-read").split(", ")]
    assert len(likeliest) == 5
    assert sorted((float(share) for _, share in likeliest), reverse=True) == [float(share) for _, share in likeliest]
    table = (evaluated / OFFICIAL_RESULTS / "large" / TRIAL_SCORES).read_text()
    score = re.search(r'^"builders","I",1,"([0-9.]+)"', table, re.MULTILINE)[1]
    assert float(row.get("data-score")) == pytest.approx(float(score), rel=1e-5)
    stability, similarity = map(float, row.get("data-factors").split(" × similarity "))
    weight = float(row.xpath("ancestor::details[@data-weight]")[0].get("data-weight"))
    assert weight * stability * similarity == pytest.approx(float(score), rel=1e-4)


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


def test_the_best_level_of_a_letter_has_the_highest_stability_times_similarity(page, evaluated):
    best = {}
    for model in PARAMS.models:
        for row in read_csv(TrialRow, evaluated / OFFICIAL_RESULTS / model / TRIAL_SCORES):
            if row.score:
                link = f"teams/{row.team}.html#m-{model}.{row.letter}.{row.trial}"
                best.setdefault(row.letter, {})[link] = row.stability * row.similarity
    shown = [href for href in page.all("href") if re.fullmatch(r"teams/.*\..\.\d+", href)]
    assert len(shown) == len(best)
    for link, values in zip(shown, best.values(), strict=True):
        assert values[link] == max(values.values())


def test_the_heat_map_has_every_letter_of_every_scored_team_and_model(page, pages):
    cells = re.findall(r'<td class="h[0-9]">', part(pages["index.html"], "letters"))
    assert len(cells) == 4 * 2 * 2 * 2  # measures, scored teams, models, letters
    assert [attributes["id"] for tag, attributes in page.elements if tag == "input" and "checked" in attributes] == [
        "by-score"
    ]


def test_failures_are_counted_by_stage(pages):
    table = re.search(r'<table class="failures warm sortable">.*?</table>', pages["index.html"])[0]
    rows = re.findall(r"<tr[^>]*><th.*?</tr>", table)
    assert len(rows) == 1 + len(PARAMS.teams) * len(PARAMS.models)
    small = next(row for row in rows if '"teams/builders.html#m-small"' in row)
    assert re.findall(r'<td class="number[^"]*">(\d+)</td>', small) == ["1", "1", "1", "1", "0", "0"]


def test_grades_show_the_tree_with_explanations(pages, evaluated):
    for team in PARAMS.teams:
        page = Page(team_page(pages, team))
        tree_of_team = read_json(grade_path(evaluated, team))["graded_task_tree"]
        for leaf in tree_of_team["sub_tasks"]:
            assert leaf["requirements"] in page.text
            assert leaf["explanation"] in page.text


def test_the_same_files_give_the_same_bytes(evaluated, pages, tmp_path):
    elsewhere = shutil.copytree(evaluated, tmp_path / "other" / "place")
    again = read_report(write_report(PARAMS, elsewhere, tmp_path / "out"))
    assert again == pages
    assert str(tmp_path) not in "".join(again.values())


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
def test_no_text_makes_markup_on_the_pages(evaluation, pages, text):
    """As the contents of an element (a title), as an attribute (a letter, calls) and as preformatted text (a reply)."""
    (first, *others) = evaluation.teams
    submission = replace(first.submission, notes=Notes.model_construct(title=text))
    (letter, *letters) = first.models[0].letters
    trials = tuple(
        replace(trial, reply=text or "empty", code=text if trial.code and text else trial.code)
        for trial in letter.trials
    )
    model = replace(first.models[0], letters=(replace(letter, letter=text, trials=trials), *letters))
    changed = replace(first, submission=submission, models=(model, *first.models[1:]))
    for name, markup in render_pages(replace(evaluation, teams=(changed, *others))):
        found, before = Page(markup), Page(pages[name])
        assert [(tag, set(each)) for tag, each in found.elements] == [(tag, set(each)) for tag, each in before.elements]
        assert not {chr(0), chr(0x202E), chr(0xD800)} & set(found.text)


def test_what_hides_or_turns_text_around_is_replaced(evaluation):
    competition = PARAMS.competition.model_copy(update={"name": "a\u202eb\x00c\ud800d\u2066e\x1bf\r, é 漢 🙂"})
    renamed = replace(evaluation, params=PARAMS.model_copy(update={"competition": competition}))
    assert "<h1>a\ufffdb\ufffdc\ufffdd\ufffde\ufffdf\ufffd, é 漢 🙂</h1>" in dict(render_pages(renamed))["index.html"]


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
    texts = ""
    for markup in read_report(write_report(params, tmp_path, tmp_path / "out")).values():
        page = Page(markup)
        assert [tag for tag, _ in page.elements].count("script") == 1
        assert "img" not in {tag for tag, _ in page.elements}
        texts += page.text
    assert texts.count("<script>alert(1)</script>") > 10
    assert "\u202e" not in texts
    assert "\x00" not in texts


def test_a_large_round_makes_an_index_below_300_kilobytes_and_pages_of_teams_below_2500(tmp_path):
    """Weigh a level of 40 blocks and a team with their shares of the pages, and reckon them up to 780 and to 10."""
    wall = "```\n" + "".join(f"drop_block('b11', {x})\n" for _ in range(4) for x in range(5, 15)) + "```"

    def sizes(trials, teams, letters="I"):
        competition = PARAMS.competition.model_copy(update={"characters": letters, "trials": trials})
        params = PARAMS.model_copy(
            update={"competition": competition, "teams": teams, "models": {"large": PARAMS.models["large"]}}
        )
        root = tmp_path / f"{trials}-{len(teams)}-{letters}"
        write_round(root, params, lambda *_: wall)
        pages = read_report(write_report(params, root, root / "out"))
        return len(pages["index.html"].encode()), len(team_page(pages, "zero-shot").encode())

    one, two = ("zero-shot",), ("zero-shot", "builders")
    least, with_team, with_letter, with_both = (sizes(2, *each) for each in ((one,), (two,), (one, "IT"), (two, "IT")))
    a_team, a_letter = with_team[0] - least[0], with_letter[0] - least[0]
    a_cell = with_both[0] - with_team[0] - with_letter[0] + least[0]
    assert least[0] + 30 * a_team + 78 * a_letter + 780 * a_cell < 300_000
    assert least[1] + 780 * (sizes(6, one)[1] - least[1]) / 4 < 2_500_000
