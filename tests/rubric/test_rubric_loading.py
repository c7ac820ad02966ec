"""rubric.json and checks.yaml: what is read, and what is wrong with a file."""

import contextlib
import json
import re

import pytest
from hypothesis import given
from rubric_trees import json_values, leaf, node, rubric, rubric_values

from pcgeval import load_rubric
from pcgeval.checks import LeafCheck
from pcgeval.core.errors import FileError
from pcgeval.core.files import sha256_bytes, write_json
from pcgeval.rubric.tree import MAX_DEPTH, MAX_NODES, RubricError, load_rubric_with_checks, parse_rubric


def faults(value):
    with pytest.raises(RubricError) as error:
        parse_rubric(value, "test")
    return error.value.faults


@given(rubric_values)
def test_a_rubric_keeps_what_the_file_says_and_ignores_other_keys(tmp_path_factory, value):
    def check(task, source):
        assert (task.id, task.requirements, task.weight) == (source["id"], source["requirements"], source["weight"])
        assert type(task.weight) is type(source["weight"])
        assert task.task_category == source.get("task_category")
        for sub_task, below in zip(task.sub_tasks, source["sub_tasks"], strict=True):
            check(sub_task, below)

    path = tmp_path_factory.getbasetemp() / "rubric.json"
    path.write_text(json.dumps(value))
    task = load_rubric(path)
    check(task, value)
    graded = {"score": 1.0, "valid_score": True, "explanation": "", "judge_metadata": None, "path": "x", "note": [{}]}
    assert parse_rubric({**value, **graded}, "test") == task


@given(json_values("id", "requirements", "weight", "sub_tasks", "task_category", "check", "name", "x"))
def test_any_value_is_a_rubric_or_a_list_of_faults(value):
    with contextlib.suppress(RubricError):
        assert parse_rubric(value, "test").id == value["id"]


def test_all_faults_are_listed_with_their_paths():
    bare = {"id": "bare", "weight": 1, "sub_tasks": []}
    inner = {**node("inner", 1, leaf("huge", 1e300)), "task_category": "Code Execution"}
    value = node("root", float("nan"), leaf("minus", -1), bare, inner, "no object", leaf("minus", True))
    places = ("root", "root/minus", "root/bare", "root/inner", "root/inner/huge", "root/[4]", "root/minus#2")
    assert {fault.partition(": ")[0] for fault in faults(value)} == {*places}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"weight": "1"}, "'weight'.*found '1'"),
        ({"id": "a\x1b[2J"}, "'id'"),
        ({"requirements": "\ud800"}, "'requirements'"),
        ({"task_category": "Code"}, "'task_category'.*Code Development.*found 'Code'"),
        ({"check": {"name": "readme_lenght"}}, r"Did you mean 'readme_length'\?"),
        ({"check": {"name": "prompt_mentions", "arguments": {"text": 1}}}, "'text': .*found 1"),
        ({"sub_tasks": [leaf("below")]}, "Leave this to the leaves"),
    ],
)
def test_each_fault_of_a_node(change, part):
    (fault,) = faults({**leaf("only"), **change})
    assert re.match(rf"(only|\[1\]): .*{part}", fault)


def test_a_tree_that_is_too_deep_or_too_large_is_refused_before_it_costs_memory(tmp_path):
    def nested(levels):
        start = '{"id": "a", "requirements": "", "weight": 1, "sub_tasks": [\n'
        (tmp_path / "rubric.json").write_text(start * (levels - 1) + json.dumps(leaf("end")) + "]}" * (levels - 1))
        return load_rubric(tmp_path / "rubric.json")

    assert len(list(nested(MAX_DEPTH).walk())) == MAX_DEPTH
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises((RubricError, FileError), match=r"deeper|recursion"):
            nested(levels)
    below = [leaf(f"n{number}") for number in range(MAX_NODES - 1)]
    assert len(list(parse_rubric(node("root", 1, *below), "test").walk())) == MAX_NODES
    (fault,) = faults(node("root", 1, *below, 0))
    assert "more than 20000 nodes" in fault


CHECK = {"name": "file_exists", "arguments": {"path": "README.md"}}
TREE = node("root", 1, leaf("a"), node("b", 1, leaf("twice"), leaf("c", check=CHECK)), node("d", 1, leaf("twice")))


def with_checks(tmp_path, text):
    write_json(tmp_path / "rubric.json", TREE)
    (tmp_path / "checks.yaml").write_text(text)
    return load_rubric_with_checks(tmp_path / "rubric.json")


def test_leaves_get_checks_by_id_or_path(tmp_path):
    text = """
        a: {name: result_value, arguments: {path: results.json, key: loss, at_most: 2}}  # by id
        root/d/twice: {name: reproduce_succeeded}
    """
    tree, digest = with_checks(tmp_path, text)
    assert {task.path: task.check for task in tree.leaves} == {
        "root/a": LeafCheck("result_value", {"path": "results.json", "key": "loss", "at_most": 2}),
        "root/b/twice": None,
        "root/b/c": LeafCheck(**CHECK),
        "root/d/twice": LeafCheck("reproduce_succeeded"),
    }
    assert digest == sha256_bytes(text.encode())
    assert with_checks(tmp_path, "# none yet")[0] == rubric(TREE)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("root: {name: reproduce_succeeded}", "of no leaf"),
        ("twice: {name: reproduce_succeeded}", "of 2 leaves.*root/b/twice,"),
        ("c: {name: reproduce_succeeded}", "root/b/c: has two checks"),
        ("a: {name: file_exists, arguments: {path: ../x}}", "'path'"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
    ],
)
def test_faulty_checks_are_refused(tmp_path, text, part):
    with pytest.raises(RubricError, match=rf"(checks\.yaml|rubric\.json)[^$]*{part}"):
        with_checks(tmp_path, text)
