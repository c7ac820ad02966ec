"""`pcgeval grade` as a person types it."""

import json
import shutil
from pathlib import Path

import pytest
from model_servers import ScriptedEndpoint

from pcgeval import extract_leaf_grades
from pcgeval.cli.main import main
from pcgeval.rubric.papers import load_paper

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "data/papers/block-letters"
OF_PAPER = [str(PAPER / "submissions/half"), "--paper", PAPER.name, "--set", f"rubric.papers_dir={PAPER.parent}"]


def sets(*assignments):
    return [word for assignment in assignments for word in ("--set", f"rubric.{assignment}")]


@pytest.fixture
def competition(tmp_path, monkeypatch):
    """The inputs of the demo, without what its stages made, as the working directory."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for name in ("data/submissions", "data/rubrics"):
        shutil.copytree(ROOT / name, name)


def graded(capsys, *arguments, code=0):
    assert main(["grade", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("competition")
def test_a_team_and_the_folder_of_a_submission(capsys):
    before = sorted(Path().iterdir())
    team = graded(capsys, "zero-shot", "--judge", "random", "--out", "grade.json")
    assert graded(capsys, "data/submissions/zero-shot", "--judge", "random") == team
    assert json.loads(Path("grade.json").read_text()) == team
    assert sorted(Path().iterdir()) == sorted([*before, Path("grade.json")])


def test_a_paper_needs_no_competition_and_checks_may_come_from_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["grade", *OF_PAPER, "--judge", "checks"]) == 1
    message = capsys.readouterr().err
    assert "19 without a grade" in message
    assert "--reproduce runs it first" in message
    arguments = [*OF_PAPER, "--judge", "checks", *sets("checks_file=mine.yaml")]
    bare = next(leaf for leaf in load_paper(PAPER.parent, PAPER.name).rubric.leaves if leaf.check is None)
    Path("mine.yaml").write_text(f"{bare.id}: {{name: file_exists, arguments: {{path: README.md}}}}")
    output = graded(capsys, *arguments, code=1)
    assert {grade["path"]: grade["score"] for grade in extract_leaf_grades(output)}[bare.path] == 1
    assert output["num_invalid_leaf_nodes"] == 18
    low, high = output["score_bounds"]
    assert graded(capsys, *arguments, *sets(f"max_width={high - low:.6f}")) == output
    assert graded(capsys, *arguments, *sets(f"max_width={high - low - 0.001:.6f}"), code=1) == output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nobody"], "neither a team of params.yaml"),
        (["zero-shot", "--judge", "human"], "human/zero-shot.yaml"),
        (["zero-shot", "--base-url", "http://127.0.0.1:9/v1"], "Name the model with --model"),
        (["zero-shot", "--judge", "dummy", "--set", "votes=3"], "rubric.votes=3"),
        (["zero-shot", "--model", "m:1", *sets("votes=3")], "at temperature 0 all votes are the same"),
        (["x", "--paper", "p", "--judge", "checks", "--network"], "--network is for the run of reproduce.sh"),
        (["zero-shot", "--judge", "simple", "--recording", "params.yaml"], "params.yaml:1: not a recorded call"),
    ],
)
@pytest.mark.usefixtures("competition")
def test_a_contradiction_is_named_in_one_message(capsys, arguments, expected):
    assert main(["grade", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_a_paper_is_judged_at_any_endpoint_without_the_options_of_trials(tmp_path, monkeypatch, capsys):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    monkeypatch.chdir(tmp_path)
    of_paper = [*OF_PAPER, *sets("max_depth=1")]
    with ScriptedEndpoint(refuses={"temperature": "", "max_tokens": ""}) as endpoint:
        output = graded(capsys, *of_paper, "--model", "o3-mini", "--base-url", endpoint.base_url)
        assert (output["judge_type"], output["model"], output["num_invalid_leaf_nodes"]) == ("simple", "o3-mini", 0)
        assert endpoint.refused == []
    with ScriptedEndpoint() as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        graded(capsys, *of_paper, "--model", "gpt-4o")
        model = ["--model", "qwen2.5-coder:0.5b-instruct-q4_K_M", "--base-url", endpoint.base_url]
        graded(capsys, *of_paper, *model)
        graded(capsys, *of_paper, *model, *sets("votes=2", "model.options.temperature=0.7"))
    assert {(body["model"], body["temperature"]) for body in endpoint.asked} == {
        ("gpt-4o", 0),
        ("qwen2.5-coder:0.5b-instruct-q4_K_M", 0),
        ("qwen2.5-coder:0.5b-instruct-q4_K_M", 0.7),
    }


@pytest.mark.usefixtures("competition")
def test_human_grades_of_a_team(capsys):
    leaf = "competition/submission/readme/readme-explains"
    Path("g.yaml").write_text(f"- {{path: {leaf}, score: 0.5, author: Ada, reason: half}}\n")
    by_option = graded(capsys, "zero-shot", "--grades", "g.yaml", code=1)
    assert (by_option["judge_type"], by_option["num_invalid_leaf_nodes"]) == ("human", by_option["num_leaf_nodes"] - 1)
    (place := Path("data/rubrics/competition/human")).mkdir()
    shutil.copy("g.yaml", place / "zero-shot.yaml")
    assert graded(capsys, "zero-shot", "--judge", "human", code=1) == by_option
