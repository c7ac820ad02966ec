"""Scores of trees against their definitions, their shares, and graded trees that are read."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import CODE, RESULT, RUN, leaf, node, rubric, rubrics

from pcgeval import extract_leaf_grades, get_grade_summary
from pcgeval.core.files import to_json
from pcgeval.core.profiles import Price
from pcgeval.rubric.explanation import NodeShare, way_to
from pcgeval.rubric.grade_files import judge_output_from_json
from pcgeval.rubric.grades import GradeError, JudgeOutput, Verdict, grade_tree, graded_task_from_json, rescored
from pcgeval.rubric.record import JudgeRecord
from pcgeval.rubric.text import WIDTH, criterion_lines, tree_lines
from pcgeval.rubric.tree import leaves

EXAMPLE = rubric(
    node("root", 1, leaf("a", 3), node("B", 1, leaf("b1", 1, RUN), leaf("b2", 2, RESULT), leaf("b3", 0, RESULT)))
)
SCORES = {"root/a": 1.0, "root/B/b1": None, "root/B/b2": 0.5, "root/B/b3": 0.0}


def graded(task, scores):
    return grade_tree(task, lambda leaf_: Verdict(scores[leaf_.path], f"{leaf_.id} has {scores[leaf_.path]}"))


@st.composite
def gradings(draw, *, invalid=True):
    """Draw a rubric and a score, or None, for each leaf's path."""
    tree = draw(rubrics)
    score = st.floats(0, 1) | st.sampled_from([0.0, 1.0])
    return tree, {task.path: draw(score | st.none() if invalid else score) for task in leaves(tree)}


def literal_score(task, scores):
    """Work out the weighted mean with exact fractions, straight from its definition."""
    if not task.sub_tasks:
        return Fraction(scores[task.path])
    total = sum(Fraction(below.weight) for below in task.sub_tasks)
    weighted = sum(Fraction(below.weight) * literal_score(below, scores) for below in task.sub_tasks)
    return weighted / total if total else Fraction(0)


@given(gradings(invalid=False), st.integers(-3, 3))
def test_score_is_the_recursive_weighted_mean_whatever_the_scale_of_weights_and_order_of_siblings(grading, exponent):
    def changed(task, factor, step):
        sub_tasks = tuple(changed(below, factor, step) for below in task.sub_tasks[::step])
        return type(task)(**{**vars(task), "weight": task.weight * factor, "sub_tasks": sub_tasks})

    tree, scores = grading
    result = graded(tree, scores)
    assert result.score == pytest.approx(float(literal_score(tree, scores)), abs=1e-12)
    assert result.valid_score
    assert 0 <= result.score <= max(scores.values()) + 1e-12
    assert graded(changed(tree, 2.0**exponent, 1), scores).score == pytest.approx(result.score, rel=1e-12, abs=1e-300)
    assert graded(changed(tree, 1, -1), scores).score == pytest.approx(result.score, abs=1e-12)


@given(gradings())
def test_a_leaf_without_a_grade_counts_as_zero_and_the_bounds_tell_what_it_could_matter(grading):
    """So a submission never gains by a leaf that its judge cannot grade."""
    tree, scores = grading
    output = JudgeOutput("test", graded(tree, scores))
    for bound, instead in ((output.score_bounds.low, 0.0), (output.score_bounds.high, 1.0)):
        assert bound == graded(tree, {path: instead if s is None else s for path, s in scores.items()}).score
    assert output.score == output.score_bounds.low <= output.score_bounds.high + 1e-12
    for task in output.graded_task_tree.leaves:
        assert (task.valid_score, task.score) == (scores[task.path] is not None, scores[task.path] or 0.0)
    assert output.num_invalid_leaf_nodes == list(scores.values()).count(None)
    assert output.num_passed == sum(score is not None and score > 0.5 for score in scores.values())
    assert output.num_leaf_nodes == len(scores)


@given(gradings())
def test_a_grading_is_written_and_read_with_the_same_values_and_its_summary_counts_every_leaf_once(grading):
    tree, scores = grading
    result = graded(tree, scores)
    output = JudgeOutput("test", result)
    again = judge_output_from_json(json.loads(to_json(output.to_json())))
    assert again == output
    assert rescored(again.graded_task_tree) == result
    summary = get_grade_summary(result)
    for count in ("passed", "partial", "failed", "invalid"):
        assert summary[count] == sum(part[count] for part in summary["by_category"].values())
    assert summary["passed"] + summary["failed"] + summary["invalid"] == len(scores)
    assert summary["overall_score"] == result.score
    assert get_grade_summary(output) == get_grade_summary(result.to_json()) == summary
    assert extract_leaf_grades(output.to_json()) == extract_leaf_grades(result)
    assert [grade["path"] for grade in extract_leaf_grades(result)] == [task.path for task in leaves(tree)]


def test_a_worked_example():
    output = JudgeOutput("test", graded(EXAMPLE, SCORES))
    assert output.score == output.score_bounds.low == (3 + (2 * 0.5) / 3) / 4
    assert output.score_bounds.high == (3 + (1 + 2 * 0.5) / 3) / 4
    summary = get_grade_summary(output)
    assert json.loads(to_json(summary)) == summary == {
        "passed": 1,
        "failed": 2,
        "partial": 1,
        "invalid": 1,
        "overall_score": output.score,
        "score": output.score,
        "by_category": {
            CODE: {"score": 1.0, "passed": 1, "partial": 0, "failed": 0, "invalid": 0},
            RUN: {"score": 0.0, "passed": 0, "partial": 0, "failed": 0, "invalid": 1},
            RESULT: {"score": 0.5, "passed": 0, "partial": 1, "failed": 2, "invalid": 0},
        },
    }  # fmt: skip
    grades = extract_leaf_grades(output)
    assert json.loads(to_json(grades)) == grades
    assert (grades[0]["score"], grades[0]["explanation"]) == (1.0, "a has 1.0")
    light = rubric(node("root", 1, leaf("a", 1), leaf("b", 0)))
    ungraded = graded(light, {"root/a": None, "root/b": 1.0})
    assert (ungraded.score, ungraded.valid_score) == (0.0, False)
    weightless = grade_tree(rubric(node("root", 1, leaf("a", 0))), lambda _: Verdict(1.0, ""))
    assert (weightless.score, weightless.valid_score) == (0.0, True)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_score_out_of_range_is_refused_with_its_path(score):
    with pytest.raises(GradeError, match="root/a"):
        grade_tree(EXAMPLE, lambda _: Verdict(score, ""))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("score", 2),
        ("score", float("nan")),
        ("score", "1"),
        ("score", None),
        ("weight", -1),
        ("weight", 10**400),
        ("valid_score", 2),
        ("sub_tasks", None),
        ("explanation", None),
    ],
)
def test_a_faulty_graded_tree_is_refused(key, value):
    tree = graded(EXAMPLE, SCORES).to_json()
    tree["sub_tasks"][0][key] = value
    with pytest.raises(GradeError, match=f"^root/a: '{key}': .*found {repr(value)[:50]}"):
        graded_task_from_json(tree)


def test_figures_that_do_not_fit_the_tree_and_trees_that_are_too_deep_are_refused():
    value = JudgeOutput("test", grade_tree(EXAMPLE, lambda _: Verdict(1.0, ""))).to_json()
    for key, figure in (("num_passed", 99), ("score", 0.5), ("seconds", 10**400)):
        with pytest.raises(GradeError, match=f"{key} is "):
            judge_output_from_json({**value, key: figure})
    value["graded_task_tree"]["sub_tasks"][0]["score"] = 0.5
    with pytest.raises(GradeError, match="its leaves give"):
        judge_output_from_json(value)
    deep = grade_tree(rubric(leaf("a")), lambda _: Verdict(1.0, "")).to_json()
    for _ in range(400):
        deep = {**deep, "sub_tasks": [deep]}
    with pytest.raises(GradeError, match="deeper"):
        graded_task_from_json(deep)


def test_the_price_of_as_many_tokens_as_a_file_may_name_is_a_number():
    most = JudgeRecord.model_validate({"usage": {"grade": {"calls": 1, "prompt_tokens": 10**15, "seconds": 1e15}}})
    value = grade_tree(EXAMPLE, lambda _: Verdict(1.0, "", most)).to_json()
    output = JudgeOutput("simple", graded_task_from_json(value), price=Price(input=1e9, output=1e9))
    assert output.cost == pytest.approx(4e18)
    value["sub_tasks"][0]["judge_metadata"] = {"usage": {"grade": {"prompt_tokens": 10**400}}}
    assert not isinstance(graded_task_from_json(value).sub_tasks[0].judge_metadata, JudgeRecord)  # another tool's


@given(gradings())
def test_the_leaves_add_up_to_the_score_and_every_node_has_a_line_and_is_found(grading):
    tree = graded(*grading)
    parts = list(NodeShare(tree).walk())
    shares = [part for part in parts if part.node.is_leaf]
    assert sum(part.contribution for part in shares) == pytest.approx(tree.score)
    assert sum(part.share for part in shares) <= 1 + 1e-9  # less where all sub-tasks of a node weigh nothing
    lines = list(tree_lines(tree))
    assert all(len(line) <= WIDTH and line.isprintable() for line in lines)
    has_grade = any(task.valid_score for task in tree.leaves)
    assert len(lines) == (len(parts) + len(shares) if has_grade else len({task.explanation for task in tree.leaves}))
    for part in parts[1:]:
        assert way_to(tree, part.number)[-1] == way_to(tree, part.node.path)[-1] == part
        assert way_to(tree, part.number)[0].node == tree


@given(rubrics)
def test_a_share_is_what_the_score_loses_with_the_leaf(task):
    """The definition: let all leaves pass but one."""
    tree = grade_tree(task, lambda _: Verdict(1.0, ""))
    for part in [part for part in NodeShare(tree).walk() if part.node.is_leaf][:4]:
        without = grade_tree(task, lambda leaf_, path=part.node.path: Verdict(float(leaf_.path != path), ""))
        assert part.share == pytest.approx(tree.score - without.score)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda below: (
        st.lists(below, max_size=3)
        | st.dictionaries(
            st.sampled_from(["files", "picked", "notes", "votes", "usage", "rank", "calls", "check", "arguments"]),
            below,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(json_values)
def test_no_metadata_breaks_the_reading_of_a_grade(metadata):
    value = graded(EXAMPLE, SCORES).to_json()
    value["sub_tasks"][0]["judge_metadata"] = metadata
    output = JudgeOutput("other", graded_task_from_json(value))
    assert output.token_usage.tokens >= 0
    assert json.loads(to_json(output.to_json()))
    lines = criterion_lines(output, way_to(output.graded_task_tree, "root/a"))
    assert all(line.isprintable() for line in lines)
