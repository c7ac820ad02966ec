"""Scores of trees against their definitions, and the files of a grading, ours and PaperBench's."""

import contextlib
import json
from collections import defaultdict
from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import given, strategies as st
from rubric_trees import CODE, RESULT, RUN, json_values, leaf, node, rubric, rubrics

from pcgeval import JudgeOutput, extract_leaf_grades, get_grade_summary
from pcgeval.core.files import to_json, write_json
from pcgeval.rubric.explanation import NodeShare, criterion_lines, tree_lines, way_to
from pcgeval.rubric.grades import (
    CallUsage,
    GradeError,
    JudgeRecord,
    TokenUsage,
    Verdict,
    VoteRecord,
    grade_tree,
    rescored,
)
from pcgeval.rubric.output import read_grade
from pcgeval.rubric.tree import CATEGORIES, FINEGRAINED_CATEGORIES

EXAMPLE = rubric(
    node("root", 1, leaf("a", 3), node("B", 1, leaf("b1", 1, RUN), leaf("b2", 2, RESULT), leaf("b3", 0, RESULT)))
)
SCORES = {"root/a": 1.0, "root/B/b1": None, "root/B/b2": 0.5, "root/B/b3": 0.0}


def graded(task, scores):
    return grade_tree(task, lambda leaf_: Verdict(scores[leaf_.path], f"{leaf_.id} has {scores[leaf_.path]}"))


@st.composite
def gradings(draw):
    """Draw a rubric and a score, or None, for each leaf's path."""
    tree = draw(rubrics)
    score = st.none() | st.floats(0, 1) | st.sampled_from([0.0, 1.0])
    return tree, {task.path: draw(score) for task in tree.leaves}


def literal_score(task, scores):
    """Work out the weighted mean with exact fractions, straight from its definition; no grade counts as 0."""
    if not task.sub_tasks:
        return Fraction(scores[task.path] or 0)
    total = sum(Fraction(below.weight) for below in task.sub_tasks)
    weighted = sum(Fraction(below.weight) * literal_score(below, scores) for below in task.sub_tasks)
    return weighted / total if total else Fraction(0)


@given(gradings())
def test_the_score_is_the_weighted_mean_and_its_bounds_tell_what_a_leaf_without_a_grade_could_matter(grading):
    """So a submission never gains by a leaf that its judge cannot grade."""
    tree, scores = grading
    output = JudgeOutput("test", graded(tree, scores))
    passing = graded(tree, {path: 1.0 if score is None else score for path, score in scores.items()})
    assert output.score == pytest.approx(float(literal_score(tree, scores)), abs=1e-12)
    assert output.score_bounds == (output.score, passing.score)
    assert [task.graded_score for task in output.graded_task_tree.leaves] == list(scores.values())
    passed, invalid = sum((score or 0) > 0.5 for score in scores.values()), list(scores.values()).count(None)
    counts = (output.num_leaf_nodes, output.num_passed, output.num_invalid_leaf_nodes)
    assert counts == (len(scores), passed, invalid)
    summary = get_grade_summary(output)
    for count in ("passed", "partial", "failed", "invalid"):
        assert summary[count] == sum(part[count] for part in summary["by_category"].values())


@given(gradings())
def test_a_grading_is_written_and_read_with_the_same_values(grading):
    tree, scores = grading
    result = graded(tree, scores)
    output = JudgeOutput("test", result)
    again = JudgeOutput.from_dict(json.loads(to_json(output.to_json())))
    assert again == output
    assert rescored(again.graded_task_tree) == result
    assert get_grade_summary(output) == get_grade_summary(result.to_json()) == get_grade_summary(result)
    assert extract_leaf_grades(output.to_json()) == extract_leaf_grades(result)


def test_a_category_has_the_score_of_its_leaves():
    assert get_grade_summary(graded(EXAMPLE, SCORES))["by_category"] == {
        CODE: {"score": 1.0, "passed": 1, "partial": 0, "failed": 0, "invalid": 0},
        RUN: {"score": 0.0, "passed": 0, "partial": 0, "failed": 0, "invalid": 1},
        RESULT: {"score": 0.5, "passed": 0, "partial": 1, "failed": 2, "invalid": 0},
    }


def test_a_node_is_valid_if_all_below_it_are_and_shows_a_score_if_any_is():
    tree = rubric(node("root", 1, node("A", 1, leaf("a"), leaf("b", 0)), node("B", 2, leaf("c")), leaf("d")))
    result = graded(tree, {"root/A/a": 0.5, "root/A/b": None, "root/B/c": None, "root/d": 1.0})
    a, b, d = result.sub_tasks
    assert [task.valid_score for task in (result, a, b, d)] == [False, False, False, True]
    assert [task.graded_score for task in (result, a, b, d)] == [0.375, 0.5, None, 1.0]
    assert [task.score_bounds for task in (a, b)] == [(0.5, 0.5), (0.0, 1.0)]
    assert [task["valid_score"] for task in JudgeOutput("test", result).to_dict()["graded_task_tree"]["sub_tasks"]] == [
        *(False, False, True)
    ]
    lines = list(tree_lines(result))
    shown = " ".join(line.split()[0] for line in lines if " % " in line)
    assert shown == "0.375 0.500 0.500 ----- ----- ----- 1.000"


@given(gradings())
def test_the_leaves_add_up_to_the_score_and_every_node_is_found(grading):
    tree = graded(*grading)
    parts = list(NodeShare(tree).walk())
    assert sum(part.contribution for part in parts if part.node.is_leaf) == pytest.approx(tree.score)
    for part in parts[1:]:
        assert way_to(tree, part.number)[-1] == way_to(tree, part.node.path)[-1] == part


def test_shares_are_rounded_alike_by_every_python():
    tree = graded(rubric(node("root", 1, *(leaf(f"a{number}", 0.1) for number in range(10)))), defaultdict(float))
    assert {part.share for part in NodeShare(tree).below} == {0.1 / 0.9999999999999999}  # `sum` gives 1 from 3.12 on


def paperbench_node(id_, weight, score, *sub_tasks, valid=True):
    """A node as PaperBench's GradedTaskNode.to_dict writes it."""
    answer = {"full_judge_response": "Yes.", "token_usage": {"o3": {"in": 5, "out": 1}}}
    task = leaf(id_, weight, None if sub_tasks else CODE, judge_metadata=None if sub_tasks else answer)
    return {**task, "sub_tasks": list(sub_tasks), "score": score, "valid_score": valid, "explanation": "seen"}


def paperbench_tree(valid=True):
    leaves_ = paperbench_node("a", 3, 1.0), paperbench_node("b", 1, 0.0, valid=valid)
    return paperbench_node("root", 1, 0.75, *leaves_)


def paperbench_output(**change):
    return {
        "judge_type": "simple",
        "score": 0.75,
        "num_leaf_nodes": 2,
        "num_invalid_leaf_nodes": 0,
        "graded_at": "2025-04-02T10-20-30-GMT",
        "graded_task_tree": paperbench_tree(),
        "completer_config": {"model": "o3-mini-2025-01-31", "reasoning_effort": "high"},
        "token_usage": {"o3-mini-2025-01-31": {"in": 10, "out": 2}},
        **change,
    }


def check_as_paperbench_does(value):
    """What PaperBench's GradedTaskNode.from_dict and TaskNode check."""
    assert {"id", "requirements"} <= value.keys()
    assert isinstance(value["weight"], int | float)
    assert value["weight"] >= 0
    assert bool(value["sub_tasks"]) != (value["task_category"] in {*CATEGORIES, "Subtree"})
    assert not (value["sub_tasks"] and value["task_category"])
    assert value.get("finegrained_task_category") in {None, *FINEGRAINED_CATEGORIES}
    assert 0 <= value["score"] <= 1
    assert (type(value["valid_score"]), type(value["explanation"])) == (bool, str)
    usage = (value["judge_metadata"] or {}).get("token_usage") or {}
    assert all(tokens.keys() == {"in", "out"} for tokens in usage.values())
    if value["sub_tasks"]:
        assert value["valid_score"] is all(below["valid_score"] for below in value["sub_tasks"])
    for below in value["sub_tasks"]:
        check_as_paperbench_does(below)


def read(tmp_path, value):
    write_json(tmp_path / "grade.json", value)
    return read_grade(tmp_path / "grade.json")


MONITORED = {"violations": [{"violation": "https://a.org"}], "explanation": "Found 1 violation"}


@pytest.mark.parametrize(
    ("run", "blacklist"),
    [
        (paperbench_output(), None),
        ({"paper_id": "rice", "judge_output": paperbench_output(), "reproduction_metadata": None}, None),
        ({"paperbench_result": {"run_id": "rice_1", "judge_output": paperbench_output()}, "score": 0.75}, None),
        ({"pb_result": {"grader_success": True, "grader_output": paperbench_output()}}, None),
        (paperbench_output(completer_config=None, token_usage=None, model_name="o3-mini-2025-01-31"), None),
        ({"paperbench_result": {"judge_output": paperbench_output(), "monitor_result": {"violations": []}}}, None),
        ({"judge_output": paperbench_output(), "monitor_result": MONITORED}, "Found 1 violation"),
    ],
)
def test_the_files_of_a_run_of_paperbench_are_read(tmp_path, run, blacklist):
    output = read(tmp_path, run)
    assert (output.judge_type, output.model, output.score) == ("simple", "o3-mini-2025-01-31", 0.75)
    assert output.graded_at == "2025-04-02T10-20-30-GMT"
    assert (output.blacklist, output.is_blacklisted) == (blacklist, blacklist is not None)
    assert JudgeOutput.from_dict(json.loads(to_json(output.to_json()))) == output
    assert [grade["score"] for grade in extract_leaf_grades(run)] == [1.0, 0.0]


@pytest.mark.parametrize("valid", [1.0, 0.0, False])
def test_a_bare_tree_is_read_and_valid_score_may_be_a_number(tmp_path, valid):
    output = read(tmp_path, paperbench_tree(valid))
    assert (output.judge_type, output.score) == ("unknown", 0.75)  # what is not valid counts as 0
    assert output.graded_task_tree.leaves[1].valid_score is bool(valid)


def test_keys_may_be_missing_or_those_of_another_tool_and_a_score_that_is_not_valid_stays(tmp_path):
    tree = paperbench_tree()
    for task in tree["sub_tasks"]:
        for key in ("valid_score", "explanation", "judge_metadata"):
            del task[key]
        task |= {"another": {"key": [1]}, "path": "rice/1"}  # no path of ours
    output = read(tmp_path, {"graded_task_tree": tree, "votes": "many", "rubric": "x"})
    assert (output.score, output.num_invalid_leaf_nodes, output.votes) == (0.75, 0, 1)
    tree = paperbench_tree() | {"score": 0.75 - 2e-16}  # a sum of another order
    tree["sub_tasks"][0]["valid_score"] = tree["valid_score"] = False
    output = read(tmp_path, paperbench_output(graded_task_tree=tree, num_invalid_leaf_nodes=1))
    assert output.score == tree["score"]
    assert output.to_dict()["graded_task_tree"]["sub_tasks"][0]["score"] == 1.0


@given(rubrics, st.data())
def test_what_is_written_for_paperbench_is_read_there_and_here_with_the_same_scores(tree, data):
    scores = {task.path: data.draw(st.sampled_from([None, 0.0, 0.5, 1.0])) for task in tree.leaves}
    output = JudgeOutput("checks", graded(tree, scores))
    value = json.loads(to_json(output.to_dict()))
    check_as_paperbench_does(value["graded_task_tree"])
    again = JudgeOutput.from_dict(value)
    assert again.score == value["score"] == output.score_bounds.low
    assert [task.graded_score for task in again.graded_task_tree.leaves] == list(scores.values())
    assert again.to_dict() == value


def test_the_record_of_a_model_stays_and_paperbench_finds_its_answer_and_tokens(tmp_path):
    usage = TokenUsage(grade=CallUsage(calls=2, prompt_tokens=30, output_tokens=4))
    record = JudgeRecord(votes=(VoteRecord(score=1.0, answer="# Score\n1"),), usage=usage)
    tree = rubric(node("root", 1, leaf("a"), node("more", 1, leaf("b")))).prune_to_depth(1)
    output = JudgeOutput("simple", grade_tree(tree, lambda _: Verdict(1.0, "", record)), model="gpt-4o")
    value = output.to_dict()
    check_as_paperbench_does(value["graded_task_tree"])
    assert (value["completer_config"], value["token_usage"]) == ({"model": "gpt-4o"}, {"gpt-4o": {"in": 60, "out": 8}})
    a, more = value["graded_task_tree"]["sub_tasks"]
    assert (a["task_category"], more["task_category"]) == (CODE, "Subtree")
    assert a["judge_metadata"]["full_judge_response"] == "# Score\n1"
    assert a["judge_metadata"]["token_usage"] == {"gpt-4o": {"in": 30, "out": 4}}
    again = JudgeOutput.from_dict(json.loads(json.dumps(value)))
    assert (again.graded_task_tree.leaves[0].judge_metadata, again.token_usage) == (record, output.token_usage)
    guess = JudgeOutput("heuristic", grade_tree(rubric(leaf("a")), lambda _: Verdict(None, "dead")), guess=0.2)
    value = guess.to_dict()
    assert (value["judge_type"], value["score"], value["num_invalid_leaf_nodes"]) == ("simple", 0.0, 1)
    assert read(tmp_path, guess.to_json()) == guess


def faulty(**change):
    """Return a tree of ours with a changed first leaf."""
    tree = graded(EXAMPLE, SCORES).to_json()
    tree["sub_tasks"][0] |= change
    return tree


@pytest.mark.parametrize(
    ("value", "part"),
    [
        (faulty(score=2), "root/a: 'score': .*found 2"),
        (faulty(score=float("nan")), "root/a: 'score': .*found nan"),
        (faulty(weight=10**400), "root/a: 'weight': .*found 1000"),
        (faulty(path="root/B"), "root/B: two nodes have this path"),  # one would hide the other
        (faulty(judge_metadata=reduce(lambda below, _: [below], range(200), 1)), "judge_metadata.*deeper"),
        (reduce(lambda below, _: {**faulty(), "sub_tasks": [below]}, range(99), faulty()), "deeper"),
        ({"paperbench_result": {"judge_output": None}}, "'judge_output' is null"),
        (paperbench_output(num_invalid_leaf_nodes=1), "num_invalid_leaf_nodes is 1"),
        (paperbench_output(graded_task_tree=paperbench_tree() | {"score": 0.7501}), "its leaves give"),
        ({**JudgeOutput("test", graded(EXAMPLE, SCORES)).to_json(), "num_passed": 99}, "num_passed is 99"),
        ({**JudgeOutput("test", graded(EXAMPLE, SCORES)).to_json(), "seconds": 10**400}, "seconds is 1000"),
        (paperbench_node("root", 1, 0.0, *[0] * 20_000), "more than 20000 nodes"),
        ([], "'id': Field required"),
    ],
)
def test_a_file_that_is_no_grading_is_refused(tmp_path, value, part):
    (tmp_path / "grade.json").write_text(json.dumps(value))
    with pytest.raises(GradeError, match=rf"grade\.json: .*{part}"):
        read_grade(tmp_path / "grade.json")


KEYS = [*paperbench_tree(), *JudgeRecord.model_fields, "rank", "calls"]


@given(st.sampled_from([*paperbench_tree(), *paperbench_output(), "judge_output"]), json_values(*KEYS), st.booleans())
def test_any_value_is_read_and_written_or_refused(key, value, is_leaf):
    document = paperbench_output()
    place = document["graded_task_tree"]["sub_tasks"][0] if is_leaf and key in paperbench_tree() else document
    place[key] = value
    with contextlib.suppress(GradeError):
        output = JudgeOutput.from_dict(document)
        to_json(output.to_dict())
        to_json(output.to_json())
        way = way_to(output.graded_task_tree, "1")
        assert all(line.isprintable() for line in criterion_lines(output, way))
