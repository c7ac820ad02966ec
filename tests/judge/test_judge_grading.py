import json
import random
import threading
import time
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import leaf, node, rubric, rubrics
from scripted_judge import ScriptedModel
from submissions_for_tests import write_submission

from pcgeval.checks.evidence import PaperEvidence
from pcgeval.checks.gathering import gather_submission
from pcgeval.core.files import to_json
from pcgeval.judge.grading import (
    check_verdict,
    dummy_verdict,
    grade,
    heuristic_output,
    judge_leaves,
    random_verdict,
)
from pcgeval.judge.settings import GradingTask, JudgeSettings
from pcgeval.llm.call_log import CallLog
from pcgeval.llm.protocol import LlmError
from pcgeval.rubric.grade_files import judge_output_from_json
from pcgeval.rubric.grades import (
    HEURISTIC,
    JudgeOutput,
    Verdict,
    grade_tree,
    graded_task_from_json,
)
from pcgeval.rubric.record import CallUsage, JudgeRecord, TokenUsage, record_of
from pcgeval.rubric.tree import leaves

WIDE = rubric(node("root", 1, *[leaf(f"leaf-{number}") for number in range(30)]))


class SlowJudge:
    """Takes longer for earlier leaves, and notes how many leaves it has at once."""

    def __init__(self, fails_after=None):
        self.at_once = self.most = self.asked = 0
        self.fails_after = fails_after
        self.lock = threading.Lock()

    def __call__(self, task):
        with self.lock:
            self.at_once += 1
            self.asked += 1
            self.most = max(self.most, self.at_once)
            fails = self.fails_after is not None and self.asked > self.fails_after
        time.sleep(0.002 * (hash(task.path) % 5))
        with self.lock:
            self.at_once -= 1
        if fails:
            raise LlmError("the endpoint died.")
        return random_verdict(1, task)


@given(rubrics, st.integers(1, 8))
def test_the_tree_is_the_same_for_any_concurrency(tree, concurrency):
    one_by_one = grade_tree(tree, partial(random_verdict, 3))
    assert judge_leaves(tree, partial(random_verdict, 3), concurrency) == one_by_one


@pytest.mark.parametrize("concurrency", [1, 4])
def test_concurrency_is_bounded_and_used(concurrency):
    judge = SlowJudge()
    seen = []
    tree = judge_leaves(WIDE, judge, concurrency, seen.append)
    assert judge.most == concurrency
    assert to_json(tree.to_json()) == to_json(grade_tree(WIDE, partial(random_verdict, 1)).to_json())
    assert [each.number for each in seen] == list(range(1, 31))
    assert {each.total for each in seen} == {30}
    assert sorted(each.leaf.path for each in seen) == sorted(each.path for each in leaves(WIDE))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_model_that_cannot_be_asked_any_more_leaves_the_rest_without_a_grade(concurrency):
    tree = judge_leaves(WIDE, SlowJudge(fails_after=7), concurrency)
    graded = [each for each in tree.leaves if each.valid_score]
    failed = [each for each in tree.leaves if not each.valid_score]
    assert (len(graded), len(failed)) == (7, 23)
    assert {each.explanation for each in failed} == {"not judged: the endpoint died."}
    assert {each.score for each in failed} == {0.0}


@pytest.mark.parametrize("concurrency", [1, 2])
def test_a_bug_in_a_judge_is_no_grade(concurrency):
    def broken(task):
        raise ZeroDivisionError(task.path)

    with pytest.raises(ZeroDivisionError):
        judge_leaves(WIDE, broken, concurrency)


def test_leaves_with_a_check_never_reach_the_model(tmp_path):
    check = {"name": "prompt_mentions", "arguments": {"text": "x"}}
    tree = rubric(node("root", 1, leaf("checked", 1, check=check), leaf("judged")))
    (tmp_path / "README.md").write_text("We did it.")
    task = GradingTask(tree, tmp_path, PaperEvidence(tmp_path))
    settings = JudgeSettings(judge="simple", model={"backend": "ollama", "name": "m:1"})
    output = grade(task, settings, CallLog(None), open_backend=lambda _: ScriptedModel())
    assert output.judge_type == "simple"
    checked, judged = output.graded_task_tree.leaves
    assert (checked.valid_score, judged.valid_score) == (False, True)
    assert judged.judge_metadata.usage.grade.calls == output.token_usage.grade.calls == 1


USAGE = {
    "rank": {"calls": 1, "prompt_tokens": 500, "output_tokens": 40, "seconds": 1.5},
    "grade": {"calls": 1, "prompt_tokens": 2000, "output_tokens": 300, "seconds": 10.25},
    "parse": {"calls": 2, "prompt_tokens": 800, "output_tokens": 60, "seconds": 2.001},
}


def test_usage_is_added_up_over_the_leaves_by_kind():
    tree = grade_tree(WIDE, lambda _: Verdict(1.0, "", JudgeRecord(usage=USAGE)))
    usage = JudgeOutput("simple", tree).token_usage
    assert usage.parse == CallUsage(calls=60, prompt_tokens=24_000, output_tokens=1800, seconds=60.03)
    assert usage.total.calls == 120
    assert usage.tokens == 30 * 3700
    assert JudgeOutput("simple", tree).to_json()["token_usage"]["rank"]["prompt_tokens"] == 15_000
    assert JudgeOutput("simple", tree).to_json()["seconds"] == usage.total.seconds == pytest.approx(30 * 13.751)


@pytest.mark.parametrize(
    "metadata",
    [None, 1, [], {}, {"usage": 3}, {"usage": {"rank": 4}}, {"usage": {"rank": {"calls": "x"}}}, {"usage": {"x": {}}}],
)
def test_metadata_of_another_kind_cost_nothing(metadata):
    value = {**grade_tree(WIDE, lambda _: Verdict(1.0, "")).to_json(), "judge_metadata": metadata}
    assert record_of(graded_task_from_json(value).judge_metadata).usage == TokenUsage()


def test_a_grading_by_a_model_survives_the_way_through_json():
    tree = grade_tree(WIDE, lambda _: Verdict(1.0, "", JudgeRecord(usage=USAGE)))
    output = JudgeOutput("simple", tree, "m:1", "ab" * 32, "p1", 3, warnings=("something",))
    assert judge_output_from_json(json.loads(to_json(output.to_json()))) == output


@pytest.mark.parametrize(("has_reproduced", "guess"), [(True, 0.5), (False, 0.2)])
def test_the_heuristic_is_a_guess_with_a_warning(has_reproduced, guess):
    tree = judge_leaves(WIDE, SlowJudge(fails_after=0))
    output = heuristic_output(tree, has_reproduced=has_reproduced)
    values = json.loads(to_json(output.to_json()))
    assert (values["judge_type"], values["score"], values["score_bounds"]) == (HEURISTIC, guess, [0.0, 1.0])
    assert values["graded_task_tree"]["valid_score"] is False
    assert values["num_invalid_leaf_nodes"] == 30
    assert "the endpoint died." in values["warnings"][0]
    assert judge_output_from_json(values) == output


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


def test_dummy_passes_everything():
    output = output_of(rubric(node("root", 1, leaf("a"), leaf("b"))), dummy_verdict)
    assert (output.score, output.num_passed, output.num_leaf_nodes) == (1.0, 2, 2)


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
