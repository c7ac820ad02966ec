"""`pcgeval grade` on a folder of runs as a person types it: two papers, two agents, two attempts each."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from model_servers import ScriptedEndpoint, wait_until
from params_for_tests import contents

from pcgeval.cli.main import main

PAPER = Path(__file__).parents[2] / "data/papers/block-letters"
PAPERS = ("block-letters", "other-letters")
GROUP = "2025-04-01T10-00-00-GMT_run-group_one"
COMMAND = ["grade", "runs", "--set", "rubric.papers_dir=papers"]


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    """As PaperBench lays them out, below `runs` in the working directory: folders, and tar files."""
    monkeypatch.chdir(tmp_path)
    for paper in PAPERS:
        shutil.copytree(PAPER, Path("papers", paper))
        for group in (GROUP, "two"):
            for number in (1, 2):
                place = Path("runs", group, f"{paper}_{number}")
                submission = place / "submission" if number == 2 else place
                shutil.copytree(PAPER / "submissions/half", submission)
                (submission / "README.md").write_text(f"It is {paper} {group} {number}.")
                if group == "two" and number == 2:
                    packed = place / "submissions/2025-04-01T12-00-00-GMT/submission"
                    shutil.make_archive(str(packed), "gztar", place, "submission")
                    shutil.rmtree(submission)


@pytest.fixture
def endpoint():
    pytest.importorskip("openai", reason="the extra openai is not installed")
    with ScriptedEndpoint() as server:
        yield server


def asked_of(endpoint):
    settings = ["--set", "rubric.model.concurrency=3", "--set", "rubric.max_depth=1"]
    return ["--model", "gpt-4o-mini", "--base-url", endpoint.base_url, *settings]


@pytest.fixture
def table(capsys):
    """Run the command; return the rows of the table by agent and paper, and the gradings."""

    def run(*arguments, code=0):
        capsys.readouterr()
        assert main([*COMMAND, *arguments, "--json"]) == code
        printed = json.loads(capsys.readouterr().out)
        return {(row["submission"], row["paper"]): row for row in printed["rows"]}, printed["gradings"]

    return run


def asked_twice(endpoint):
    bodies = [json.dumps(body, sort_keys=True) for body in endpoint.asked]
    return len(bodies) - len(set(bodies))


def test_every_run_has_a_file_and_a_place_in_the_table(table, capsys):
    rows, gradings = table("--judge", "random", "--set", "rubric.seed=3")
    names = [f"{group}/{paper}_{number}" for group in (GROUP, "two") for paper in PAPERS for number in (1, 2)]
    assert [grading["run"] for grading in gradings] == names
    assert contents(Path("grades")).keys() == {f"{name}/grade.json" for name in names}
    assert set(rows) == {(agent, paper) for agent in ("one", "two") for paper in (*PAPERS, "all papers")}
    assert (rows["one", "all papers"]["n"], rows["one", "all papers"]["std_error"]) == (2, 0)
    assert main(["rubric", "table", "grades", *COMMAND[2:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == list(rows.values())


def test_a_model_is_asked_once_for_all_and_finished_gradings_are_skipped(table, endpoint, capsys):
    arguments = asked_of(endpoint)
    assert main([*COMMAND, *arguments, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)["total"]["calls"]
    assert endpoint.asked == []
    rows, _ = table(*arguments)
    assert (len(endpoint.asked), asked_twice(endpoint)) == (planned, 0)
    first = contents(Path("grades"))
    assert table(*arguments)[0] == rows
    # another order and another folder: the same bytes, out of the call log
    assert table(*arguments, "--set", "rubric.model.concurrency=1", "--out", "again")[0] == rows
    assert contents(Path("again")) == contents(Path("grades")) == first
    assert len(endpoint.asked) == planned
    # what has changed since is graded again, and nothing else
    Path("runs/two/block-letters_1/README.md").write_text("It is another one.")
    table(*arguments)
    changed = contents(Path("grades"))
    assert {name for name in first if first[name] != changed[name]} == {"two/block-letters_1/grade.json"}


def test_finished_gradings_with_other_votes_are_made_again(table, endpoint):
    for votes in (1, 3):
        table(*asked_of(endpoint), "--set", "rubric.model.options.temperature=0.7", "--set", f"rubric.votes={votes}")
        grades = [json.loads(content) for content in contents(Path("grades")).values()]
        assert [grade["votes"] for grade in grades] == [votes] * len(grades)
        assert asked_twice(endpoint) == 0


def test_a_run_that_fails_is_named_and_stops_no_other(table, capsys):
    table("--judge", "dummy")
    next(Path("runs/two/block-letters_2").rglob("submission.tar.gz")).write_bytes(b"\x1f\x8b damaged")
    shutil.rmtree("runs/two/other-letters_1")
    for name in ("two/other-letters_1/run.log", "two/nobodys_1/README.md"):
        Path("runs", name).parent.mkdir()
        Path("runs", name).touch()
    rows, gradings = table("--judge", "dummy", code=1)
    problems = {grading["run"]: grading["problem"] for grading in gradings if grading["problem"]}
    assert problems.keys() == {"two/block-letters_2", "two/other-letters_1", "two/nobodys_1"}
    assert "damaged" in problems["two/block-letters_2"]
    assert "has no submission" in problems["two/other-letters_1"]
    assert "no paper 'nobodys'" in problems["two/nobodys_1"]
    assert (rows["two", "block-letters"]["n"], rows["two", "all papers"]["mean"]) == (1, None)
    assert not Path("grades/two/block-letters_2/grade.json").exists()  # that of before is none of what is there now
    assert main(["rubric", "table", "grades", *COMMAND[2:], "--json"]) == 1
    later = json.loads(capsys.readouterr().out)["gradings"]
    named = {grading["run"] for grading in later if grading["problem"]}
    assert named == {"two/block-letters_2", "two/nobodys_1"}  # the third has the grade of before it went


def test_the_gradings_share_a_budget_and_go_on_with_a_larger_one(table, endpoint):
    _, gradings = table(*asked_of(endpoint), "--set", "rubric.token_budget=12000", code=1)
    problems = [grading["problem"] for grading in gradings if grading["problem"]]
    assert 0 < len(problems) < len(gradings)
    assert all("the budget of 12000 tokens" in problem for problem in problems)
    table(*asked_of(endpoint), "--set", "rubric.max_cost=5")
    assert asked_twice(endpoint) == 0


def test_killed_gradings_go_on(table, endpoint):
    endpoint.seconds = 0.05
    command = [sys.executable, "-m", "pcgeval", *COMMAND, *asked_of(endpoint)]
    for calls in (2, 5):
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            wait_until(lambda calls=calls: len(endpoint.asked) >= calls)
            process.kill()
    endpoint.seconds = 0.0
    rows, _ = table(*asked_of(endpoint))
    assert {row["n"] for row in rows.values()} == {2}
    assert asked_twice(endpoint) <= 2 * 3  # those under way when it was killed
