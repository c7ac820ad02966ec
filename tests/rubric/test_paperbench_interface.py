"""Nodes and gradings as code that was written for PaperBench uses them."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from pydantic import BaseModel
from rubric_trees import CODE, RESULT, RUN, leaf, node, rubric_values, rubrics

from pcgeval import GradedTaskNode, JudgeOutput, TaskNode, extract_leaf_grades, get_grade_summary
from pcgeval.rubric.grades import disqualify, rescored
from pcgeval.rubric.output import get_total_token_usage
from pcgeval.rubric.tree import FINEGRAINED_CATEGORIES, child_paths, code_only


def task(id_, *sub_tasks, weight=1, category=CODE, **more):
    """A node as PaperBench's code makes it, without a path."""
    category = None if sub_tasks else category
    return TaskNode(id=id_, requirements=id_, weight=weight, sub_tasks=sub_tasks, task_category=category, **more)


def ids(tasks):
    return [each.id for each in tasks]


F, G = task("F"), task("G", category=RESULT)
TREE = task("A", task("B", task("D"), task("E", category=RUN)), task("C", F, G), weight=3)


def test_nodes_are_made_without_a_path_and_get_one_where_they_are_put():
    paths = [each.path for each in TREE.get_descendants_depth_first()]
    assert paths == ["A/B", "A/B/D", "A/B/E", "A/C", "A/C/F", "A/C/G"]
    assert TREE.sub_tasks[1].sub_tasks[1] == G
    assert (TREE.is_leaf(), G.is_leaf(), bool(TREE.is_leaf), bool(G.is_leaf)) == (False, True, False, True)
    twice = task("r", task("x"), task("x"), task("y", task("x")))
    assert [each.path for each in twice.get_leaf_nodes()] == ["r/x", "r/x#2", "r/y/x"]
    assert ids(twice.get_descendants_with_duplicate_ids()) == ["x", "x", "x"]
    assert twice.find("r/x#2") is twice.sub_tasks[1]
    assert [each.path for each in twice.add_sub_task(twice.sub_tasks[0]).sub_tasks][-1] == "r/x#3"


@pytest.mark.parametrize(
    "fields",
    [
        {"weight": -1},
        {"weight": "1"},
        {"task_category": "Coding"},
        {"task_category": None},
        {"finegrained_task_category": "Cooking"},
        {"sub_tasks": [F]},
    ],
)
def test_faulty_nodes_raise_a_value_error_when_made_or_read(fields):
    usual = {"id": "n", "requirements": "n", "weight": 1, "sub_tasks": [], "task_category": CODE}
    TaskNode(**usual)
    with pytest.raises(ValueError):
        TaskNode(**usual | fields)
    with pytest.raises(ValueError):
        GradedTaskNode(**usual | fields, score=1.0, valid_score=True, explanation="")


def test_nodes_are_found_by_id_or_path():
    assert TREE.find("A") is TREE
    assert TREE.find("F") is TREE.find("A/C/F") is TREE.sub_tasks[1].sub_tasks[0]
    assert (TREE.contains("E"), TREE.contains("A/B/E"), TREE.contains("B/E"), F.contains("A")) == (
        True,
        True,
        False,
        False,
    )
    assert ids(TREE.find_path_to_descendant("G")) == ["A", "C", "G"]
    assert TREE.find_path_to_descendant("A") == [TREE]
    assert TREE.find_path_to_descendant("nobody") is None
    assert TREE.get_parent("G") is TREE.sub_tasks[1]
    for call in (TREE.find, TREE.get_parent):
        with pytest.raises(ValueError, match="nobody"):
            call("nobody")
    with pytest.raises(ValueError, match="root"):
        TREE.get_parent("A")


def test_prior_nodes_are_the_last_of_ancestors_and_earlier_siblings():
    assert ids(G.get_prior_nodes(TREE)) == ids(TREE.find("G").get_prior_nodes(TREE)) == ["A", "B", "C", "F"]
    assert ids(G.get_prior_nodes(TREE, max_prior_nodes=2)) == ["C", "F"]
    assert ids(G.get_prior_nodes(TREE, 99)) == ["A", "B", "C", "F"]
    assert G.get_prior_nodes(TREE, 0) == TREE.get_prior_nodes(TREE) == []
    with pytest.raises(ValueError):
        task("Z").get_prior_nodes(TREE)


def test_paths_tell_equal_and_awkward_ids_apart():
    assert child_paths("r", ["x#2", "x", "x", "a/b", "100%"]) == ["r/x%232", "r/x", "r/x#2", "r/a%2Fb", "r/100%25"]


@given(rubrics)
def test_paths_are_unique_and_prior_nodes_are_ancestors_and_earlier_siblings(tree):
    """A node is prior if it comes earlier in the file and is the root or a child of an ancestor."""
    order = list(tree.walk())
    assert len({task.path for task in order}) == len(order)
    above = {tree.path: None} | {child.path: parent.path for parent in order for child in parent.sub_tasks}
    for position, target in enumerate(order):
        ancestors = {None}
        up = target.path
        while up := above[up]:
            ancestors.add(up)
        literal = [task for task in order[:position] if above[task.path] in ancestors]
        assert target.get_prior_nodes(tree) == literal


@given(rubric_values)
def test_to_dict_returns_what_from_dict_read(value):
    def full(each):
        optional = {"task_category": None, "finegrained_task_category": None}
        return optional | each | {"sub_tasks": [full(below) for below in each["sub_tasks"]]}

    assert TaskNode.from_dict(value).to_dict() == full(value)
    tree = GradedTaskNode.from_task(
        TaskNode.from_dict(value), 0.5, True, "so", {"token_usage": {"m": {"in": 1, "out": 2}}}
    )
    again = GradedTaskNode.from_dict(json.loads(json.dumps(tree.to_dict())))
    assert (again, again.to_dict(), again.to_task()) == (tree, tree.to_dict(), TaskNode.from_dict(value))
    assert tree.judge_metadata["token_usage"] == {"m": {"in": 1, "out": 2}}


@pytest.mark.parametrize("key", ["id", "requirements", "weight", "sub_tasks"])
def test_from_dict_refuses_a_node_that_lacks_a_field(key):
    lacking = leaf("x")
    del lacking[key]
    for value in (lacking, node("root", 1, lacking)):
        with pytest.raises(ValueError, match=key):
            TaskNode.from_dict(value)
        with pytest.raises(ValueError, match=key):
            GradedTaskNode.from_dict({**value, "score": 0.0, "valid_score": True, "explanation": ""})


def test_cuts_keep_what_they_say_and_change_nothing_else():
    assert [each.path for each in TREE.code_only().walk()] == ["A", "A/B", "A/B/D", "A/C", "A/C/F"]
    emptied = task("A", task("x", category=RUN), task("B", task("y", category=RUN)))
    assert task("r", emptied, task("z")).code_only() == task("r", task("z"))
    assert emptied.code_only() is None
    alone = code_only(task("A", task("x", category=RUN), weight=3))
    assert (alone.id, alone.weight, alone.task_category, alone.is_leaf()) == ("A", 3, CODE, True)
    acquired = task("A", task("x", weight=2, finegrained_task_category=FINEGRAINED_CATEGORIES[1]), task("y", weight=2))
    assert [each.weight for each in acquired.resources_provided().sub_tasks] == [0, 2]
    pruned = TREE.prune_to_depth(1)
    assert [ids(each.merged) for each in pruned.sub_tasks] == [["D", "E"], ["F", "G"]]
    assert [(each.id, each.task_category) for each in pruned.get_leaf_nodes()] == [("B", "Subtree"), ("C", "Subtree")]
    root = TREE.prune_to_depth(0)
    assert (root.id, root.requirements, root.weight, root.task_category) == ("A", "A", 3, "Subtree")
    assert TREE.prune_to_depth(9) == TREE


def test_changes_return_copies():
    before = TREE.to_dict()
    changed = TREE.replace("E", task("new", task("x"))).delete("F")
    assert ids(changed.get_leaf_nodes()) == ["D", "x", "G"]
    assert changed.find("x").path == "A/B/new/x"
    assert (TREE.delete("A"), TREE.delete("nobody")) == (None, TREE)
    with pytest.raises(ValueError):
        TREE.replace("nobody", F)
    grown = F.add_sub_task(task("x")).set_id("F2").set_weight(7).set_requirements("Do.")
    assert (grown.task_category, grown.weight, grown.requirements) == (None, 7, "Do.")
    assert [each.path for each in grown.walk()] == ["F2", "F2/x"]
    fine = FINEGRAINED_CATEGORIES[3]
    assert F.set_task_category(RUN).set_finegrained_task_category(fine).to_dict()["finegrained_task_category"] == fine
    assert F.set_sub_tasks([G]).task_category is None
    copied = TREE.duplicate_with_new_ids()
    assert not {each.id for each in TREE.walk()} & {each.id for each in copied.walk()}
    assert [each.requirements for each in copied.walk()] == [each.requirements for each in TREE.walk()]
    assert TREE.to_dict() == before


def test_a_graded_tree_is_a_tree_of_tasks_that_is_scored_again_after_a_cut():
    tree = GradedTaskNode.from_task(TREE, 0.0, True, "seen")
    tree = rescored(tree.replace("F", tree.find("F").set_score(1.0).set_explanation("good")))
    assert (tree.score, tree.valid_score, tree.find("C").score, tree.find("F").explanation) == (0.25, True, 0.5, "good")
    assert rescored(tree.code_only()).score == 0.5
    assert rescored(tree.delete("B")).score == 0.5
    assert isinstance(tree.prune_to_depth(1).find("C"), GradedTaskNode)
    assert tree.prune_to_depth(1).find("C").score == 0.5
    ungraded = rescored(tree.replace("G", GradedTaskNode.from_task(G, 0.0, False, "the judge failed")))
    assert [ungraded.find(name).valid_score for name in "ACBFG"] == [False, False, True, True, False]
    assert ungraded.score == 0.25
    assert GradedTaskNode(id="x", requirements="", weight=1, task_category=CODE).valid_score is False


GRADED = rescored(GradedTaskNode.from_task(TREE, 1.0, True, "seen"))


class State(BaseModel):
    grade: dict[str, Any]


def test_the_tree_in_the_json_of_a_grading_is_a_node_and_a_dictionary():
    output = JudgeOutput("simple", GRADED)
    assert (output.score, output.sub_tasks, output.success) == (1.0, GRADED.sub_tasks, True)
    state = {"grade": output.to_json()}
    tree = state["grade"]["graded_task_tree"]
    assert isinstance(tree, GradedTaskNode)
    assert isinstance(tree, dict)
    assert tree.score == tree["score"] == tree.get("score", 0.0) == 1.0
    assert tree.sub_tasks == GRADED.sub_tasks
    plain = json.loads(json.dumps(tree))
    for same in (copy.deepcopy(tree), copy.deepcopy(state)["grade"]["graded_task_tree"]):
        assert (same == tree, same.score, isinstance(same, GradedTaskNode)) == (True, 1.0, True)
    assert plain == tree == json.loads(State(**state).model_dump_json())["grade"]["graded_task_tree"]
    assert State(**state).model_dump()["grade"]["graded_task_tree"] == plain
    assert ids(tree.code_only().get_leaf_nodes()) == ["D", "F"]
    for same in (tree, plain, output, GRADED, output.to_json(), output.to_dict()):
        assert ids_of(extract_leaf_grades(same)) == ["D", "E", "F", "G"]
        assert get_grade_summary(same)["passed"] == 4


def test_the_tokens_of_leaves_are_added_up_by_the_model():
    usages = {
        "D": {"gpt": {"in": 12, "out": 5}},
        "E": None,
        "F": {"gpt": {"in": 1, "out": 1}, "o3": {"in": 2, "out": 3}},
    }
    tree = GRADED
    for id_, usage in usages.items():
        graded = GradedTaskNode.from_task(TREE.find(id_), 1.0, True, "", {"token_usage": usage})
        tree = tree.replace(id_, graded)
    tree = tree.replace("G", GradedTaskNode.from_task(G, 1.0, True, "", {}))
    expected = {"gpt": {"in": 13, "out": 6}, "o3": {"in": 2, "out": 3}}
    assert get_total_token_usage(tree) == JudgeOutput("simple", tree).to_dict()["token_usage"] == expected
    assert get_total_token_usage(tree.find("G")) == {}


def ids_of(grades):
    return [grade["id"] for grade in grades]


def test_a_grading_is_written_and_read_by_paperbenchs_names():
    class Config(BaseModel):
        model: str

    value = JudgeOutput("simple", GRADED, model="gpt-4o").to_dict()
    again = JudgeOutput.from_dict(json.loads(json.dumps(value)), Config)
    assert (again.to_dict(), again.model, again.num_leaf_nodes) == (value, "gpt-4o", 4)
    for key in ("id", "score"):
        lacking = copy.deepcopy(value)
        del lacking["graded_task_tree"]["sub_tasks"][0][key]
        with pytest.raises(ValueError, match=key):
            JudgeOutput.from_dict(lacking, Config)


def test_a_disqualified_tree_has_0_at_every_node():
    tree = disqualify(GRADED)
    assert {node.score for node in tree.walk()} == {0.0}
    assert all("disqualified" in leaf.explanation for leaf in tree.leaves)
