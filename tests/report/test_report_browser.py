"""The script of a team's page, and of a grading's, in a real browser, where there is one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from evaluated_round import PARAMS
from lxml import html
from page_for_tests import sha256_base64

from pcgeval.report.gradings import grade_page
from pcgeval.report.render import write_report
from pcgeval.rubric.grade_files import read_grade

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")]


@pytest.fixture(scope="module")
def report(evaluated, tmp_path_factory):
    return write_report(PARAMS, evaluated, tmp_path_factory.mktemp("out")).parent


def opened(report, place, page="teams/builders.html", act="", options=()):
    """Return a page as it is after a link to a place on it was followed; `act` is a script that a person stands for."""
    path = report / page
    if act:
        markup = path.read_text("utf-8").replace("script-src ", f"script-src 'sha256-{sha256_base64(act)}' ", 1)
        path = path.with_name("acted.html")
        path.write_text(markup.replace("</body>", f"<script>{act}</script></body>"), "utf-8")
    address = f"{path.as_uri()}#{place}"
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom", *options]
    return subprocess.run([CHROMIUM, *words, address], capture_output=True, text=True, check=True, timeout=120).stdout


def test_a_link_to_a_trial_opens_its_letter_with_a_picture_of_each_level(report):
    markup = opened(report, "m-large.I.2")
    assert re.search(r'<details id="m-large"[^>]* open=""', markup)
    letter = markup[markup.index('<details class="letter" id="m-large.I"') : markup.index('id="m-large.T"')]
    assert re.match(r"[^>]* open=", letter)
    gallery = re.search(r'<div class="gallery">(.*?)</div>', letter)[1]
    drawn = re.findall(r'<path class="(stayed|moved)" d="([^"]+)"', gallery)
    assert drawn == re.findall(r' data-(stayed|moved)="([^"]+)"', letter)
    assert len(drawn) >= 2


SHOW = "document.querySelectorAll('.gallery button')[1].click()"
PLAY = "document.querySelector('.player button').click()"


# with --virtual-time-budget Chromium draws hardly a frame
FRAMES = "requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 16);"


def later(*acts):
    """Return a script that does one thing after the other, the first when the page has drawn what it opened."""
    return FRAMES + "".join(
        f"setTimeout(() => {{ {act} }}, {200 * number});" for number, act in enumerate(acts, start=1)
    )


def test_an_opened_level_plays_to_its_end(report):
    markup = opened(report, "m-large.I.2", act=later(SHOW))
    row = re.search(r'<tr id="m-large.I.2"[^>]*>', markup)[0]
    ways = [each.split(",") for each in re.search(r' data-motion="([^"]+)"', row)[1].split("|")]
    ends = [[sum(map(int, way[at::4])) for at in (3, 4, 5, 6)] for way in ways]
    dialog = markup.split("<dialog")[1]
    (seconds,) = set(re.search(r"<output>([0-9.]+) of ([0-9.]+) s</output>", dialog).groups())
    assert float(seconds) == pytest.approx((max(time for time, *_ in ends) + 1) / 10)
    shown = re.findall(r'transform="translate\((\S+) (\S+)\) rotate\((\S+)\)" visibility="(\w+)"', dialog)
    assert [list(map(float, place)) for *place, _ in shown] == [place for _, *place in ends]
    assert [each == "hidden" for *_, each in shown] == [way[0][0] == "b" for way in ways]
    drawn = "".join(re.findall(r'<path class="(?:stayed|moved)" d="([^"]*)"', dialog)).count("z")
    outlined = "".join(re.findall(r' data-(?:stayed|moved)="([^"]*)"', row)).count("z")
    assert drawn == outlined + sum(way[0][0] == "b" for way in ways)


def test_nothing_moves_by_itself_for_who_wants_less_motion(report):
    less = ["--force-prefers-reduced-motion"]
    dialog = opened(report, "m-large.I.2", act=later(SHOW), options=less).split("<dialog")[1]
    assert re.search(r"<button[^>]*>Play</button>", dialog)
    assert "transform" not in dialog
    assert "transform" in opened(report, "m-large.I.2", act=later(SHOW, PLAY), options=less).split("<dialog")[1]


def test_an_address_that_leads_nowhere_breaks_nothing(report):
    act = "onerror = (message) => { document.title = message; }; dispatchEvent(new Event('hashchange'))"
    assert "<title>The Builders" in opened(report, "%", act=act)


def test_trials_can_be_found_and_tables_sorted(report):
    assert re.search(r'<div class="find" role="search"><label>.*<option>large</option>', opened(report, "levels"))
    index = opened(report, "ranking", "index.html")
    assert re.search(r'<table class="ranking sortable"><thead><tr><th scope="col"><button type="button">Rank', index)


def test_what_is_not_opened_is_not_drawn(report):
    assert not re.search(r'<path class="(stayed|moved)"', opened(report, "submission"))


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    half = read_grade(Path(__file__).parents[2] / "data/papers/block-letters/judged/half.json")
    folder = tmp_path_factory.mktemp("graded")
    (folder / "grade.html").write_text(grade_page(half, "half").replace(" open>", ">"), "utf-8")
    return folder


def shown_leaves(markup):
    """Return the ids of the leaves that are not hidden, with whether all around each stands open."""
    tree = html.fromstring(markup)
    return {
        leaf.get("id"): all(ancestor.get("open") is not None for ancestor in leaf.iterancestors("details"))
        for leaf in tree.find_class("leaf")
        if leaf.get("hidden") is None
    }


def choosing(number, value):
    """Return a script that chooses what begins with a text in one of the lists above the tree."""
    return (
        f"{{ const list = document.querySelectorAll('#grades .find select')[{number}];"
        f"list.value = [...list.options].find((each) => each.textContent.startsWith('{value}')).value;"
        "list.dispatchEvent(new Event('input', { bubbles: true })); }"
    )


def test_leaves_of_a_grading_are_found_by_what_they_are(graded):
    markup = opened(graded, "grades", "grade.html", act=later(choosing(0, "not graded (1)")))
    assert shown_leaves(markup) == {"node-random-tilt": True}
    assert re.search(r'<p role="status">1 of 19 leaves</p>', markup)
    both = opened(graded, "grades", "grade.html", act=later(choosing(0, "failed"), choosing(1, "Code Execution")))
    assert shown_leaves(both) == {"node-bare-trials": True, "node-plinth-run": True}
    undone = later(choosing(0, "failed"), choosing(0, "all"))
    assert set(shown_leaves(opened(graded, "grades", "grade.html", act=undone)).values()) == {False}


def test_a_link_to_a_leaf_opens_what_is_around_it(graded):
    assert shown_leaves(opened(graded, "node-readme", "grade.html"))["node-readme"]
    acts = later(
        "[...document.querySelectorAll('.find button')].find((each) => each.textContent === 'Open all').click()"
    )
    assert all(shown_leaves(opened(graded, "grades", "grade.html", act=acts)).values())
