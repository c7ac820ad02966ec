"""Programs on the page: what was handed in, what was noticed, and what each trial took."""

import re
import shutil
from dataclasses import replace

import pytest
from evaluated_round import PARAMS, TOPPLING, TOWER, Noted, write_round
from page_for_tests import Page, dead_links, part, parts, ranking_row, read_report, team_page

from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes
from pcgeval.core.layout import SUBMISSIONS, Trial, stage_dir, summaries_file
from pcgeval.core.trials import ChatReply, Exchange, Message, read_record, record_path, write_trial
from pcgeval.report.collect import read_program
from pcgeval.report.render import write_report
from pcgeval.submissions.load import Program, submission_sha256

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
OWN_FILES = ["README.md", 'odd "<b>name & more.txt', "main.py", "prompts/build.txt"]


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


def test_hostile_files_and_details_stay_text(robots):
    page = Page(robots)
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert {tag for tag, _ in page.elements}.isdisjoint({"img", "b>name"})
    for words in ("alert('entry')", "alert('readme')", "alert(1)"):
        assert f"<script>{words}</script>" in page.text
    assert "\u202e" not in robots
    assert "\x07" not in robots
    assert page.all("style") == page.all("src") == []


def test_every_link_has_a_target_and_every_id_is_unique(index, pages):
    assert dead_links(index) == []
    for markup in pages.values():
        ids = Page(markup).all("id")
        assert len(ids) == len(set(ids))


def test_each_kind_of_flag_has_a_line_for_each_team_and_model(pages):
    lines = re.findall(r'href="(teams/[^"]*#f-[^"]+)"', part(pages["index.html"], "flags"))
    assert sorted(lines) == [
        "teams/outlaws.html#f-large.altered-answer",
        "teams/outlaws.html#f-small.altered-answer",
        "teams/robots.html#f-small.invented-reply",
        "teams/robots.html#f-small.unseeded-random",
    ]


def test_a_line_counts_the_trials_and_shows_the_first_different_details(pages, robots):
    line = part(robots, "f-small.invented-reply")
    assert '<td class="number">3<small>of 4</small></td>' in line
    assert "the program sent an assistant's message that the model never said" in line
    assert re.findall(r'<li><a href="#([^"]+)">([^<]+)</a>', line) == [("m-small.I.2", "I 2"), ("m-small.T.1", "T 1")]
    assert len(re.findall("<li>", part(robots, "f-small.unseeded-random"))) == 1
    assert len(re.findall("<li>", part(team_page(pages, "outlaws"), "f-large.altered-answer"))) == 3


def test_the_conversation_of_a_flagged_trial_stands_beside_its_answer(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    raw, trial = copy / stage_dir("raw", "small", "robots"), Trial("T", 1)
    record = read_record(record_path(raw, "robots", trial))
    messages = (Message("user", "Go on </pre><script>alert('chat')</script>\u202e\x07"), Message("assistant", "Sure!"))
    reply = ChatReply("x" * 10_000, 1, 1, "stop", 0.1)
    exchanges = (Exchange("a", reply, messages, 0), *[Exchange("b", reply, messages[1:], 3)] * 100)
    write_trial(raw, "robots", trial, "my own answer", replace(record, exchanges=exchanges))
    markup = team_page(read_report(write_report(TEAMS, copy, tmp_path / "out")), "robots")
    line = part(markup, "f-small.invented-reply")
    talk = next(each for each in parts(line, "details") if "program as user" in each)
    assert "&lt;/pre&gt;&lt;script&gt;alert('chat')&lt;/script&gt;\ufffd\ufffd" in talk
    assert "<b>program as assistant</b>\nSure!" in talk
    assert "my own answer" in talk
    assert "messages are left out here" in talk
    assert len(talk) < 30_000
    assert [tag for tag, _ in Page(markup).elements].count("script") == 1


def rows_of(markup, model):
    """Return the markup of a model's trials."""
    return [row for row in parts(part(markup, f"m-{model}"), "tr") if row.startswith(f'<tr id="m-{model}.')]


def test_flagged_trials_have_badges_that_lead_to_the_line(robots):
    untouched, *rest = rows_of(robots, "small")
    assert 'class="flag"' not in untouched
    for row in rest:
        assert re.findall(r'<a href="#([^"]+)" class="flag">([^<]+)</a>', row) == [
            ("f-small.invented-reply", "invented reply"),
            ("f-small.unseeded-random", "unseeded random"),
        ]


def test_a_program_s_trials_show_calls_and_tokens_also_where_they_failed(pages, robots):
    for row in rows_of(robots, "small"):
        assert "<td>3</td><td>360</td>" in row
    assert '<th scope="col">tokens</th>' in robots
    assert "tokens</th>" not in team_page(pages, "zero-shot")


def test_the_ranking_names_flagged_teams_and_those_without_a_sandbox(pages):
    badges = {
        team: re.findall(r'class="badge warning">([^<]+)<', ranking_row(pages["index.html"], team))
        for team in ("robots", "outlaws", "zero-shot")
    }
    assert badges == {"robots": ["3 trials flagged"], "outlaws": ["8 trials flagged", "no sandbox"], "zero-shot": []}


def test_a_team_that_ran_without_a_sandbox_is_warned_of(pages):
    warnings = [words for words in Page(pages["index.html"]).text.split("\n") if "ran without one" in words]
    assert len(warnings) == 1
    assert warnings[0].startswith("outlaws ran without one in 8 of 8 trials")
    assert "The program ran without one in 8 of 8 trials" in Page(team_page(pages, "outlaws")).text


def test_a_program_shows_its_readme_its_entry_and_its_files(robots):
    page = Page(robots)
    size = sum(len(FILES[name].encode()) for name in OWN_FILES)
    assert f"The program: python main.py, 4 files, {size} bytes" in page.text
    assert CODE in page.text
    assert "Start it with `python main.py`." in page.text
    table = re.search(r'<table class="files">.*?</table>', robots)[0]
    for name in OWN_FILES:
        assert sha256_bytes(FILES[name].encode()) in table
    assert "&lt;b&gt;name &amp; more.txt" in table
    assert "submission.yaml" not in table
    assert "__pycache__" not in table


def test_a_page_has_the_hash_of_its_submission(folder, pages):
    hashes = {team: submission_sha256(folder / SUBMISSIONS / team) for team in NOTES}
    assert hashes["robots"] == hashes["outlaws"] != hashes["zero-shot"]  # two programs that differ in notes alone
    for team, digest in hashes.items():
        assert f"SHA-256 of the submission <code>{digest}</code>" in team_page(pages, team)


def test_links_in_a_program_are_left_out(tmp_path):
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    program = tmp_path / "team"
    program.mkdir()
    (program / "main.py").write_text("run()")
    (program / "README.md").symlink_to(secret)
    found = read_program(Program(program, "main.py"))
    assert (found.readme, [file.name for file in found.files]) == (None, ["main.py"])


def test_many_files_and_long_texts_are_cut(tmp_path, folder):
    root = shutil.copytree(folder, tmp_path / "copy")
    many = root / SUBMISSIONS / "robots" / "many"
    many.mkdir()
    for number in range(300):
        (many / f"{number:03}-{'n' * 200}.txt").write_text("x")
    (many / "large.bin").write_bytes(b"\0" * 3_000_000)
    (root / SUBMISSIONS / "robots" / "main.py").write_text("run()\n" * 100_000)
    markup = team_page(read_report(write_report(TEAMS, root, tmp_path / "out")), "robots")
    assert "and 255 more files" in Page(markup).text
    assert len(markup.encode()) < 200_000


def test_an_unflagged_round_says_so(tmp_path):
    write_round(tmp_path, TEAMS, reply, NOTES, programs={"robots": FILES, "outlaws": FILES})
    page = Page(write_report(TEAMS, tmp_path, tmp_path / "out").read_text(encoding="utf-8"))
    assert "No trial is flagged." in page.text
    assert "have no record" not in page.text
    summaries = tmp_path / summaries_file("large", "robots")
    summaries.unlink()  # as if the responses were made elsewhere
    page = Page(write_report(TEAMS, tmp_path, tmp_path / "out").read_text(encoding="utf-8"))
    assert "4 of 24 responses have no record of how they came about." in page.text
    summaries.write_text('[{"letter": 1}]')
    with pytest.raises(FileError, match=r"data/trials/large/robots\.json: "):
        write_report(TEAMS, tmp_path, tmp_path / "out")
