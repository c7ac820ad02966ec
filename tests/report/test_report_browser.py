"""The script of the pages in a real browser, where there is one."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from lxml import html
from page_for_tests import sha256_base64

from pcgeval.report.markup import grade_page
from pcgeval.rubric.output import read_grade

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not CHROMIUM, reason="needs Chromium")]
INDEX, TEAM = "index.html", "teams/builders.html"
# with --virtual-time-budget Chromium draws hardly a frame
FRAMES = "requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 16);"


@pytest.fixture(scope="module")
def report(index, tmp_path_factory):
    """A copy of the report beside a grading whose nodes are closed."""
    folder = Path(shutil.copytree(index.parent, tmp_path_factory.mktemp("browser") / "report"))
    half = read_grade(Path(__file__).parents[2] / "data/papers/block-letters/judged/half.json")
    (folder / "grade.html").write_text(grade_page(half, "half").replace(" open>", ">"), "utf-8")
    return folder


def opened(folder, page, place="", *acts):
    """Return a page as it is after a link to a place on it was followed and a person did one thing after the other.

    Acts are scripts; the first comes when the page has drawn what it opened.
    """
    path = folder / page
    if acts:
        act = "".join(f"setTimeout(() => {{ {act} }}, {200 * number});" for number, act in enumerate(acts, 1))
        markup = path.read_text("utf-8").replace("script-src ", f"script-src 'sha256-{sha256_base64(act)}' ", 1)
        markup = markup.replace("<head>", f"<head><script>{FRAMES}</script>", 1)  # the page's policy follows it
        path = path.with_name("acted.html")
        path.write_text(markup.replace("</body>", f"<script>{act}</script></body>"), "utf-8")
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=8000", "--dump-dom"]
    command = [CHROMIUM, *words, f"{path.as_uri()}#{place}"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout


def click(selector):
    return f"document.querySelector('{selector}').click()"


def enter(field, value):
    """Return a script that enters a value in the field that an expression names."""
    return (
        f"{{ const field = {field}; field.value = {value};"
        "field.dispatchEvent(new Event('input', { bubbles: true })); }"
    )


def choose(number, text):
    """Return a script that chooses what begins with a text in a list."""
    options = f"[...field.options].find((option) => option.textContent.startsWith('{text}')).value"
    return enter(f"document.querySelectorAll('.find select')[{number}]", options)


def is_open(element):
    return all(ancestor.get("open") is not None for ancestor in element.iterancestors("details"))


def test_a_link_to_a_trial_opens_its_line_and_its_level_which_plays_to_its_end(report):
    markup = opened(report, TEAM, "builders.large.I.2", "")
    row, dialog = html.fromstring(markup).get_element_by_id("builders.large.I.2"), markup.split("<dialog")[1]
    assert is_open(row)
    assert re.match(r'[^>]* open="".*<h2 id="level-name">I 2, The Builders, large</h2>', dialog, re.DOTALL)
    ways = [way.split(",") for way in row.get("data-motion").split("|")]
    ends = [[sum(map(int, way[at::4])) for at in (3, 4, 5, 6)] for way in ways]
    (seconds,) = set(re.search(r"<output>([0-9.]+) of ([0-9.]+) s</output>", dialog).groups())
    assert float(seconds) == pytest.approx((max(time for time, *_ in ends) + 1) / 10)
    moved = re.findall(r'transform="translate\((\S+) (\S+)\) rotate\((\S+)\)" visibility="(\w+)"', dialog)
    assert [list(map(float, place)) for *place, _ in moved] == [pytest.approx(place) for _, *place in ends]
    assert [entry == "hidden" for *_, entry in moved] == [way[0][0] == "b" for way in ways]
    assert "drop_block(" in dialog
    assert "transform=" in opened(report, INDEX, "", click(".showcase a")).split("<dialog")[1]


def test_levels_and_trials_are_filtered_and_tables_sorted(report):
    def shown(*acts):
        tree = html.fromstring(opened(report, INDEX, "", *acts))
        items = tree.xpath("//section[@id='levels']//li[@data-letter][not(@hidden)]")
        return sorted((item.get("data-letter"), item.get("data-team")) for item in items)

    assert shown() == [("I", "The Builders"), ("T", "The Builders")], "the best of each letter"
    assert shown(choose(0, "T")) == [("T", "The Builders"), ("T", "Zero-shot")]
    names = "document.title = location.hash"
    assert "<title>#levels?letter=T</title>" in opened(report, INDEX, "", choose(0, "T"), names)
    items = html.fromstring(opened(report, INDEX, "levels?team=Zero-shot")).xpath("//li[@data-letter][not(@hidden)]")
    assert [item.get("data-team") for item in items] == ["Zero-shot"] * 2, "a link chooses the same"
    markup = opened(report, TEAM, "", enter("document.querySelector('.find input')", "'Width boundary'"))
    assert '<p role="status">1 of 8 trials</p>' in markup
    sort = click(".ranking th:nth-child(3) button")
    names = html.fromstring(opened(report, INDEX, "", sort, sort)).xpath("//section[@id='ranking']//th/a/text()")
    assert names[-2:] == ["The Builders", "The Cheats"], "a disqualified team stays below"


def test_leaves_of_a_grading_are_found_by_what_they_are(report):
    def shown(*acts):
        leaves = html.fromstring(opened(report, "grade.html", "", *acts)).find_class("leaf")
        return [(leaf.get("id"), is_open(leaf)) for leaf in leaves if leaf.get("hidden") is None]

    assert shown(choose(0, "failed"), choose(1, "Result Analysis")) == [
        ("node-plinth-mean", True),
        ("node-base-width-figure", True),
    ]
    both = shown(choose(0, "failed"), choose(1, "Code Execution"))
    assert both == [("node-bare-trials", True), ("node-plinth-run", True)]
    assert is_open(html.fromstring(opened(report, "grade.html", "node-readme")).get_element_by_id("node-readme"))


def test_two_teams_are_compared_by_a_click_and_by_a_link(report):
    boxes = [click(f"tr[data-team={team}] input") for team in ("cheats", "builders", "zero-shot")]
    clicked = opened(report, INDEX, "", *boxes, "document.title = location.hash")
    assert "<title>#ranking?compare=builders%2Czero-shot</title>" in clicked, "the last two"
    for markup in (clicked, opened(report, INDEX, "ranking?compare=builders,zero-shot")):
        (panel,) = html.fromstring(markup).find_class("compared")
        figures, letters = panel.iter("table")
        rows = [[cell.text_content() for cell in row] for row in figures.iter("tr")]
        assert rows[0][1:] == ["The Builders", "Zero-shot", "difference"]
        assert float(rows[1][3]) == pytest.approx(float(rows[1][1].split()[0]) - float(rows[1][2].split()[0]))
        assert {row.get("data-team") for row in letters.iter("tr")} == {None, "builders", "zero-shot"}
