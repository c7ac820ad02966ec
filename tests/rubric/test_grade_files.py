"""Files of a grading: grade.json, and those of PaperBench, read and written."""

import contextlib
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import CODE, leaf, node, rubric, rubrics

import pcgeval
from pcgeval.core.files import to_json, write_json
from pcgeval.rubric.grade_files import judge_output_from_json, paperbench_json, read_grade, read_graded_tree
from pcgeval.rubric.grades import GradeError, JudgeOutput, Verdict, grade_tree, rescored
from pcgeval.rubric.record import CallUsage, JudgeRecord, TokenUsage, VoteRecord
from pcgeval.rubric.tree import FINEGRAINED_CATEGORIES, leaves, prune

PAPERBENCH = ("Code Development", "Code Execution", "Result Analysis", "Subtree")


def paperbench_node(id_, weight, score, *sub_tasks, valid=True):
    """A node as PaperBench's GradedTaskNode.to_dict writes it."""
    answer = {"full_judge_response": "Yes.", "token_usage": {"o3": {"in": 5, "out": 1}}}
    return {
        "id": id_,
        "requirements": f"Do {id_}.",
        "weight": weight,
        "sub_tasks": list(sub_tasks),
        "score": score,
        "valid_score": valid,
        "explanation": "seen",
        "task_category": None if sub_tasks else CODE,
        "judge_metadata": None if sub_tasks else answer,
    }


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


def check_as_paperbench_does(value, is_graded=True):
    """What PaperBench's JudgeOutput.from_dict, GradedTaskNode.from_dict and TaskNode check."""
    if is_graded:
        for key in ("judge_type", "score", "num_leaf_nodes", "num_invalid_leaf_nodes", "graded_at"):
            assert value[key] is not None
        assert all(usage.keys() == {"in", "out"} for usage in (value["token_usage"] or {}).values())
        assert value["completer_config"] is None or set(value["completer_config"]) == {"model"}
        value = value["graded_task_tree"]
    assert {"id", "requirements"} <= value.keys()
    assert isinstance(value["weight"], int | float)
    assert value["weight"] >= 0
    assert bool(value["sub_tasks"]) != (value["task_category"] in PAPERBENCH)
    assert not (value["sub_tasks"] and value["task_category"])
    assert value["finegrained_task_category"] in {None, *FINEGRAINED_CATEGORIES}
    assert 0 <= value["score"] <= 1
    assert (type(value["valid_score"]), type(value["explanation"])) == (bool, str)
    usage = (value["judge_metadata"] or {}).get("token_usage") or {}
    assert all(tokens.keys() == {"in", "out"} for tokens in usage.values())
    for below in value["sub_tasks"]:
        check_as_paperbench_does(below, is_graded=False)


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
    ids=["output", "judge_output", "paperbench_result", "pb_result", "model_name", "monitored", "blacklisted"],
)
def test_the_files_of_a_run_of_paperbench_are_read(tmp_path, run, blacklist):
    output = read(tmp_path, run)
    assert (output.judge_type, output.model, output.score) == ("simple", "o3-mini-2025-01-31", 0.75)
    assert output.graded_at == "2025-04-02T10-20-30-GMT"
    assert (output.blacklist, output.is_blacklisted) == (blacklist, blacklist is not None)
    assert judge_output_from_json(json.loads(to_json(output.to_json()))) == output
    assert [task.path for task in read_graded_tree(tmp_path / "grade.json").leaves] == ["root/a", "root/b"]
    assert [grade["score"] for grade in pcgeval.extract_leaf_grades(run)] == [1.0, 0.0]
    assert pcgeval.get_grade_summary(run)["overall_score"] == 0.75


def test_a_score_that_paperbench_calls_invalid_and_counts_stays():
    tree = paperbench_tree()
    tree["sub_tasks"][0]["valid_score"] = tree["valid_score"] = False
    value = paperbench_json(judge_output_from_json(paperbench_output(graded_task_tree=tree, num_invalid_leaf_nodes=1)))
    assert (value["score"], value["graded_task_tree"]["sub_tasks"][0]["score"]) == (0.75, 1.0)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4) | st.just("\ud800"),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from([*paperbench_tree(), "x"]), below),
    max_leaves=8,
)


@given(st.sampled_from([*paperbench_tree(), *paperbench_output(), "judge_output"]), json_values, st.booleans())
def test_any_value_is_read_and_written_or_refused(key, value, is_leaf):
    document = paperbench_output()
    place = document["graded_task_tree"]["sub_tasks"][0] if is_leaf and key in paperbench_tree() else document
    place[key] = value
    with contextlib.suppress(GradeError):
        to_json(paperbench_json(judge_output_from_json(document)))
        to_json(judge_output_from_json(document).to_json())
        pcgeval.get_grade_summary(document)


@pytest.mark.parametrize(("valid", "is_valid"), [(1.0, True), (True, True), (1, True), (0.0, False), (False, False)])
def test_a_bare_tree_is_read_and_valid_score_may_be_a_number(tmp_path, valid, is_valid):
    output = read(tmp_path, paperbench_tree(valid))
    assert (output.judge_type, output.score) == ("unknown", 0.75)  # what is not valid counts as 0
    assert output.graded_task_tree.leaves[1].valid_score is is_valid
    assert output.num_invalid_leaf_nodes == (not is_valid)


def test_keys_may_be_missing_or_those_of_another_tool(tmp_path):
    tree = paperbench_tree()
    for task in tree["sub_tasks"]:
        for key in ("valid_score", "explanation", "judge_metadata"):
            del task[key]
        task |= {"another": {"key": [1]}, "path": 5}
    output = read(tmp_path, {"graded_task_tree": tree, "example_id": "rice/0"})
    assert (output.score, output.num_invalid_leaf_nodes) == (0.75, 0)
    assert read(tmp_path, paperbench_output(votes="many", warnings=5, rubric="x")).votes == 1
    tree = paperbench_tree() | {"score": 0.75 - 2e-16}  # a sum of another order
    assert read(tmp_path, paperbench_output(graded_task_tree=tree)).score == tree["score"]


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ({"paperbench_result": {"judge_output": None}}, "'judge_output' is null"),
        (paperbench_output(num_invalid_leaf_nodes=1), "num_invalid_leaf_nodes is 1"),
        (paperbench_output(score=1.0), "score is 1.0"),
        (paperbench_output(graded_task_tree=None), "'id': Field required"),
        (paperbench_output(graded_task_tree=paperbench_tree() | {"score": 0.7501}), "its leaves give"),
        (paperbench_output(graded_at=5), "'graded_at': .* found 5"),
        ([], "'id': Field required"),
        ({"judge_output": [1]}, "'id': Field required"),
    ],
)
def test_a_file_that_is_no_grading_is_refused(tmp_path, value, part):
    with pytest.raises(GradeError, match=rf"grade\.json: .*{part}"):
        read(tmp_path, value)


def test_a_file_nested_too_deep_or_no_file_is_refused(tmp_path):
    (tmp_path / "deep.json").write_text('{"judge_output":' * 100_000 + "1" + "}" * 100_000)
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("deep.json", "pipe.json", "none.json"):
        with pytest.raises(pcgeval.PcgevalError, match=name):
            read_grade(tmp_path / name)


@given(rubrics, st.data())
def test_what_is_written_for_paperbench_is_read_there_and_here_with_the_same_scores(tree, data):
    scores = {task.path: data.draw(st.sampled_from([None, 0.0, 0.5, 1.0])) for task in leaves(tree)}
    output = JudgeOutput("checks", grade_tree(tree, lambda task: Verdict(scores[task.path], "because")))
    value = json.loads(to_json(paperbench_json(output)))
    check_as_paperbench_does(value)
    again = judge_output_from_json(value)
    assert again.score == value["score"] == output.score_bounds.low
    assert again.num_invalid_leaf_nodes == output.num_invalid_leaf_nodes
    assert [task.graded_score for task in again.graded_task_tree.leaves] == list(scores.values())
    assert rescored(again.graded_task_tree).score == again.score
    assert paperbench_json(again) == value


def test_the_record_of_a_model_stays_and_paperbench_finds_its_answer_and_tokens():
    usage = TokenUsage(grade=CallUsage(calls=2, prompt_tokens=30, output_tokens=4))
    record = JudgeRecord(votes=(VoteRecord(score=1.0, answer="# Score\n1"),), usage=usage)
    tree = prune(rubric(node("root", 1, leaf("a"), node("more", 1, leaf("b")))), 2)
    output = JudgeOutput("simple", grade_tree(tree, lambda _: Verdict(1.0, "", record)), model="gpt-4o")
    value = paperbench_json(output)
    check_as_paperbench_does(value)
    assert (value["completer_config"], value["token_usage"]) == ({"model": "gpt-4o"}, {"gpt-4o": {"in": 60, "out": 8}})
    a, more = value["graded_task_tree"]["sub_tasks"]
    assert (a["task_category"], more["task_category"]) == (CODE, "Subtree")
    assert a["judge_metadata"]["full_judge_response"] == "# Score\n1"
    assert a["judge_metadata"]["token_usage"] == {"gpt-4o": {"in": 30, "out": 4}}
    again = judge_output_from_json(json.loads(json.dumps(value)))
    assert again.graded_task_tree.leaves[0].judge_metadata == record
    assert again.token_usage == output.token_usage
    guess = JudgeOutput("heuristic", grade_tree(rubric(leaf("a")), lambda _: Verdict(None, "dead")), guess=0.2)
    value = paperbench_json(guess)
    assert (value["judge_type"], value["score"], value["num_invalid_leaf_nodes"]) == ("simple", 0.0, 1)
