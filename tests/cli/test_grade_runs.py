"""`pcgeval grade` on a folder of runs as a person types it: two papers, two agents, two attempts each."""

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from scripted_endpoint import ScriptedEndpoint
from waiting import wait_until

from pcgeval.cli.main import main

PAPER = Path(__file__).parents[2] / "data/papers/block-letters"
PAPERS = ("block-letters", "other-letters")
GROUP = "2025-04-01T10-00-00-GMT_run-group_one"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """As PaperBench lays them out: folders, and tar files."""
    monkeypatch.chdir(tmp_path)
    for paper in PAPERS:
        shutil.copytree(PAPER, tmp_path / "papers" / paper)
        for group in (GROUP, "two"):
            for number in (1, 2):
                place = tmp_path / "runs" / group / f"{paper}_{number}"
                submission = place / "submission" if number == 2 else place
                shutil.copytree(PAPER / "submissions/half", submission)
                (submission / "README.md").write_text(f"It is {paper} {group} {number}.")
                if group == "two" and number == 2:
                    pack(place)
    return tmp_path / "runs"


def pack(place):
    packed = place / "submissions/2025-04-01T12-00-00-GMT/submission.tar.gz"
    packed.parent.mkdir(parents=True)
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(place / "submission", "submission")
    shutil.rmtree(place / "submission")


@pytest.fixture
def endpoint():
    pytest.importorskip("openai", reason="the extra openai is not installed")
    with ScriptedEndpoint() as server:
        yield server


def asked_of(endpoint):
    settings = ["--set", "rubric.model.concurrency=3", "--set", "rubric.max_depth=1"]
    return ["--model", "gpt-4o-mini", "--base-url", endpoint.base_url, *settings]


def run(capsys, *arguments, code=0):
    assert main(["grade", "runs", "--set", "rubric.papers_dir=papers", *arguments]) == code
    return capsys.readouterr()


def table(capsys, *arguments, code=0):
    printed = json.loads(run(capsys, *arguments, "--json", code=code).out)
    return {(row["submission"], row["paper"]): row for row in printed["rows"]}, printed["gradings"]


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("grade.json"))}


def once_each(endpoint):
    bodies = [json.dumps(body, sort_keys=True) for body in endpoint.asked]
    return len(set(bodies)) == len(bodies)


@pytest.mark.usefixtures("runs")
def test_every_run_has_a_file_and_a_place_in_the_table(capsys):
    rows, gradings = table(capsys, "--judge", "random", "--set", "rubric.seed=3")
    assert [grading["run"] for grading in gradings] == [
        f"{g}/{p}_{n}" for g in (GROUP, "two") for p in PAPERS for n in (1, 2)
    ]
    assert set(rows) == {(agent, paper) for agent in ("one", "two") for paper in (*PAPERS, "all papers")}
    assert rows["one", "all papers"]["n"] == 2
    assert rows["one", "all papers"]["std_error"] == 0
    assert set(contents(Path("grades"))) == {f"{grading['run']}/grade.json" for grading in gradings}
    assert main(["rubric", "table", "grades", "--set", "rubric.papers_dir=papers", "--json"]) == 0
    assert {(row["submission"], row["paper"]): row for row in json.loads(capsys.readouterr().out)["rows"]} == rows


def test_a_model_is_asked_once_for_all_and_finished_gradings_are_skipped(capsys, runs, endpoint):
    planned = json.loads(run(capsys, *asked_of(endpoint), "--dry-run", "--json").out)["total"]
    assert endpoint.asked == []
    rows, _ = table(capsys, *asked_of(endpoint))
    assert len(endpoint.asked) == planned["calls"]
    assert once_each(endpoint)
    first, before = contents(Path("grades")), len(endpoint.asked)
    assert table(capsys, *asked_of(endpoint))[0] == rows
    # another order and another folder: the same bytes, out of the call log
    assert table(capsys, *asked_of(endpoint), "--set", "rubric.model.concurrency=1", "--out", "again")[0] == rows
    assert contents(Path("again")) == contents(Path("grades")) == first
    assert len(endpoint.asked) == before
    # what has changed since is graded again, and nothing else
    (runs / "two/block-letters_1/README.md").write_text("It is another one.")
    table(capsys, *asked_of(endpoint))
    changed = contents(Path("grades"))
    assert {name for name in first if first[name] != changed[name]} == {"two/block-letters_1/grade.json"}


@pytest.mark.usefixtures("runs")
def test_a_finished_grading_is_done_again_when_its_file_of_checks_changes(capsys):
    for path in ("papers/other-letters", "runs/two", *Path("runs", GROUP).glob("other-letters*")):
        shutil.rmtree(path)
    scores = []
    for name in ("README.md", "nowhere.md"):
        check = {"block-letters/model/bitmaps": {"name": "file_exists", "arguments": {"path": name}}}
        Path("mine.yaml").write_text(json.dumps(check))
        checked = ["--judge", "checks", "--set", "rubric.checks_file=mine.yaml", "--max-invalid", "99"]
        scores.append(table(capsys, *checked)[1][0]["score"])
    assert scores[0] - scores[1] == pytest.approx(0.05)


def test_a_run_that_fails_is_named_and_stops_no_other(capsys, runs):
    table(capsys, "--judge", "dummy")
    next((runs / "two/block-letters_2").rglob("submission.tar.gz")).write_bytes(b"\x1f\x8b damaged")
    shutil.rmtree(runs / "two/other-letters_1")
    for name in ("two/other-letters_1/run.log", "two/nobodys_1/README.md"):
        (runs / name).parent.mkdir()
        (runs / name).touch()
    rows, gradings = table(capsys, "--judge", "dummy", code=1)
    problems = {grading["run"]: grading["problem"] for grading in gradings if grading["problem"]}
    assert "damaged" in problems["two/block-letters_2"]
    assert "has no submission" in problems["two/other-letters_1"]
    assert len(problems) == 3
    assert rows["two", "block-letters"]["n"] == 1
    assert rows["two", "all papers"]["mean"] is None
    assert not Path("grades/two/block-letters_2/grade.json").exists()  # that of before is none of what is there now
    assert "two/nobodys_1: no paper 'nobodys'" in run(capsys, "--judge", "dummy", code=1).out


@pytest.mark.usefixtures("runs")
def test_the_gradings_share_a_budget_and_go_on_with_a_larger_one(capsys, endpoint):
    arguments = [*asked_of(endpoint), "--set", "rubric.token_budget=12000"]
    _, gradings = table(capsys, *arguments, code=1)
    partial = [grading for grading in gradings if grading["problem"]]
    assert 0 < len(partial) < len(gradings)
    assert all("the budget of 12000 tokens" in entry["problem"] for entry in partial)
    spent = sum(len(prompt) // 4 for prompt in endpoint.prompts)
    assert 6_000 < spent - len(endpoint.prompts[-1]) // 4 < 12_000  # the last one may pass the budget
    before = len(endpoint.asked)
    table(capsys, *arguments, code=1)
    assert len(endpoint.asked) == before
    table(capsys, *asked_of(endpoint), "--set", "rubric.max_cost=5")
    assert once_each(endpoint)


@pytest.mark.usefixtures("runs")
def test_what_cannot_be_meant_is_refused_before_any_grading(capsys):
    without_price = ["--model", "nobodys", "--base-url", "http://127.0.0.1:9/v1", "--set", "rubric.max_cost=1"]
    assert "price of nobodys is unknown" in run(capsys, *without_price, code=2).err
    assert "lies among the runs" in run(capsys, "--judge", "dummy", "--out", "runs/grades", code=2).err
    assert not Path("grades").exists()


@pytest.mark.usefixtures("runs")
@pytest.mark.slow  # starts other processes
def test_killed_gradings_go_on(capsys, endpoint):
    endpoint.seconds = 0.05
    arguments = ["grade", "runs", "--set", "rubric.papers_dir=papers", *asked_of(endpoint)]
    for calls in (2, 5):
        with subprocess.Popen([sys.executable, "-m", "pcgeval", *arguments], stderr=subprocess.DEVNULL) as process:
            wait_until(lambda calls=calls: len(endpoint.asked) >= calls)
            process.kill()
    endpoint.seconds = 0.0
    rows, _ = table(capsys, *asked_of(endpoint))
    assert {row["n"] for row in rows.values()} == {2}
    bodies = [json.dumps(body, sort_keys=True) for body in endpoint.asked]
    assert len(bodies) - len(set(bodies)) <= 2 * 3  # those under way when it was killed
