"""rubric.json and checks.yaml: what is read, and what is wrong with a file."""

import contextlib
import hashlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import leaf, node, rubric, rubric_values

from pcgeval import load_rubric
from pcgeval.core.errors import FileError
from pcgeval.rubric.loading import add_checks, parse_rubric
from pcgeval.rubric.tree import MAX_DEPTH, MAX_NODES, RubricError, leaves, walk

json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5) | st.just("\ud800"),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "requirements", "weight", "sub_tasks", "task_category", "check", "name", "x"]), below
        )
    ),
    max_leaves=20,
)


def faults(value):
    with pytest.raises(RubricError) as error:
        parse_rubric(value, "test")
    return error.value.faults


@given(rubric_values)
def test_a_rubric_keeps_what_the_file_says(tmp_path_factory, value):
    def check(task, source):
        assert (task.id, task.requirements, task.weight) == (source["id"], source["requirements"], source["weight"])
        assert task.task_category == source.get("task_category")
        for sub_task, below in zip(task.sub_tasks, source["sub_tasks"], strict=True):
            check(sub_task, below)

    path = tmp_path_factory.getbasetemp() / "rubric.json"
    path.write_text(json.dumps(value))
    check(load_rubric(path), value)


@given(json_values)
def test_any_value_is_a_rubric_or_a_list_of_faults(value):
    with contextlib.suppress(RubricError):
        assert parse_rubric(value, "test").id == value["id"]


def test_all_faults_are_listed_with_their_paths():
    value = node(
        "root",
        float("nan"),
        leaf("minus", -1),
        {"id": "bare", "weight": 1, "sub_tasks": []},
        {**node("inner", 1, leaf("huge", 1e300)), "task_category": "Code Execution"},
        "no object",
        leaf("minus", True),
    )
    expected = ("root: ", "root/minus: ", "root/bare: ", "root/bare: ", "root/inner: ", "root/inner/huge: ")
    for fault, start in zip(faults(value), (*expected, "root/[4]: ", "root/minus#2: "), strict=True):
        assert fault.startswith(start)
    many = [leaf(f"n{number}", -1 if number % 100 == 0 else 1) for number in range(1000)]
    assert len(faults(node("root", 1, *many))) == 10


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"weight": "1"}, "'weight' must be a number"),
        ({"weight": float("inf")}, "not inf"),
        ({"weight": 10**400}, "'weight'"),
        ({"id": 7}, "'id'"),
        ({"id": ""}, "'id'"),
        ({"id": "x" * 201}, "'id'"),
        ({"id": "a\x1b[2J"}, "'id'"),
        ({"requirements": None}, "'requirements'"),
        ({"requirements": "\ud800"}, "lone surrogate"),
        ({"sub_tasks": None}, "'sub_tasks' must be a list"),
        ({"task_category": "Code"}, "'task_category' is 'Code'"),
        ({"task_category": ["Code Development"]}, "'task_category' is a list of 1"),
        ({"finegrained_task_category": "Other"}, "'finegrained_task_category' is 'Other'"),
        ({"checks": None}, "Did you mean 'check'?"),
        ({"check": "readme_length"}, "'check' must be {name, arguments}"),
        ({"check": {"name": "readme_lenght"}}, "Did you mean 'readme_length'?"),
        ({"check": {"name": "prompt_mentions"}}, "argument 'text' is missing"),
        ({"check": {"name": "prompt_mentions", "arguments": {"text": 1}}}, "argument 'text' is 1"),
    ],
)
def test_each_fault_of_a_leaf(change, part):
    (fault,) = faults({**leaf("only"), **change})
    assert part in fault
    assert fault.startswith(("only: ", "[1]: "))


def test_keys_of_a_graded_tree_and_of_others_are_ignored():
    more = {"score": 1.0, "valid_score": True, "explanation": "", "judge_metadata": None, "path": "x", "note": [{}]}
    value = node("root", 1, {**leaf("a"), **more}) | more | {"task_category": ""}
    assert parse_rubric(value, "test") == parse_rubric(node("root", 1, leaf("a")), "test")
    assert parse_rubric(leaf("a", category="Subtree"), "test").task_category == "Subtree"


@pytest.mark.parametrize("more", [{"check": {"name": "prompt_length"}}, {"task_category": "Code Development"}])
def test_category_and_check_belong_to_leaves(more):
    assert "Leave these to the leaves" in faults({**node("root", 1, leaf("a")), **more})[0]


def chain(levels):
    start = '{"id": "a", "requirements": "", "weight": 1, "sub_tasks": [\n'
    return start * (levels - 1) + json.dumps(leaf("end")) + "]}" * (levels - 1)


def test_rubrics_as_deep_and_as_large_as_they_may_be_and_more(tmp_path):
    path = tmp_path / "rubric.json"
    path.write_text(chain(MAX_DEPTH))
    assert len(list(walk(load_rubric(path)))) == MAX_DEPTH
    for levels in (MAX_DEPTH + 1, 3000, 100_000):
        path.write_text(chain(levels))
        with pytest.raises((RubricError, FileError), match=r"deeper|recursion"):
            load_rubric(path)
    below = [leaf(f"n{number}") for number in range(MAX_NODES)]
    assert len(list(walk(parse_rubric(node("root", 1, *below[1:]), "test")))) == MAX_NODES
    assert "has 20001 nodes" in faults(node("root", 1, *below))[0]


def test_a_file_that_is_no_rubric_is_named(tmp_path):
    path = tmp_path / "rubric.json"
    for content, part in ((None, "missing"), (b"\xff\xfe\x00", "not UTF-8"), (b'{\n"id": "a",\n}', "line 3")):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(FileError, match=part):
            load_rubric(path)
    with path.open("wb") as file:
        file.truncate(33_000_000)
    with pytest.raises(FileError, match="larger than"):
        load_rubric(path)


# checks.yaml

CHECK = {"name": "file_exists", "arguments": {"path": "README.md"}}
TREE = rubric(
    node("root", 1, leaf("a"), node("b", 1, leaf("twice"), leaf("c", check=CHECK)), node("d", 1, leaf("twice")))
)


def with_checks(tmp_path, text):
    (tmp_path / "checks.yaml").write_text(text)
    return add_checks(TREE, tmp_path / "checks.yaml")


def test_leaves_get_checks_by_id_or_path(tmp_path):
    text = """
        a: {name: result_value, arguments: {path: results.json, key: loss, at_most: 2}}  # by id
        root/d/twice: {name: reproduce_succeeded}
    """
    tree, digest = with_checks(tmp_path, text)
    assert {task.path: task.check and (task.check.name, dict(task.check.arguments)) for task in leaves(tree)} == {
        "root/a": ("result_value", {"path": "results.json", "key": "loss", "at_most": 2}),
        "root/b/twice": None,
        "root/b/c": (CHECK["name"], CHECK["arguments"]),
        "root/d/twice": ("reproduce_succeeded", {}),
    }
    assert digest == hashlib.sha256(text.encode()).hexdigest()
    assert with_checks(tmp_path, "# none yet")[0] == TREE


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("root: {name: reproduce_succeeded}", "no leaf of the rubric"),
        ("twice: {name: reproduce_succeeded}", "2 leaves have this id. Give the path of one: root/b/twice,"),
        ("c: {name: reproduce_succeeded}", "has a check already"),
        ("{a: {name: reproduce_succeeded}, root/a: {name: reproduce_succeeded}}", "has a check already"),
        ("a: {name: reproduce_suceeded}", "Did you mean 'reproduce_succeeded'"),
        ("a: {name: file_exists, arguments: {path: ../x}}", "argument 'path'"),
        ("a: {name: file_exists, argument: {path: x}}", "Give {name, arguments}"),
        ("a: reproduce_succeeded", "Give {name, arguments}"),
        ("[a]", "valid dictionary"),
        ("{a: {name: reproduce_succeeded}, a: {name: reproduce_succeeded}}", "'a' stands twice"),
        ("a: !!python/object/apply:os.system [ls]", "not valid YAML"),
    ],
)
def test_faulty_checks_are_refused(tmp_path, text, expected):
    with pytest.raises(RubricError) as error:
        with_checks(tmp_path, text)
    assert expected in str(error.value)
    assert "checks.yaml" in str(error.value)


def test_checks_that_are_missing_no_file_or_too_large_are_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_text(" " * 500_001)
    for name in ("none", "pipe", "large"):
        with pytest.raises(FileError, match=name):
            add_checks(TREE, tmp_path / name)
