import random
import re
from functools import partial
from pathlib import Path
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import leaf, node, rubric, rubrics
from submissions_for_tests import write_submission

from pcgeval.checks.gathering import gather_submission
from pcgeval.core.params import RubricParams
from pcgeval.judge import JUDGES
from pcgeval.judge.grading import (
    check_verdict,
    judge_leaves,
    random_verdict,
)
from pcgeval.rubric.grades import (
    JudgeOutput,
    grade_tree,
)
from pcgeval.rubric.tree import leaves

WIDE = rubric(node("root", 1, *[leaf(f"leaf-{number}") for number in range(30)]))


@given(rubrics, st.integers(1, 8))
def test_the_tree_is_the_same_for_any_concurrency(tree, concurrency):
    one_by_one = grade_tree(tree, partial(random_verdict, 3))
    assert judge_leaves(tree, partial(random_verdict, 3), concurrency) == one_by_one


USAGE = {
    "rank": {"calls": 1, "prompt_tokens": 500, "output_tokens": 40, "seconds": 1.5},
    "grade": {"calls": 1, "prompt_tokens": 2000, "output_tokens": 300, "seconds": 10.25},
    "parse": {"calls": 2, "prompt_tokens": 800, "output_tokens": 60, "seconds": 2.001},
}


def output_of(tree, verdict_of):
    return JudgeOutput("test", judge_leaves(tree, verdict_of))


@given(rubrics, st.integers(0, 99), st.randoms(use_true_random=False))
def test_random_verdicts_do_not_depend_on_the_order_of_asking(tree, seed, shuffler: random.Random):
    graded = judge_leaves(tree, partial(random_verdict, seed))
    in_order = {each.path: each.score for each in graded.leaves}
    asked = list(leaves(tree))
    shuffler.shuffle(asked)
    assert {each.path: random_verdict(seed, each).score for each in asked} == in_order
    assert set(in_order.values()) <= {0.0, 1.0}


def test_random_verdicts_differ_by_seed_and_leaf_and_about_half_pass():
    tree = rubric(node("root", 1, *[leaf("same") for _ in range(1000)]))
    passed = [output_of(tree, partial(random_verdict, seed)).num_passed for seed in (1, 2)]
    assert all(430 < each < 570 for each in passed)
    assert [random_verdict(1, each).score for each in leaves(tree)] != [
        random_verdict(2, each).score for each in leaves(tree)
    ]


def test_a_leaf_without_a_check_has_no_grade(tmp_path):
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
    output = output_of(tree, partial(check_verdict, evidence))
    assert (output.score, output.score_bounds.low, output.score_bounds.high) == (1 / 8, 1 / 8, 1.0)
    assert (output.num_leaf_nodes, output.num_passed, output.num_invalid_leaf_nodes) == (3, 1, 2)
    checked, judged, not_run = output.graded_task_tree.leaves
    assert checked.to_json()["judge_metadata"] == {"check": "prompt_mentions", "arguments": {"text": "drop_block"}}
    assert (judged.score, judged.valid_score, judged.explanation) == (0.0, False, "no check; needs a judge")
    assert (not_run.valid_score, not_run.explanation) == (False, "no results: the submission was not run")


def test_params_commands_and_docs_know_the_judges_of_the_table():
    docs = Path(__file__).parents[2] / "docs"
    rows = re.search(r"\| judge \|.*?\n\n", (docs / "grading.md").read_text(), re.DOTALL)[0]
    in_docs = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in rows.splitlines()[2:] if line))
    assert set(in_docs) == set(JUDGES) == set(get_args(RubricParams.model_fields["judge"].annotation))
    assert f"<{'|'.join(JUDGES)}>" in (docs / "commands.md").read_text()
