"""Programs on the page, in a round in which all texts of teams, models and judges try to become markup."""

import re
import shutil

import pytest
from evaluated_round import PARAMS, TOPPLING, TOWER, Noted, write_round
from page_for_tests import Page, dead_links, part, parts, ranking_row, read_report, team_page

from pcgeval.core.files import write_json
from pcgeval.core.untrusted import read_json
from pcgeval.formats.layout import SUBMISSIONS, Trial, grade_file, summaries_file
from pcgeval.formats.params import Team
from pcgeval.report.render import write_report
from pcgeval.submissions.load import submission_sha256

TEXT = "</title></style></pre></svg><script>alert(1)</script><img src=x onerror=alert(1)>\u202e"
ATTACK = f"{TEXT}\x00"
CODE = f"# {TEXT}\nrun()\n"
README = "Start it with `python main.py`."
FILES = {
    "README.md": f"{README} {TEXT}\n",
    "main.py": CODE,
    "prompts/build.txt": "Build <OBJECT>.",
    'odd "<b>name & more.txt': "",
}
DECISIONS = {
    "zero-shot": Team(role="baseline"),
    "robots": Team(title=TEXT, entry="main.py"),
    "outlaws": Team(entry="main.py", disqualified="altered its answers"),
}
MODELS = {
    name: model.model_copy(update={"name": ATTACK, "options": {"stop": ATTACK}})
    for name, model in PARAMS.models.items()
}
COMPETITION = PARAMS.competition.model_copy(update={"name": ATTACK, "edition": ATTACK})
HOSTILE = PARAMS.model_copy(update={"models": MODELS, "competition": COMPETITION, "teams": DECISIONS})
RUBRIC = {"id": "x", "requirements": ATTACK, "weight": 1, "sub_tasks": [], "task_category": "Code Execution"}


def reply(model, team, trial):
    if (team, trial.letter, trial.number) == ("robots", "I", 2):
        return None
    return f"{ATTACK}{TOWER if model == 'small' else TOPPLING}"


def noted(model, team, trial):
    """The robots invent in three trials with the small model, two of them alike; the outlaws run free and alter all."""
    if team == "outlaws":
        return Noted(2, (("altered-answer", f"the answer of {trial.letter} {trial.number}"),), contained=False)
    if team == "robots" and model == "small" and trial != Trial("I", 1):
        detail = f"the model never said in this trial: '{ATTACK if trial.letter == 'T' else 'Sure!'}'"
        return Noted(3, (("unrepeatable", "gave another answer"), *[("invented-reply", detail)] * 2))
    return Noted(3 if team == "robots" else 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("programs")
    programs = {"robots": FILES, "outlaws": FILES}
    write_round(root, HOSTILE, reply, rubric=RUBRIC, noted=noted, programs=programs)
    for team in DECISIONS:
        grade = read_json(root / grade_file(team))
        grade["graded_task_tree"]["explanation"] = ATTACK
        write_json(root / grade_file(team), grade)
    return root


@pytest.fixture(scope="module")
def index(folder, tmp_path_factory):
    return write_report(HOSTILE, folder, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def pages(index):
    return read_report(index)


@pytest.fixture(scope="module")
def robots(pages):
    return team_page(pages, "robots")


def test_what_teams_models_and_judges_say_stays_text(index, pages):
    assert dead_links(index) == []
    for markup in pages.values():
        page = Page(markup)
        assert [tag for tag, _ in page.elements].count("script") == 1
        assert {tag for tag, _ in page.elements}.isdisjoint({"img", "b>name"})
        assert page.text.count("<script>alert(1)</script>") > 3
        assert not {"\u202e", "\x00"} & set(markup)


def test_a_program_shows_its_readme_its_entry_and_its_hash(folder, robots):
    size = sum(len(FILES[name].encode()) for name in FILES)
    text = Page(robots).text
    for words in (f"The program: python main.py, 4 files, {size} bytes", CODE.replace("\u202e", "\ufffd"), README):
        assert words in text
    assert f"SHA-256 of the submission <code>{submission_sha256(folder / SUBMISSIONS / 'robots')}</code>" in robots


def test_each_kind_of_flag_has_a_line_that_counts_the_trials_and_shows_the_first_details(pages, robots):
    ids = [f"robots:flags.small.{kind}" for kind in ("invented-reply", "unrepeatable")]
    assert {name for name in Page(robots).all("id") if ":flags." in name} == {*ids}
    line = part(robots, ids[0])
    assert "<b>3</b>" in line
    links = [("robots.small.I.2", "I 2"), ("robots.small.T.1", "T 1")]
    assert re.findall(r'<p><a href="#([^"]+)">([^<]+)</a>', line) == links
    outlaws = part(team_page(pages, "outlaws"), "outlaws:flags.large.altered-answer")
    assert len(re.findall("<p>", outlaws)) == 3
    untouched, *rest = parts(part(robots, "robots.small"), "tr")[1:5]
    assert 'class="flag"' not in untouched
    for row in rest:  # also where the trial failed
        assert re.findall(r'<a href="#([^"]+)" class="flag">', row) == ids
        assert "<td>3</td>\n<td>360</td>" in row  # calls and tokens


def test_flags_and_what_ran_without_a_sandbox_stand_in_the_ranking(pages):
    index = pages["index.html"]
    badges = {team: re.findall(r'class="badge warning">([^<]+)<', ranking_row(index, team)) for team in DECISIONS}
    assert badges == {"robots": ["3 trials flagged"], "outlaws": ["8 trials flagged", "no sandbox"], "zero-shot": []}
    assert "without one in 8 of 8 trials" in Page(team_page(pages, "outlaws")).text


def test_long_texts_are_cut_and_responses_without_a_record_are_counted(folder, tmp_path):
    root = shutil.copytree(folder, tmp_path / "copy")
    (root / SUBMISSIONS / "robots" / "main.py").write_text("run()\n" * 100_000)
    (root / summaries_file("large", "robots")).unlink()  # as if the responses were made elsewhere
    pages = read_report(write_report(HOSTILE, root, tmp_path / "out"))
    assert len(team_page(pages, "robots").encode()) < 200_000
    assert "4 responses have no record" in " ".join(Page(team_page(pages, "robots")).text.split())
