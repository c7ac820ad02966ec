"""The script of the pages in a real browser, where there is one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import html
from page_for_tests import sha256_base64

from pcgeval.report.gradings import grade_page
from pcgeval.rubric.grade_files import read_grade

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")]
TEAM = "teams/builders.html"
# with --virtual-time-budget Chromium draws hardly a frame
FRAMES = "requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 16);"


@pytest.fixture(scope="module")
def report(index, tmp_path_factory):
    return shutil.copytree(index.parent, tmp_path_factory.mktemp("browser") / "report")


def opened(folder, page, place="", *acts, options=()):
    """Return a page as it is after a link to a place on it was followed and a person did one thing after the other.

    Acts are scripts; the first comes when the page has drawn what it opened.
    """
    path = folder / page
    if acts:
        act = FRAMES + "".join(f"setTimeout(() => {{ {act} }}, {200 * number});" for number, act in enumerate(acts, 1))
        markup = path.read_text("utf-8").replace("script-src ", f"script-src 'sha256-{sha256_base64(act)}' ", 1)
        path = path.with_name("acted.html")
        path.write_text(markup.replace("</body>", f"<script>{act}</script></body>"), "utf-8")
    address = f"{path.as_uri()}#{place}"
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom", *options]
    return subprocess.run([CHROMIUM, *words, address], capture_output=True, text=True, check=True, timeout=120).stdout


def click(selector):
    return f"document.querySelector('{selector}').click()"


def choose(selector, value):
    """Return a script that chooses what begins with a text in a list."""
    return (
        f"{{ const list = document.querySelectorAll('.find select')[{selector}];"
        f"list.value = [...list.options].find((each) => each.textContent.startsWith('{value}')).value;"
        "list.dispatchEvent(new Event('input', { bubbles: true })); }"
    )


LEVEL = "#builders\\\\.large\\\\.I .level"


def test_a_level_opens_large_and_plays_to_its_end(report):
    markup = opened(report, TEAM, "", click(LEVEL))
    dialog = markup.split("<dialog")[1]
    shown = re.search(r'<h2 id="level-name">I (\d), The Builders, large</h2>', dialog)[1]
    row = re.search(rf'<tr class="trial" id="builders\.large\.I\.{shown}".*?</tr>', markup, re.DOTALL)[0]
    ways = [way.split(",") for way in re.search(r' data-motion="([^"]+)"', row)[1].split("|")]
    ends = [[sum(map(int, way[at::4])) for at in (3, 4, 5, 6)] for way in ways]
    (seconds,) = set(re.search(r"<output>([0-9.]+) of ([0-9.]+) s</output>", dialog).groups())
    assert float(seconds) == pytest.approx((max(time for time, *_ in ends) + 1) / 10)
    moved = re.findall(r'transform="translate\((\S+) (\S+)\) rotate\((\S+)\)" visibility="(\w+)"', dialog)
    assert [list(map(float, place)) for *place, _ in moved] == [pytest.approx(place) for _, *place in ends]
    assert [entry == "hidden" for *_, entry in moved] == [way[0][0] == "b" for way in ways]
    drawn = "".join(re.findall(r'<path class="(?:stayed|moved)" d="([^"]*)"', dialog)).count("z")
    outlined = "".join(re.findall(r' d="([^"]*)"', row)).count("z")
    assert drawn == outlined + sum(way[0][0] == "b" for way in ways)
    assert "drop_block(" in dialog


def test_nothing_moves_by_itself_for_who_wants_less_motion(report):
    less = ["--force-prefers-reduced-motion"]
    dialog = opened(report, TEAM, "", click(LEVEL), options=less).split("<dialog")[1]
    assert re.search(r"<button[^>]*>Play</button>", dialog)
    assert "transform" not in dialog
    acts = click(LEVEL), click(".player button")
    assert "transform" in opened(report, TEAM, "", *acts, options=less).split("<dialog")[1]


def test_the_winner_s_levels_play_on_the_index(report):
    dialog = opened(report, "index.html", "", click(".showcase a[data-motion]")).split("<dialog")[1]
    assert "transform=" in dialog
    assert "teams/builders.html#builders." in dialog


def test_a_link_to_a_trial_opens_its_line_and_its_level(report):
    markup = opened(report, TEAM, "builders.large.I.2")
    row = html.fromstring(markup).get_element_by_id("builders.large.I.2")
    assert all(ancestor.get("open") is not None for ancestor in row.iterancestors("details"))
    assert re.search(r'<dialog[^>]* open=""', markup)
    assert "I 2, The Builders, large" in markup.split("<dialog")[1]


def test_an_address_that_leads_nowhere_breaks_nothing(report):
    act = "onerror = (message) => { document.title = message; }; dispatchEvent(new Event('hashchange'))"
    assert "<title>The Builders" in opened(report, TEAM, "%", act)


def test_levels_are_filtered_by_letter_and_team(report):
    def shown(*acts):
        tree = html.fromstring(opened(report, "index.html", "", *acts))
        items = tree.xpath("//section[@id='levels']//li[not(@hidden)]")
        return sorted((item.get("data-letter"), item.get("data-team")) for item in items)

    assert [letter for letter, _ in shown("0")] == ["I", "T"]
    assert shown(choose(0, "T")) == [("T", "The Builders"), ("T", "Zero-shot")]
    assert shown(choose(1, "Zero-shot")) == [("I", "Zero-shot"), ("T", "Zero-shot")]


def test_trials_are_found_by_their_words_and_tables_sorted(report):
    search = (
        "{ const input = document.querySelector('.find input'); input.value = 'Width boundary';"
        "input.dispatchEvent(new Event('input', { bubbles: true })); }"
    )
    markup = opened(report, TEAM, "", search)
    rows = html.fromstring(markup).xpath("//tr[contains(@class, 'trial')][not(@hidden)]/@id")
    assert rows == ["builders.small.I.2"]
    assert '<p role="status">1 of 8</p>' in markup
    sort = click(".ranking th:nth-child(3) button")
    names = html.fromstring(opened(report, "index.html", "", sort, sort)).xpath("//section[@id='ranking']//th/a/text()")
    assert names[-1] == "The Builders"


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


def test_leaves_of_a_grading_are_found_by_what_they_are(graded):
    markup = opened(graded, "grade.html", "", choose(0, "not graded (1)"))
    assert shown_leaves(markup) == {"node-random-tilt": True}
    assert re.search(r'<p role="status">1 of 19 leaves</p>', markup)
    both = opened(graded, "grade.html", "", choose(0, "failed"), choose(1, "Code Execution"))
    assert shown_leaves(both) == {"node-bare-trials": True, "node-plinth-run": True}
    undone = opened(graded, "grade.html", "", choose(0, "failed"), choose(0, "all"))
    assert set(shown_leaves(undone).values()) == {False}


def test_a_link_to_a_leaf_opens_what_is_around_it(graded):
    assert shown_leaves(opened(graded, "grade.html", "node-readme"))["node-readme"]
    button = "[...document.querySelectorAll('.find button')].find((each) => each.textContent === 'Open all').click()"
    assert all(shown_leaves(opened(graded, "grade.html", "", button)).values())
