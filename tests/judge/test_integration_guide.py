"""The Python lines of a guide to PaperBench's grading in verifiers run with their imports changed to pcgeval."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from judged_attempt import ATTEMPT, FakeComputer, graded, write_files, write_paper
from model_servers import ScriptedEndpoint
from rubric_trees import CODE, RESULT, RUN, leaf, node

from pcgeval import (
    DummyJudge,
    GradedTaskNode,
    JudgeOutput,
    JudgeSettings,
    OpenAICompletionsTurnCompleter,
    PaperBenchRubric,
    PcgevalError,
    RandomJudge,
    SimpleJudge,
    TaskNode,
    load_environment,
    load_rubric,
)
from pcgeval.judge.settings import GradingError

RUBRIC = node("root", 1, leaf("code", 2, CODE), node("rest", 1, leaf("run", 1, RUN), leaf("result", 1, RESULT)))
JUDGES = {"random": RandomJudge, "dummy": DummyJudge}

IMPORTS = """\
# Grading infrastructure
from pcgeval import run_judge, JudgeOutput
from pcgeval import GradedTaskNode
from pcgeval import TaskNode

# For SimpleJudge
from pcgeval import (
    OpenAICompletionsTurnCompleter,
)
"""
METHODS = """\
# NEW: Full rubric-based grading
async def _run_rubric_grading(self, computer, paper_id):
    graded_tree = await run_judge(
        submission_path=Path("/home/submission"),
        paper_id=paper_id,
        judge_type=self.judge_type,
        code_only=self.code_only,
        completer_config=completer_config,
        computer=computer,
    )
    return graded_tree  # Contains per-criterion scores
"""
REWARD = """\
class PaperBenchRubric(Rubric):
    async def score_rollout(self, state: State) -> float:
        grade = state.get("grade")
        if isinstance(grade, dict) and "graded_task_tree" in grade:
            tree = grade["graded_task_tree"]
            return tree.score if isinstance(tree, GradedTaskNode) else tree.get("score", 0.0)
        return 0.0
"""
USAGE = """\
# Load environment with LLM-based grading
env = load_environment(
    max_steps=50,
    code_only=False,
    paper_ids=["rice"],  # Optional filter
    judge_type="simple",
    judge_model="gpt-4o-2024-08-06",
)

# For testing (faster, no API calls)
env = load_environment(
    judge_type="random",  # or "dummy"
)
"""
DETAILS = """\
from pcgeval import extract_leaf_grades, get_grade_summary

# Get per-criterion breakdown
leaf_grades = extract_leaf_grades(state["grade"]["graded_task_tree"])
# [{"id": "...", "requirements": "...", "score": 1, "explanation": "..."}, ...]

# Get summary statistics
summary = get_grade_summary(state["grade"]["graded_task_tree"])
# {"overall_score": 0.75, "passed": 11, "failed": 4, "by_category": {...}}
"""


@pytest.fixture(autouse=True)
def attempt():
    write_paper(RUBRIC)
    write_files({"README.md": "We did it.", "main.py": "print(1)", "reproduce.sh": "true"})


def execute(*blocks, **names):
    """Run lines of the guide with the names that it takes from elsewhere, and return all names."""
    exec("".join(blocks), names)  # noqa: S102 - they stand above
    return names


def run(judge_type, config=None, *, code_only=False, computer=None):
    """Grade by the method of the guide; the path in it leads to the attempt."""
    names = execute(IMPORTS, METHODS, Path=lambda _: ATTEMPT, completer_config=config)
    self = SimpleNamespace(judge_type=judge_type, code_only=code_only)
    return asyncio.run(names["_run_rubric_grading"](self, computer, "toy"))


@pytest.mark.parametrize("name", JUDGES)
def test_the_judges_for_tests_grade_without_a_model(name):
    graded_tree = run(name, OpenAICompletionsTurnCompleter.Config(model="gpt-4o"), computer=FakeComputer())
    assert isinstance(graded_tree, JudgeOutput)
    assert [task.id for task in graded_tree.sub_tasks] == ["code", "rest"]
    assert graded_tree.score == 1 or name == "random"
    assert run(JUDGES[name], computer=FakeComputer()) == graded_tree


@pytest.mark.parametrize("kind", ["class", "other object", "mapping"])
def test_a_completers_config_is_the_model_of_the_judge(kind, monkeypatch):
    pytest.importorskip("openai", reason="the extra openai is not installed")
    settings = {"model": "my-model", "temperature": 0.25, "max_tokens": 900, "top_p": 0.5, "reasoning_effort": None}

    class Elsewhere:
        """A config of the real completer has more fields, some of which say that they are not given."""

        response_format, retry_config = object(), object()

        def __init__(self):
            vars(self).update(settings, reasoning_effort=object())

    configs = {"class": OpenAICompletionsTurnCompleter.Config(**settings), "other object": Elsewhere()}
    with ScriptedEndpoint() as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.base_url)
        graded_tree = run("simple", configs.get(kind, settings), code_only=True)
        assert (graded_tree.model, graded_tree.num_leaf_nodes, graded_tree.num_invalid_leaf_nodes) == ("my-model", 1, 0)
        body = next(body for body in endpoint.asked if "max_tokens" in body)
    assert [body[name] for name in ("model", "temperature", "max_tokens", "top_p")] == ["my-model", 0.25, 900, 0.5]
    assert "reasoning_effort" not in body


def test_a_config_without_a_model_is_refused():
    with pytest.raises(GradingError, match="no `model`"):
        run("simple", object())


def test_the_reward_and_the_details_are_read_from_the_state():
    state = {"grade": run("random").to_json()}
    names = execute(IMPORTS, REWARD, DETAILS, Rubric=object, State=dict, state=state)
    for rubric in (PaperBenchRubric(), names["PaperBenchRubric"]()):
        for grade in (state["grade"], json.loads(json.dumps(state["grade"]))):
            assert asyncio.run(rubric.score_rollout({"grade": grade})) == state["grade"]["score"]
        assert asyncio.run(rubric.score_rollout({})) == 0.0
    assert state["grade"].keys() >= {"score", "num_leaf_nodes", "num_passed", "judge_type"}
    assert isinstance(state["grade"]["graded_task_tree"], GradedTaskNode)
    assert names["leaf_grades"][0].keys() >= {"id", "requirements", "score", "explanation"}
    summary = names["summary"]
    assert (summary["overall_score"], summary["passed"] + summary["failed"]) == (state["grade"]["score"], 3)
    assert set(summary["by_category"]) == {CODE, RUN, RESULT}


@pytest.mark.parametrize("name", JUDGES)
def test_a_judge_of_ones_own_code_grades_a_tree(name):
    rubric = load_rubric("data/papers/toy/rubric.json")
    assert isinstance(rubric, TaskNode)
    judge = JUDGES[name](None, rubric, None, None, ATTEMPT)
    assert asyncio.run(judge.judge()) == graded(judge=name).graded_task_tree


def test_the_simple_judge_asks_the_model_of_its_config():
    pytest.importorskip("openai", reason="the extra openai is not installed")
    rubric, texts = load_rubric("data/papers/toy/rubric.json"), {"addendum": "An addendum.", "judge_addendum": None}
    with ScriptedEndpoint() as endpoint:
        config = OpenAICompletionsTurnCompleter.Config(model="m", base_url=endpoint.base_url)
        judge = SimpleJudge(
            paper_path=Path("paper.pdf"),
            rubric=rubric,
            submission_dir=ATTEMPT,
            paper_md="data/papers/toy/paper.md",
            completer_config=config,
            max_depth=1,
            **texts,
        )
        tree = asyncio.run(judge.judge())
        assert (tree.valid_score, tree.is_leaf, tree.task_category) == (True, True, "Subtree")
        assert "An addendum." in str(endpoint.asked)
    with pytest.raises(PcgevalError, match=r"nowhere\.md: is missing"):
        SimpleJudge(None, rubric, None, None, ATTEMPT, "nowhere.md", config)


def test_the_environment_is_loaded_as_in_the_guide():
    pytest.importorskip("verifiers", reason="`make environments` installs the extra verifiers")
    write_files({"rubric.json": json.dumps(RUBRIC), "paper.md": "# Rice"}, Path("data/papers/rice"))
    names = execute(USAGE, load_environment=load_environment)
    assert [task.data.paper_id for task in names["env"].taskset] == ["rice", "toy"]


def test_a_judge_without_a_model_is_gpt_4o():
    assert JudgeSettings.of(None, judge=SimpleJudge).judge_model.name == "gpt-4o-2024-08-06"
