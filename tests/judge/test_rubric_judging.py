import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rubric_trees import leaf, node, rubric, rubrics

from pcgeval.core.files import to_json
from pcgeval.judge.heuristic import heuristic_output
from pcgeval.judge.judges import ChecksJudge, DummyJudge, MixedJudge, RandomJudge
from pcgeval.judge.judging import judge_leaves
from pcgeval.llm.protocol import LlmError
from pcgeval.rubric.grade_files import graded_task_from_json, judge_output_from_json
from pcgeval.rubric.grades import (
    HEURISTIC,
    JudgeOutput,
    Verdict,
    extract_leaf_grades,
    grade_tree,
)
from pcgeval.rubric.record import CallUsage, JudgeRecord, TokenUsage, record_of
from pcgeval.rubric.tree import leaves

WIDE = rubric(node("root", 1, *[leaf(f"leaf-{number}") for number in range(30)]))


class SlowJudge:
    """Takes longer for earlier leaves, and notes how many leaves it has at once."""

    judge_type = "slow"

    def __init__(self, fails_after=None):
        self.at_once = self.most = self.asked = 0
        self.fails_after = fails_after
        self.lock = threading.Lock()

    def verdict(self, task):
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
        return RandomJudge(1).verdict(task)


@given(rubrics, st.integers(1, 8))
def test_the_tree_is_the_same_for_any_concurrency(tree, concurrency):
    one_by_one = grade_tree(tree, RandomJudge(3).verdict)
    assert judge_leaves(tree, RandomJudge(3), concurrency) == one_by_one


@pytest.mark.parametrize("concurrency", [1, 4])
def test_concurrency_is_bounded_and_used(concurrency):
    judge = SlowJudge()
    seen = []
    tree = judge_leaves(WIDE, judge, concurrency, seen.append)
    assert judge.most == concurrency
    assert to_json(tree.to_json()) == to_json(grade_tree(WIDE, RandomJudge(1).verdict).to_json())
    assert [each.number for each in seen] == list(range(1, 31))
    assert {each.total for each in seen} == {30}
    assert sorted(each.leaf.path for each in seen) == sorted(each.path for each in leaves(WIDE))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_model_that_cannot_be_asked_any_more_leaves_the_rest_without_a_grade(concurrency):
    tree = judge_leaves(WIDE, SlowJudge(fails_after=7), concurrency)
    graded = [each for each in extract_leaf_grades(tree) if each.valid_score]
    failed = [each for each in extract_leaf_grades(tree) if not each.valid_score]
    assert (len(graded), len(failed)) == (7, 23)
    assert {each.explanation for each in failed} == {"not judged: the endpoint died."}
    assert {each.score for each in failed} == {None}
    as_zero = judge_leaves(WIDE, SlowJudge(fails_after=0), concurrency, invalid_as_zero=True)
    assert (as_zero.score, extract_leaf_grades(as_zero)[0].valid_score) == (0.0, False)


def test_a_bug_in_a_judge_is_no_grade(monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: shown.append(fault.exc_type))

    class Broken:
        judge_type = "broken"

        def verdict(self, task):
            raise ZeroDivisionError(task.path)

    with pytest.raises(ZeroDivisionError):
        judge_leaves(WIDE, Broken(), 1)
    with pytest.raises(RuntimeError, match="unexpected"):
        judge_leaves(WIDE, Broken(), 2)
    for thread in threading.enumerate():
        if "_work_off" in thread.name:
            thread.join()
    assert shown == [ZeroDivisionError] * 2


def test_leaves_with_a_check_never_reach_the_other_judge():
    class Other(DummyJudge):
        def verdict(self, task):
            asked.append(task.id)
            return super().verdict(task)

    asked: list[str] = []
    check = {"name": "prompt_mentions", "arguments": {"text": "x"}}
    tree = rubric(node("root", 1, leaf("checked", 1, check=check), leaf("judged")))
    mixed = MixedJudge(ChecksJudge("no evidence of any known kind"), Other())
    output = judge_leaves(tree, mixed)
    assert asked == ["judged"]
    assert mixed.judge_type == "dummy"
    assert [each.valid_score for each in extract_leaf_grades(output)] == [False, True]


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
    assert values["graded_task_tree"]["score"] is None
    assert values["num_invalid_leaf_nodes"] == 30
    assert "the endpoint died." in values["warnings"][0]
    assert judge_output_from_json(values) == output
