"""The script of the pages in a real browser, where there is one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import html
from page_for_tests import sha256_base64

from pcgeval.report.markup import grade_page
from pcgeval.rubric.grade_files import read_grade

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")]
INDEX, TEAM = "index.html", "teams/builders.html"
# with --virtual-time-budget Chromium draws hardly a frame
FRAMES = "requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 16);"
LESS_MOTION = ["--force-prefers-reduced-motion"]


@pytest.fixture(scope="module")
def report(index, tmp_path_factory):
    """A copy of the report beside a grading whose nodes are closed."""
    folder = Path(shutil.copytree(index.parent, tmp_path_factory.mktemp("browser") / "report"))
    half = read_grade(Path(__file__).parents[2] / "data/papers/block-letters/judged/half.json")
    (folder / "grade.html").write_text(grade_page(half, "half").replace(" open>", ">"), "utf-8")
    return folder


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


def choose(number, value):
    """Return a script that chooses what begins with a text in a list."""
    return (
        f"{{ const list = document.querySelectorAll('.find select')[{number}];"
        f"list.value = [...list.options].find((option) => option.textContent.startsWith('{value}')).value;"
        "list.dispatchEvent(new Event('input', { bubbles: true })); }"
    )


def enter(selector, value):
    """Return a script that enters a value in a field."""
    return (
        f"{{ const input = document.querySelector('{selector}'); input.value = '{value}';"
        "input.dispatchEvent(new Event('input', { bubbles: true })); }"
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
    on_index = opened(report, INDEX, "", click(".showcase a[data-motion]")).split("<dialog")[1]
    assert "transform=" in on_index
    assert "teams/builders.html#builders." in on_index


def test_a_level_in_which_nothing_moved_is_built_call_by_call(report):
    still = click(".showcase a:not([data-motion])")
    assert "transform" not in opened(report, INDEX, "", still, options=LESS_MOTION).split("<dialog")[1]
    half = opened(report, INDEX, "", still, enter(".player input", "4"), options=LESS_MOTION).split("<dialog")[1]
    heights = [float(height) for height in re.findall(r'transform="translate\(0 (\S+)\)"', half)]
    assert heights == [0, pytest.approx(-240 * 2 / 3), pytest.approx(-240 * 5 / 3)]
    end = opened(report, INDEX, "", still).split("<dialog")[1]
    assert re.findall(r'transform="translate\(0 (\S+)\)"', end) == ["0"] * 3
    assert "None of them moved" in end


def test_a_link_to_a_trial_opens_its_line_and_its_level(report):
    markup = opened(report, TEAM, "builders.large.I.2")
    row = html.fromstring(markup).get_element_by_id("builders.large.I.2")
    assert all(ancestor.get("open") is not None for ancestor in row.iterancestors("details"))
    assert re.search(r'<dialog[^>]* open=""', markup)
    assert "I 2, The Builders, large" in markup.split("<dialog")[1]


def test_levels_and_trials_are_filtered_and_tables_sorted(report):
    def shown(*acts):
        tree = html.fromstring(opened(report, INDEX, "", *acts))
        items = tree.xpath("//section[@id='levels']//li[@data-letter][not(@hidden)]")
        return sorted((item.get("data-letter"), item.get("data-team")) for item in items)

    assert [letter for letter, _ in shown("0")] == ["I", "T"]
    assert shown(choose(0, "T")) == [("T", "The Builders"), ("T", "Zero-shot")]
    assert shown(choose(1, "Zero-shot")) == [("I", "Zero-shot"), ("T", "Zero-shot")]
    assert len(shown(choose(0, "T"), choose(0, "all letters"))) == 2, "the best ones again"
    markup = opened(report, TEAM, "", enter(".find input", "Width boundary"))
    rows = html.fromstring(markup).xpath("//tr[contains(@class, 'trial')][not(@hidden)]/@id")
    assert rows == ["builders.small.I.2"]
    assert '<p role="status">1 of 8 trials</p>' in markup
    sort = click(".ranking th:nth-child(3) button")
    names = html.fromstring(opened(report, INDEX, "", sort, sort)).xpath("//section[@id='ranking']//th/a/text()")
    assert names[-1] == "The Builders"


def shown_leaves(markup):
    """Return the ids of the leaves that are not hidden, with whether all around each stands open."""
    tree = html.fromstring(markup)
    return {
        leaf.get("id"): all(ancestor.get("open") is not None for ancestor in leaf.iterancestors("details"))
        for leaf in tree.find_class("leaf")
        if leaf.get("hidden") is None
    }


def test_leaves_of_a_grading_are_found_by_what_they_are(report):
    markup = opened(report, "grade.html", "", choose(0, "not graded (1)"))
    assert shown_leaves(markup) == {"node-random-tilt": True}
    assert re.search(r'<p role="status">1 of 19 leaves</p>', markup)
    both = opened(report, "grade.html", "", choose(0, "failed"), choose(1, "Code Execution"))
    assert shown_leaves(both) == {"node-bare-trials": True, "node-plinth-run": True}
    assert len(shown_leaves(opened(report, "grade.html", "", choose(0, "failed"), choose(0, "all")))) == 19
    assert shown_leaves(opened(report, "grade.html", "node-readme"))["node-readme"]
