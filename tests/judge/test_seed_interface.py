"""The samples by which others call the judge, word for word but for the line of the import, at a scripted endpoint."""

import asyncio
import json
from pathlib import Path

import pytest
from rubric_trees import CODE, RESULT, leaf, node
from scripted_endpoint import ScriptedEndpoint

from pcgeval import (
    GradedTaskNode,
    JudgeOutput,
    TaskNode,
    extract_leaf_grades,
    get_grade_summary,
    load_rubric,
    run_judge,
)
from pcgeval.core.files import write_text

pytest.importorskip("openai", reason="the extra openai is not installed")
MODEL = "gpt-4o-2024-08-06"


@pytest.fixture
def endpoint(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tree = node("rice", 1, leaf("code", 2), node("results", 1, leaf("table", 1, RESULT), leaf("plot", 1)))
    write_text(tmp_path / "data/papers/rice/rubric.json", json.dumps(tree))
    write_text(tmp_path / "data/papers/rice/paper.md", "# RICE")
    write_text(tmp_path / "home/submission/README.md", "We did it.")
    with ScriptedEndpoint(lists=[MODEL]) as served:
        monkeypatch.setenv("OPENAI_BASE_URL", served.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        yield served


class Environment:
    judge_type = "simple"
    code_only = False

    async def _run_rubric_grading(self, computer, paper_id):
        completer_config = {"model": "gpt-4o-2024-08-06"}
        graded_tree = await run_judge(
            submission_path=Path("home/submission"),
            paper_id=paper_id,
            judge_type=self.judge_type,
            code_only=self.code_only,
            completer_config=completer_config,
            computer=computer,
        )
        return graded_tree  # noqa: RET504 # Contains per-criterion scores


def score_rollout(state):
    grade = state.get("grade")
    if isinstance(grade, dict) and "graded_task_tree" in grade:
        tree = grade["graded_task_tree"]
        return tree.score if isinstance(tree, GradedTaskNode) else tree.get("score", 0.0)
    return 0.0


def test_the_samples(endpoint):
    output = asyncio.run(Environment()._run_rubric_grading(None, "rice"))
    assert isinstance(output, JudgeOutput)
    assert endpoint.asked[0]["model"] == MODEL
    state = {"grade": output.to_json()}
    assert {"score", "graded_task_tree", "num_leaf_nodes", "num_passed", "judge_type"} <= set(state["grade"])
    assert state["grade"]["judge_type"] == "simple"
    assert (
        score_rollout(state) == score_rollout({"grade": {"graded_task_tree": output.graded_task_tree}}) == output.score
    )

    leaf_grades = extract_leaf_grades(state["grade"]["graded_task_tree"])
    assert [grade["id"] for grade in leaf_grades] == ["code", "table", "plot"]
    assert all({"id", "requirements", "score", "explanation"} <= set(grade) for grade in leaf_grades)
    summary = get_grade_summary(state["grade"]["graded_task_tree"])
    assert summary["overall_score"] == output.score
    assert summary["passed"] == output.num_passed == sum(grade["score"] > 0.5 for grade in leaf_grades)
    assert summary["passed"] + summary["failed"] == output.num_leaf_nodes
    assert set(summary["by_category"]) == {CODE, RESULT}
    assert isinstance(load_rubric(Path("data/papers/rice/rubric.json")), TaskNode)


@pytest.mark.parametrize("judge_type", ["random", "dummy"])
def test_judges_for_testing_need_no_endpoint(endpoint, judge_type):
    environment = Environment()
    environment.judge_type = judge_type
    output = asyncio.run(environment._run_rubric_grading(None, "rice"))
    assert (output.judge_type, endpoint.asked) == (judge_type, [])
