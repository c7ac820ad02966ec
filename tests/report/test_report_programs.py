"""Programs on the page: what was handed in, what was noticed, and what each trial took."""

import re
import shutil

import pytest
from evaluated_round import PARAMS, TOPPLING, TOWER, Noted, write_round
from page_for_tests import Page, dead_links, part, parts, ranking_row, read_report, team_page

from pcgeval.core.layout import SUBMISSIONS, Trial, summaries_file
from pcgeval.report.render import write_report
from pcgeval.submissions.load import submission_sha256

CODE = "# <script>alert('entry')</script>\nrun()\n"
FILES = {
    "README.md": "Start it with `python main.py`. </pre><script>alert('readme')</script>\u202e\n",
    "main.py": CODE,
    "prompts/build.txt": "Build <OBJECT>.",
    'odd "<b>name & more.txt': "",
    "__pycache__/main.cpython-311.pyc": "left over",
}
NOTES = {
    "zero-shot": "role: baseline\n",
    "robots": "title: The Robots\nentry: main.py\n",
    "outlaws": "entry: main.py\ndisqualified: altered its answers\n",
}
TEAMS = PARAMS.model_copy(update={"teams": tuple(NOTES)})
HOSTILE = "the model never said in this trial: '</td></table><script>alert(1)</script>\u202e\x07'"
SHOWN_FILES = ["README.md", 'odd "<b>name & more.txt', "main.py", "prompts/build.txt"]


def reply(model, team, trial):
    return None if (team, trial.letter, trial.number) == ("robots", "I", 2) else TOWER if model == "small" else TOPPLING


def noted(model, team, trial):
    """The robots invent in three trials with the small model, two of them alike; the outlaws run free and alter all."""
    if team == "outlaws":
        return Noted(2, (("altered-answer", f"the answer of {trial.letter} {trial.number}"),), contained=False)
    if team == "robots" and model == "small" and trial != Trial("I", 1):
        detail = HOSTILE if trial.letter == "T" else "the model never said in this trial: 'Sure!'"
        return Noted(3, (("unseeded-random", "main.py:1 uses random"), *[("invented-reply", detail)] * 2))
    return Noted(3 if team == "robots" else 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("programs")
    write_round(root, TEAMS, reply, NOTES, noted=noted, programs={"robots": FILES, "outlaws": FILES})
    return root


@pytest.fixture(scope="module")
def index(folder, tmp_path_factory):
    return write_report(TEAMS, folder, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def pages(index):
    return read_report(index)


@pytest.fixture(scope="module")
def robots(pages):
    return team_page(pages, "robots")


def test_a_program_shows_its_readme_its_entry_and_its_hash_and_nothing_of_it_is_markup(folder, index, robots):
    assert dead_links(index) == []
    page = Page(robots)
    size = sum(len(FILES[name].encode()) for name in SHOWN_FILES)
    for words in (f"The program: python main.py, 4 files, {size} bytes", CODE, "Start it with `python main.py`."):
        assert words in page.text
    assert f"SHA-256 of the submission <code>{submission_sha256(folder / SUBMISSIONS / 'robots')}</code>" in robots
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert {tag for tag, _ in page.elements}.isdisjoint({"img", "b>name"})
    for words in ("alert('entry')", "alert('readme')", "alert(1)"):
        assert f"<script>{words}</script>" in page.text
    assert not {"\u202e", "\x07"} & set(robots)


def test_each_kind_of_flag_has_a_line_that_counts_the_trials_and_shows_the_first_details(pages, robots):
    assert {name for name in Page(robots).all("id") if ":flags." in name} == {
        "robots:flags.small.invented-reply",
        "robots:flags.small.unseeded-random",
    }
    line = part(robots, "robots:flags.small.invented-reply")
    assert "<b>3</b>" in line
    links = [("robots.small.I.2", "I 2"), ("robots.small.T.1", "T 1")]
    assert re.findall(r'<p><a href="#([^"]+)">([^<]+)</a>', line) == links
    assert len(re.findall("<p>", part(robots, "robots:flags.small.unseeded-random"))) == 1
    outlaws = part(team_page(pages, "outlaws"), "outlaws:flags.large.altered-answer")
    assert len(re.findall("<p>", outlaws)) == 3
    untouched, *rest = parts(part(robots, "robots.small"), "tr")[1:5]
    assert 'class="flag"' not in untouched
    for row in rest:  # also where the trial failed
        assert re.findall(r'<a href="#([^"]+)" class="flag">([^<]+)</a>', row) == [
            ("robots:flags.small.invented-reply", "invented reply"),
            ("robots:flags.small.unseeded-random", "unseeded random"),
        ]
        assert "<td>3</td>\n<td>360</td>" in row  # calls and tokens
    assert "tokens</th>" not in team_page(pages, "zero-shot")
    badges = {
        team: re.findall(r'class="badge warning">([^<]+)<', ranking_row(pages["index.html"], team)) for team in NOTES
    }
    assert badges == {"robots": ["3 trials flagged"], "outlaws": ["8 trials flagged", "no sandbox"], "zero-shot": []}
    assert len(re.findall(r'<p class="alarm">', pages["index.html"])) == 1
    assert "outlaws ran without one in 8 of 8 trials" in Page(pages["index.html"]).text
    assert "without one in 8 of 8 trials" in Page(team_page(pages, "outlaws")).text


def test_long_texts_are_cut_and_responses_without_a_record_are_counted(folder, tmp_path):
    root = shutil.copytree(folder, tmp_path / "copy")
    (root / SUBMISSIONS / "robots" / "link.txt").symlink_to(__file__)
    (root / SUBMISSIONS / "robots" / "main.py").write_text("run()\n" * 100_000)
    (root / summaries_file("large", "robots")).unlink()  # as if the responses were made elsewhere
    pages = read_report(write_report(TEAMS, root, tmp_path / "out"))
    assert len(team_page(pages, "robots").encode()) < 200_000
    assert "4 of 24 responses have no record" in Page(pages["index.html"]).text
