"""`pcgeval rubric ...` as a person types it."""

import json
from pathlib import Path

import pytest
import yaml
from rubric_trees import leaf, node, rubric

from pcgeval.cli.main import main
from pcgeval.core.files import write_json
from pcgeval.judge.human import read_human_grades
from pcgeval.rubric.grades import JudgeOutput, Verdict, grade_tree
from pcgeval.rubric.loading import load_rubric
from pcgeval.rubric.tree import leaves

ROOT = Path(__file__).parents[2]
TASK = rubric(node("root", 1, leaf("a"), leaf("b", 3)))


def write_grading(path, a, b):
    scores = {"a": a, "b": b}
    write_json(path, JudgeOutput("dummy", grade_tree(TASK, lambda each: Verdict(scores[each.id], "because"))).to_json())
    return path


@pytest.fixture
def gradings(tmp_path):
    return write_grading(tmp_path / "a.json", 1.0, 0.0), write_grading(tmp_path / "b.json", 1.0, None)


def run(*words):
    return main(["rubric", *map(str, words)])


def test_show_explains_a_grade(gradings, capsys):
    assert run("show", gradings[0]) == 0
    assert "1.000   25.0 %  root/a" in capsys.readouterr().out
    assert run("show", gradings[0], "--leaf", "a") == 0
    assert "Why: because" in capsys.readouterr().out


def test_show_speaks_json(gradings, capsys):
    run("show", gradings[0], "--json")
    values = json.loads(capsys.readouterr().out)
    assert values["judge_type"] == "dummy"
    assert [part["share"] for part in values["parts"]] == [1, 0.25, 0.75]
    run("show", gradings[0], "--leaf", "b", "--json")
    values = json.loads(capsys.readouterr().out)
    assert [part["path"] for part in values["way"]] == ["root", "root/b"]
    assert values["node"]["explanation"] == "because"


def test_agreement_names_what_it_leaves_out(gradings, capsys):
    assert run("agreement", *gradings) == 0
    out = capsys.readouterr().out
    assert "compared 1 of 2 leaves" in out
    assert "not graded in B: 1\n    root/b" in out
    run("agreement", *gradings, "--json")
    values = json.loads(capsys.readouterr().out)
    assert values["uncompared"]["invalid_in_b"] == ["root/b"]
    assert values["overall"]["kappa"]["value"] is None


def test_agreement_of_folders_pairs_by_name(tmp_path, capsys):
    for folder, b in (("human", 0.0), ("model", 1.0)):
        write_grading(tmp_path / folder / "x" / "grade.json", 1.0, b)
        write_grading(tmp_path / folder / "y.json", 0.0, 0.0)
    assert run("agreement", tmp_path / "human", tmp_path / "model") == 0
    out = capsys.readouterr().out
    assert "compared 4 of 4 leaves" in out
    assert "A 0.00  B 1.00  x: root/b" in out
    (tmp_path / "model" / "y.json").unlink()
    assert run("agreement", tmp_path / "human", tmp_path / "model") == 2
    assert "has no grading of y" in capsys.readouterr().err


@pytest.mark.parametrize("words", [("--pass-at", "nan"), ("--pass-at", "2"), ("--bootstrap", "-1"), ("--seed", "-1")])
def test_settings_that_cannot_be_are_refused(gradings, words, capsys):
    assert run("agreement", *gradings, *words) == 2
    assert words[0] in capsys.readouterr().err


def test_faults_name_the_file(gradings, tmp_path, capsys):
    (tmp_path / "bad.json").write_text('{"id": 3}')
    for words in (("show", tmp_path / "bad.json"), ("agreement", gradings[0], tmp_path / "bad.json")):
        assert run(*words) == 2
        assert "bad.json" in capsys.readouterr().err
    assert run("show", tmp_path / "none.json") == 2
    assert run("agreement", gradings[0], tmp_path) == 2


def test_leaves_lists_the_criteria_with_their_shares(tmp_path, capsys):
    path = tmp_path / "rubric.json"
    write_json(path, node("root", 1, leaf("a", 1), leaf("b", 3)))
    assert run("leaves", path) == 0
    assert " 75.00 %  root/b  (Code Development)" in capsys.readouterr().out
    run("leaves", path, "--json")
    assert [row["share"] for row in json.loads(capsys.readouterr().out)] == [0.25, 0.75]


def test_the_form_becomes_human_grades_when_filled_in(tmp_path, capsys):
    path = tmp_path / "rubric.json"
    write_json(path, node("root: 1", 1, leaf("a #x"), leaf("ü'\"")))
    run("leaves", path, "--form")
    form = capsys.readouterr().out
    assert [each["path"] for each in yaml.safe_load(form)] == [each.path for each in leaves(load_rubric(path))]
    filled = tmp_path / "grades.yaml"
    filled.write_text(
        form.replace("score:", "score: 1").replace("author:", "author: Ada").replace("reason:", "reason: x")
    )
    assert len(read_human_grades(filled, [each.path for each in leaves(load_rubric(path))])) == 2


def test_a_grade_of_paperbench_is_shown_compared_and_converted(gradings, tmp_path, capsys):
    assert run("convert", gradings[1]) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value["score"], value["num_invalid_leaf_nodes"], value["graded_at"][:4]) == (0.25, 1, "1970")
    write_json(tmp_path / "grader_output.json", {"judge_output": value})
    assert run("show", tmp_path / "grader_output.json", "--leaf", "b") == 0
    assert "Why: because" in capsys.readouterr().out
    assert run("agreement", gradings[1], tmp_path / "grader_output.json") == 0
    assert "compared 1 of 2 leaves" in capsys.readouterr().out
    assert run("convert", tmp_path / "grader_output.json", "--format", "pcgeval") == 0
    assert json.loads(capsys.readouterr().out)["score_bounds"] == [0.25, 1.0]


def test_leaves_have_the_checks_beside_a_rubric(tmp_path, capsys):
    write_json(tmp_path / "rubric.json", node("root", 1, leaf("a")))
    (tmp_path / "checks.yaml").write_text("a: {name: reproduce_succeeded}")
    assert run("leaves", tmp_path / "rubric.json") == 0
    assert "check reproduce_succeeded" in capsys.readouterr().out
    (tmp_path / "checks.yaml").write_text("b: {name: reproduce_succeeded}")
    assert run("leaves", tmp_path / "rubric.json") == 2
    assert "no leaf of the rubric has this id" in capsys.readouterr().err
