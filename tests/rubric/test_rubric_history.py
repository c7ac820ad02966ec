"""Kept grades and what changed since: written by one command, read as an input by the report."""

import json
from dataclasses import replace

import pytest
from rubric_trees import leaf, node, rubric

from pcgeval.core.errors import FileError
from pcgeval.core.files import write_json
from pcgeval.core.layout import grade_file
from pcgeval.core.params import parse_params
from pcgeval.rubric.grades import GradeError, JudgeOutput, RubricIdentity, Verdict, grade_tree
from pcgeval.rubric.history import HISTORY, LeafChange, changes, keep_grades, kept_before, kept_grade, read_history

PARAMS = parse_params(
    {
        "competition": {"name": "cup", "edition": "1", "characters": "I", "trials": 2, "seed": 1},
        "teams": ["ants", "bees"],
        "models": {"small": {"backend": "recorded", "name": "small"}},
        "limits": {"tokens": 1, "seconds": 1, "prompt_words": 1},
        "physics": {},
        "similarity": {},
        "diversity": {},
        "scoring": {},
        "rubric": {},
    },
    "params.yaml",
)
RUBRIC = rubric(node("root", 1, leaf("a"), leaf("b")))


def write_grade(root, team, a=1.0, b=None, sha256="0" * 64, task=RUBRIC, **more):
    scores = {"a": a, "b": b}
    tree = grade_tree(task, lambda each: Verdict(scores.get(each.id, 0.0), ""))
    output = JudgeOutput("checks", tree, team=team, rubric=RubricIdentity("r", sha256), **more)
    write_json(root / grade_file(team), output.to_json())
    return output


@pytest.fixture
def root(tmp_path):
    for team in PARAMS.teams:
        write_grade(tmp_path, team)
    return tmp_path


def test_what_is_kept_is_read_again(root):
    kept = keep_grades(PARAMS, "first", root)
    assert read_history(root) == kept
    assert [(each.team, each.label, each.round) for each in kept] == [
        ("ants", "first", "final"),
        ("bees", "first", "final"),
    ]
    assert kept[0].leaves == {"root/a": 1.0, "root/b": None}
    assert kept[0].score == 0.5
    assert len((root / HISTORY).read_text().splitlines()) == 2


def test_nothing_is_kept_twice(root):
    keep_grades(PARAMS, "first", root)
    before = (root / HISTORY).read_bytes()
    assert keep_grades(PARAMS, "second", root) == ()
    assert (root / HISTORY).read_bytes() == before
    with pytest.raises(GradeError, match="is taken"):
        keep_grades(PARAMS, "first", root)


def test_a_change_in_one_team_keeps_all(root):
    keep_grades(PARAMS, "first", root)
    write_grade(root, "bees", a=0.0)
    keep_grades(PARAMS, "second", root)
    history = read_history(root)
    assert [each.label for each in history] == ["first", "first", "second", "second"]
    assert [each.score for each in kept_before(history, history[1])] == [0.5, 0.0]
    assert kept_before(history, replace(history[1], round="midterm")) == ()


@pytest.mark.parametrize("label", ["", "a b", "-x", "x" * 65, "now", "a/b", "ä"])
def test_labels_are_plain(root, label):
    with pytest.raises(GradeError, match=r"label|taken"):
        keep_grades(PARAMS, label, root)
    assert not (root / HISTORY).exists()


def test_no_history_is_no_fault(tmp_path):
    assert read_history(tmp_path) == ()


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("score", 2, "score"),
        ("score", float("nan"), "score"),
        ("leaves", {"root/a": -1}, "leaves"),
        ("leaves", None, "leaves"),
        ("rubric", {"id": "r"}, "rubric.sha256"),
        ("more", 1, "more"),
    ],
)
def test_a_broken_line_is_named(root, key, value, words):
    keep_grades(PARAMS, "first", root)
    lines = (root / HISTORY).read_text().splitlines()
    broken = {**json.loads(lines[1]), key: value}
    (root / HISTORY).write_text(f"{lines[0]}\n{json.dumps(broken)}\n")
    with pytest.raises(FileError, match=rf"jsonl:2: {words}"):
        read_history(root)


@pytest.mark.parametrize("line", ["{", "[" * 100_000, "null", '"x"'])
def test_what_is_no_line_is_named(root, line):
    (root / HISTORY).write_text(f"{line}\n")
    with pytest.raises(FileError, match="jsonl:1"):
        read_history(root)


def test_a_grade_that_is_missing_or_another_file_is_a_fault(root):
    write_json(root / grade_file("bees"), {"judge_type": "checks"})
    with pytest.raises(GradeError):
        keep_grades(PARAMS, "first", root)
    (root / grade_file("bees")).unlink()
    with pytest.raises(FileError):
        keep_grades(PARAMS, "first", root)


def state(root, **values):
    return kept_grade(write_grade(root, "ants", **values), "ants", "final")


def test_changes_are_told_leaf_by_leaf(tmp_path):
    other = rubric(node("root", 1, leaf("b"), leaf("new")))
    before, now = state(tmp_path, a=1.0, b=None), state(tmp_path, b=0.5, task=other, sha256="1" * 64)
    change = changes(before, now)
    assert change.leaves == (
        LeafChange("root/b", None, 0.5),
        LeafChange("root/new", None, 0.0, is_new=True),
        LeafChange("root/a", 1.0, None, is_gone=True),
    )
    assert (change.before, change.now) == (0.5, 0.25)
    assert change.causes == ("rubric r was edited",)
    assert not change.is_none


def test_no_change_is_told_too(tmp_path):
    same = changes(state(tmp_path), state(tmp_path))
    assert same.is_none
    assert same.causes == ()


def test_causes_name_judge_model_and_prompts(tmp_path):
    before = state(tmp_path)
    now = replace(before, judge="simple", model="m", model_digest="d", prompt_version="v1")
    assert changes(before, now).causes == ("judge checks → simple", "model none → m", "prompts none → v1")
    assert changes(now, replace(now, model_digest="e")).causes == ("other bytes of the model m",)
    assert changes(now, replace(now, model_digest="e")).is_none
