import json
from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from rubric_trees import CODE, RESULT, RUN, leaf, node, rubric, rubrics

import pcgeval
from pcgeval.core.files import to_json
from pcgeval.core.profiles import Price
from pcgeval.rubric.grade_files import judge_output_from_json
from pcgeval.rubric.grades import (
    GradeError,
    JudgeOutput,
    Verdict,
    extract_leaf_grades,
    get_grade_summary,
    grade_tree,
    graded_task_from_json,
    rescored,
)
from pcgeval.rubric.record import JudgeRecord
from pcgeval.rubric.text import tree_lines
from pcgeval.rubric.tree import leaves

EXAMPLE = rubric(
    node("root", 1, leaf("a", 3), node("B", 1, leaf("b1", 1, RUN), leaf("b2", 2, RESULT), leaf("b3", 0, RESULT)))
)


def verdicts_of(scores):
    return lambda task: Verdict(scores[task.path], f"{task.id} has {scores[task.path]}")


@st.composite
def gradings(draw, *, invalid=True):
    """Draw a rubric and a score, or None, for each leaf's path."""
    tree = draw(rubrics)
    score = st.floats(0, 1) | st.sampled_from([0.0, 1.0])
    scores = {each.path: draw(score | st.none() if invalid else score) for each in leaves(tree)}
    return tree, scores


def literal_score(task, scores):
    """Work out the weighted mean with exact fractions, straight from its definition."""
    if not task.sub_tasks:
        return Fraction(scores[task.path])
    total = sum(Fraction(each.weight) for each in task.sub_tasks)
    weighted = sum(Fraction(each.weight) * literal_score(each, scores) for each in task.sub_tasks)
    return weighted / total if total else Fraction(0)


@given(gradings(invalid=False))
def test_score_is_the_recursive_weighted_mean(grading):
    tree, scores = grading
    graded = grade_tree(tree, verdicts_of(scores))
    assert graded.score == pytest.approx(float(literal_score(tree, scores)), abs=1e-12)
    assert graded.valid_score


@given(gradings(invalid=False))
def test_score_lies_between_the_leaves_unless_weights_vanish(grading):
    tree, scores = grading
    graded = grade_tree(tree, verdicts_of(scores))
    assert graded.score <= max(scores.values()) + 1e-12
    assert graded.score >= 0
    if "0, because" not in to_json(graded.to_json()):
        assert graded.score >= min(scores.values()) - 1e-12


@given(gradings(), st.integers(-3, 3))
def test_score_does_not_change_when_all_weights_are_scaled(grading, exponent):
    def scaled(task):
        weight = task.weight * 2.0**exponent
        return type(task)(**{**vars(task), "weight": weight, "sub_tasks": tuple(map(scaled, task.sub_tasks))})

    tree, scores = grading
    one, other = (grade_tree(each, verdicts_of(scores)).score for each in (tree, scaled(tree)))
    assert one == other or one == pytest.approx(other, abs=1e-300)  # products below that lose digits


@given(gradings())
def test_score_does_not_depend_on_the_order_of_siblings(grading):
    def mirrored(task):
        return type(task)(**{**vars(task), "sub_tasks": tuple(map(mirrored, reversed(task.sub_tasks)))})

    tree, scores = grading
    one, other = (grade_tree(each, verdicts_of(scores)).score for each in (tree, mirrored(tree)))
    assert one == other or one == pytest.approx(other, abs=1e-12)


@given(gradings())
def test_bounds_are_the_scores_with_invalid_leaves_as_0_and_as_1(grading):
    tree, scores = grading
    output = JudgeOutput("test", grade_tree(tree, verdicts_of(scores)))
    for bound, instead in ((output.score_bounds.low, 0.0), (output.score_bounds.high, 1.0)):
        filled = {path: instead if score is None else score for path, score in scores.items()}
        assert bound == grade_tree(tree, verdicts_of(filled)).score
    assert output.score_bounds.low - 1e-12 <= output.score <= output.score_bounds.high + 1e-12
    assert output.num_invalid_leaf_nodes == list(scores.values()).count(None)
    assert output.num_passed == sum(score is not None and score > 0.5 for score in scores.values())
    assert output.num_leaf_nodes == len(scores)


@given(gradings())
def test_a_leaf_without_a_grade_counts_as_zero(grading):
    """So a submission never gains by a leaf that its judge cannot grade."""
    tree, scores = grading
    output = JudgeOutput("test", grade_tree(tree, verdicts_of(scores)))
    zeros = {path: score or 0.0 for path, score in scores.items()}
    assert output.score == output.score_bounds.low == grade_tree(tree, verdicts_of(zeros)).score
    for graded in output.graded_task_tree.leaves:
        assert graded.valid_score == (scores[graded.path] is not None)
        assert graded.score == zeros[graded.path]


@given(gradings())
def test_json_round_trip(grading):
    tree, scores = grading
    output = JudgeOutput("test", grade_tree(tree, verdicts_of(scores)))
    again = judge_output_from_json(json.loads(to_json(output.to_json())))
    assert again == output
    assert rescored(again.graded_task_tree) == output.graded_task_tree


@given(gradings())
def test_summary_counts_every_leaf_once(grading):
    tree, scores = grading
    graded = grade_tree(tree, verdicts_of(scores))
    summary = get_grade_summary(graded)
    parts = summary["by_category"].values()
    for count in ("passed", "partial", "failed", "invalid"):
        assert summary[count] == sum(part[count] for part in parts)
    for part in (summary, *parts):
        assert part["passed"] + part["failed"] + part["invalid"] > 0
        assert part["partial"] <= part["passed"] + part["failed"]
    assert summary["passed"] + summary["failed"] + summary["invalid"] == len(scores)
    assert summary["overall_score"] == graded.score
    assert get_grade_summary(JudgeOutput("test", graded)) == get_grade_summary(graded.to_json()) == summary
    assert extract_leaf_grades(JudgeOutput("test", graded).to_json()) == extract_leaf_grades(graded)
    assert [grade["path"] for grade in extract_leaf_grades(graded)] == [each.path for each in leaves(tree)]


def test_a_worked_example():
    scores = {"root/a": 1.0, "root/B/b1": None, "root/B/b2": 0.5, "root/B/b3": 0.0}
    output = JudgeOutput("test", grade_tree(EXAMPLE, verdicts_of(scores)))
    assert output.score == output.score_bounds.low == (3 + (2 * 0.5) / 3) / 4
    assert output.score_bounds.high == (3 + (1 + 2 * 0.5) / 3) / 4
    assert (
        output.graded_task_tree.sub_tasks[1].explanation == "weighted mean of 2 sub-tasks; 1 without a grade count as 0"
    )
    summary = get_grade_summary(output.graded_task_tree)
    assert summary == {
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
    }
    assert json.loads(to_json(summary)) == summary


def test_the_leaves_of_the_public_interface_are_values_of_json():
    grades = pcgeval.extract_leaf_grades(grade_tree(EXAMPLE, lambda _: Verdict(0.5, "half")))
    assert type(grades) is list
    assert json.loads(to_json(grades)) == grades
    assert [(grade["path"], grade["score"], grade["explanation"]) for grade in grades][:2] == [
        ("root/a", 0.5, "half"),
        ("root/B/b1", 0.5, "half"),
    ]


def test_a_node_of_which_only_a_weightless_leaf_was_graded_has_no_grade():
    tree = rubric(node("root", 1, leaf("a", 1), leaf("b", 0)))
    graded = grade_tree(tree, verdicts_of({"root/a": None, "root/b": 1.0}))
    assert (graded.score, graded.valid_score) == (0.0, False)


def test_weights_that_sum_to_zero_score_zero():
    graded = grade_tree(rubric(node("root", 1, leaf("a", 0), leaf("b", 0))), lambda _: Verdict(1.0, ""))
    assert (graded.score, graded.valid_score) == (0.0, True)


@pytest.mark.parametrize("score", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_score_out_of_range_is_refused_with_its_path(score):
    with pytest.raises(GradeError, match="root/a"):
        grade_tree(EXAMPLE, lambda _: Verdict(score, ""))


def test_all_leaves_may_have_as_many_tokens_as_one_may():
    most = {"usage": {"grade": {"calls": 1, "prompt_tokens": 10**15, "seconds": 1e15}}}
    value = grade_tree(EXAMPLE, lambda _: Verdict(1.0, "", JudgeRecord.model_validate(most))).to_json()
    output = JudgeOutput("simple", graded_task_from_json(value), price=Price(input=1e9, output=1e9))
    total = output.token_usage.total
    assert (total.prompt_tokens, output.cost) == (total.calls * 10**15, pytest.approx(total.calls * 1e18))
    value["sub_tasks"][0]["judge_metadata"] = {"usage": {"grade": {"prompt_tokens": 10**400}}}
    metadata = graded_task_from_json(value).sub_tasks[0].judge_metadata
    assert not isinstance(metadata, JudgeRecord)  # but any other tool's


def test_metadata_that_is_no_json_is_read_as_text():
    value = grade_tree(EXAMPLE, lambda _: Verdict(1.0, "")).to_json()
    value["sub_tasks"][0]["judge_metadata"] = {"loss": float("nan"), "best": [float("inf")]}
    graded = graded_task_from_json(value)
    assert graded.sub_tasks[0].judge_metadata == {"loss": "NaN", "best": ["Infinity"]}
    assert graded_task_from_json(json.loads(to_json(graded.to_json()))) == graded
    value["sub_tasks"][0]["judge_metadata"] = reduce(lambda below, _: [below], range(100_000), [])
    assert "too deep" in graded_task_from_json(value).sub_tasks[0].judge_metadata


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"score": 2}, "'score' is 2"),
        ({"score": float("nan")}, "'score' is nan"),
        ({"score": "1"}, "'score' is '1'"),
        ({"score": None}, "'score' is None"),
        ({"weight": -1}, "'weight' is -1"),
        ({"weight": float("inf")}, "'weight' is inf"),
        ({"weight": 10**400}, "'weight' is 1000"),
        ({"valid_score": 2}, "'valid_score' is 2"),
        ({"valid_score": "true"}, "'valid_score' is 'true'"),
        ({"sub_tasks": None}, "'sub_tasks' is None"),
        ({"explanation": None}, "'explanation' is None"),
    ],
)
def test_a_faulty_graded_tree_is_refused(change, part):
    value = grade_tree(EXAMPLE, lambda _: Verdict(1.0, "")).to_json()
    value["sub_tasks"][0].update(change)
    with pytest.raises(GradeError) as error:
        graded_task_from_json(value)
    assert str(error.value).startswith("root/a: ")
    assert part in str(error.value)


def test_figures_that_do_not_fit_the_tree_are_refused():
    value = JudgeOutput("test", grade_tree(EXAMPLE, lambda _: Verdict(1.0, ""))).to_json()
    with pytest.raises(GradeError, match="num_passed is 99"):
        judge_output_from_json({**value, "num_passed": 99})
    with pytest.raises(GradeError, match="seconds is 1000"):
        judge_output_from_json({**value, "seconds": 10**400})
    assert judge_output_from_json({**value, "votes": 10**400}).votes == 10**400
    value["graded_task_tree"]["sub_tasks"][0]["score"] = 0.5
    with pytest.raises(GradeError, match="its leaves give"):
        judge_output_from_json(value)
    with pytest.raises(GradeError, match="judge_type"):
        judge_output_from_json([])


def test_a_deep_graded_tree_is_refused():
    value = grade_tree(rubric(leaf("a")), lambda _: Verdict(1.0, "")).to_json()
    for _ in range(400):
        value = {**value, "sub_tasks": [value]}
    with pytest.raises(GradeError, match="deeper"):
        graded_task_from_json(value)


@given(gradings())
def test_rendered_tree_has_a_line_a_node_and_one_more_a_leaf(grading):
    tree, scores = grading
    assume(all(task.requirements.isprintable() for task in leaves(tree)))
    graded = grade_tree(tree, verdicts_of(scores))
    lines = list(tree_lines(graded, width=60))
    assert len(lines) == to_json(graded.to_json()).count('"sub_tasks"') + len(scores)
    assert all(len(line) <= 60 for line in lines)


def test_rendered_tree_shows_scores_and_reasons_and_no_control_characters():
    tree = rubric(node("root", 1, leaf("a", 2), {**leaf("b"), "requirements": "clear\x1b[2J\nall"}))
    graded = grade_tree(tree, lambda task: Verdict(1.0 if task.id == "a" else None, "no\x07 judge"))
    assert list(tree_lines(graded)) == [
        "0.667 x1  All of root.",
        "  1.000 x2  Do a.",
        "        no  judge",
        "  ----- x1  clear [2J all",
        "        no  judge",
    ]
