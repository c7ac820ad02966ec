"""`pcgeval grade` as a person types it."""

import json
import shutil
from pathlib import Path

import pytest
from scripted_endpoint import ScriptedEndpoint

from pcgeval import extract_leaf_grades
from pcgeval.cli.main import main
from pcgeval.core.files import write_text
from pcgeval.core.layout import GRADES
from pcgeval.judge import grading
from pcgeval.judge.settings import GradingError
from pcgeval.rubric.papers import load_paper
from pcgeval.rubric.tree import leaves

ROOT = Path(__file__).parents[2]
PAPER = ROOT / "data/papers/block-letters"
OF_PAPER = [str(PAPER / "submissions/half"), "--paper", PAPER.name, "--set", f"rubric.papers_dir={PAPER.parent}"]


def sets(*assignments):
    return [word for assignment in assignments for word in ("--set", f"rubric.{assignment}")]


@pytest.fixture
def competition(tmp_path, monkeypatch):
    """The inputs of the demo, without what its stages made."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    for name in ("data/submissions", "data/rubrics"):
        shutil.copytree(ROOT / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def graded(capsys, *arguments, codes=(0,)):
    assert main(["grade", *arguments, "--json"]) in codes
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("judge", ["random", "dummy", "checks"])
def test_a_team_and_the_folder_of_a_submission(competition, capsys, judge):
    codes = (0, 1)  # checks leave leaves without a grade
    team = graded(capsys, "zero-shot", "--judge", judge, "--out", "mine/grade.json", codes=codes)
    folder = graded(capsys, "data/submissions/zero-shot", "--judge", judge, codes=codes)
    assert team["judge_type"] == judge
    if judge != "checks":
        assert team == folder
    assert json.loads((competition / "mine/grade.json").read_text()) == team
    assert not (competition / ".pcgeval").exists()
    assert not (competition / GRADES).exists()


@pytest.mark.usefixtures("competition")
def test_the_tree_goes_to_stdout_and_the_summary_to_stderr_and_the_rubric_can_be_cut(capsys):
    assert main(["grade", "zero-shot", "--judge", "dummy", *sets("code_only=true", "max_depth=1")]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("1.000  100.0 %  The submission follows the rules")
    assert "1.000 by the judge dummy\n1 leaf: 1 passed" in printed.err


def test_a_paper_needs_no_competition_and_checks_may_come_from_a_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert graded(capsys, *OF_PAPER, "--judge", "dummy")["score"] == 1
    assert main(["grade", *OF_PAPER, "--judge", "checks"]) == 1
    message = capsys.readouterr().err
    assert "19 without a grade" in message
    assert "--reproduce runs it first" in message
    arguments = [*OF_PAPER, "--judge", "checks", *sets("checks_file=mine.yaml")]
    assert main(["grade", *arguments]) == 2
    assert "mine.yaml: is missing" in capsys.readouterr().err
    bare = next(leaf for leaf in leaves(load_paper(PAPER.parent, PAPER.name).rubric) if leaf.check is None)
    write_text(Path("mine.yaml"), f"{bare.id}: {{name: file_exists, arguments: {{path: README.md}}}}")
    output = graded(capsys, *arguments, codes=(1,))
    assert len(output["checks_sha256"]) == 64
    assert {grade["path"]: grade["score"] for grade in extract_leaf_grades(output)}[bare.path] == 1
    assert output["num_invalid_leaf_nodes"] == 18
    assert graded(capsys, *arguments, "--max-invalid", "18") == output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nobody"], "neither a team of params.yaml"),
        (["zero-shot", "--judge", "human"], "a person's grades belong into"),
        (["zero-shot", "--paper", "none", "--judge", "dummy"], "zero-shot: no folder"),
        (["zero-shot", "--base-url", "http://127.0.0.1:9/v1"], "Name the model with --model"),
        (["zero-shot", "--judge", "dummy", "--set", "votes=3"], "rubric.votes=3"),
        (["zero-shot", "--model", "m:1", *sets("votes=3")], "at temperature 0 all votes are the same"),
        (["x", "--paper", "p", "--judge", "dummy", "--reproduce"], "Leave --reproduce out"),
        (["x", "--paper", "p", "--judge", "dummy", "--out", "."], "is a directory"),
        (["x", "--paper", "p", "--judge", "checks", "--network"], "--network is for the run of reproduce.sh"),
        (["zero-shot", "--judge", "simple", "--recording", "params.yaml"], "params.yaml:1: not a recorded call"),
    ],
)
@pytest.mark.usefixtures("competition")
def test_a_contradiction_is_named_in_one_message(capsys, arguments, expected):
    assert main(["grade", *arguments]) == 2
    assert expected in capsys.readouterr().err


def test_a_paper_is_judged_at_any_endpoint_without_params(tmp_path, monkeypatch, capsys):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    monkeypatch.chdir(tmp_path)
    with ScriptedEndpoint(refuses={"temperature": "", "max_tokens": ""}) as endpoint:
        at_endpoint = ["--model", "o3-mini", "--base-url", endpoint.base_url, *sets("max_depth=1")]
        output = graded(capsys, *OF_PAPER, *at_endpoint)
        assert (output["judge_type"], output["model"], output["num_invalid_leaf_nodes"]) == ("simple", "o3-mini", 0)
        assert endpoint.refused == []
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        graded(capsys, *OF_PAPER, "--model", "gpt-4o", *sets("max_depth=1"), codes=(0, 1))
    assert "gpt-4o" in {body["model"] for body in endpoint.asked}


def test_human_grades_of_a_team(competition, capsys):
    leaf = "competition/submission/readme/readme-explains"
    write_text(competition / "g.yaml", f"- {{path: {leaf}, score: 0.5, author: Ada, reason: half}}\n")
    by_option = graded(capsys, "zero-shot", "--grades", "g.yaml", codes=(1,))
    assert (by_option["judge_type"], by_option["num_invalid_leaf_nodes"]) == ("human", by_option["num_leaf_nodes"] - 1)
    write_text(competition / "data/rubrics/competition/human/zero-shot.yaml", (competition / "g.yaml").read_text())
    assert graded(capsys, "zero-shot", "--judge", "human", codes=(1,)) == by_option


@pytest.mark.usefixtures("competition")
def test_settings_reach_the_model_but_not_its_temperature_for_trials(monkeypatch):
    def seen(_task, client, *_):
        judges.append(client.settings)
        raise GradingError("seen")

    judges = []
    monkeypatch.setattr(grading, "grade", seen)
    arguments = sets("votes=3", "model.options.temperature=0.7", "context=5000")
    main(["grade", "zero-shot", "--judge", "simple", *arguments])  # the judge of params.yaml
    main(["grade", "zero-shot", "--model", "qwen-coder-0b5", *arguments])
    main(["grade", "zero-shot", "--model", "qwen-coder-0b5"])
    assert [(settings.votes, settings.context) for settings in judges[:2]] == [(3, 5000)] * 2
    assert [settings.model.options.get("temperature") for settings in judges] == [0.7, 0.7, None]
