import random

from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import leaf, node, rubric, rubrics
from submissions_for_tests import write_submission

from pcgeval.checks.gathering import gather_submission
from pcgeval.judge.judges import ChecksJudge, DummyJudge, RandomJudge, judge_rubric
from pcgeval.rubric.grades import extract_leaf_grades
from pcgeval.rubric.tree import leaves


@given(rubrics, st.integers(0, 99), st.randoms(use_true_random=False))
def test_random_verdicts_do_not_depend_on_the_order_of_asking(tree, seed, shuffler: random.Random):
    graded = judge_rubric(tree, RandomJudge(seed)).graded_task_tree
    in_order = {each.path: each.score for each in extract_leaf_grades(graded)}
    asked = list(leaves(tree))
    shuffler.shuffle(asked)
    judge = RandomJudge(seed)
    assert {each.path: judge.verdict(each).score for each in asked} == in_order
    assert set(in_order.values()) <= {0.0, 1.0}


def test_random_verdicts_differ_by_seed_and_leaf_and_about_half_pass():
    tree = rubric(node("root", 1, *[leaf("same") for _ in range(1000)]))
    passed = [judge_rubric(tree, RandomJudge(seed)).num_passed for seed in (1, 2)]
    assert all(430 < each < 570 for each in passed)
    one, other = (RandomJudge(seed) for seed in (1, 2))
    assert [one.verdict(each) for each in leaves(tree)] != [other.verdict(each) for each in leaves(tree)]


def test_dummy_passes_everything():
    output = judge_rubric(rubric(node("root", 1, leaf("a"), leaf("b"))), DummyJudge())
    assert (output.judge_type, output.score, output.num_passed, output.num_leaf_nodes) == ("dummy", 1.0, 2, 2)


def test_a_leaf_without_a_check_is_no_zero(tmp_path):
    write_submission(tmp_path)
    evidence = gather_submission(tmp_path / "data/submissions/team-one", "team-one", 900)
    tree = rubric(
        node(
            "root",
            1,
            leaf("checked", 1, check={"name": "prompt_mentions", "arguments": {"text": "drop_block"}}),
            leaf("judged", 3),
            leaf("not run", 4, check={"name": "mean_stability"}),
        )
    )
    output = judge_rubric(tree, ChecksJudge(evidence))
    assert (output.score, output.score_bounds.low, output.score_bounds.high) == (1.0, 1 / 8, 1.0)
    assert (output.num_leaf_nodes, output.num_passed, output.num_invalid_leaf_nodes) == (3, 1, 2)
    checked, judged, not_run = extract_leaf_grades(output.graded_task_tree)
    assert checked.to_json()["judge_metadata"] == {"check": "prompt_mentions", "arguments": {"text": "drop_block"}}
    assert (judged.score, judged.valid_score, judged.explanation) == (None, False, "no check; needs a judge")
    assert (not_run.valid_score, not_run.explanation) == (False, "no results: the submission was not run")
    assert judge_rubric(tree, ChecksJudge(evidence), invalid_as_zero=True).score == 1 / 8
