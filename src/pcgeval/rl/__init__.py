"""Environments for verifiers, which `load_environment` imports, and Inspect's task. No other package imports rl."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from pcgeval.core.packages import packages_for
from pcgeval.judge.settings import GradingError, JudgeSettings
from pcgeval.rubric.grades import GradedTaskNode


def load_environment(
    max_steps: int = 50,
    code_only: bool = False,
    paper_ids: str | Sequence[str] | None = None,
    judge_type: Any = "simple",
    judge_model: Any = None,
    papers_dir: str | Path | None = None,
    judge_settings: JudgeSettings | None = None,
) -> Any:
    """Return the environment of paper reproduction: an agent with a shell, graded by the paper's rubric.

    Args:
        max_steps: Limit of the agent's answers; each can call the shell.
        code_only: Grade the code alone: reproduce.sh is not run, leaves of other categories are dropped.
        paper_ids: The papers, each a task, or one; all in `papers_dir` by default.
        judge_type: simple, checks, random or dummy, or a class such as SimpleJudge. With `judge_settings` that name a
            judge and without a `judge_model`, `simple` means that judge.
        judge_model: The model of the judge `simple`, GPT-4o by default; all that `run_judge` takes as its
            `completer_config`. A name alone means a local model, which runs in this process; a model of OpenAI's such
            as gpt-4o-2024-08-06, with OPENAI_API_KEY and perhaps OPENAI_BASE_URL; or else a model of the Ollama server.
            A missing model or key is an error before the agent starts.
        papers_dir: A folder of papers as PaperBench lays them out; without data/papers, that of the package.
        judge_settings: All else about the grading: context, votes, deadline, max_depth, max_width, ...; if they name a
            judge, it is the same as `judge_type`.

    Returns:
        A `verifiers.v1.Env`; its taskset is `.taskset`.

    Raises:
        MissingPackageError: The package `verifiers` is not installed.
        GradingError: A setting of the judge is invalid, or two name different judges.
        PaperError: There is no such paper, or a paper is faulty.
    """
    folder = None if papers_dir is None else str(papers_dir)
    named = judge_settings.judge if judge_settings and "judge" in judge_settings.model_fields_set else None
    kind = named if named and judge_type == "simple" and judge_model is None else judge_type
    changes = {"judge": kind, "model": judge_model, "code_only": code_only or None, "papers_dir": folder}
    judge = JudgeSettings.of(judge_settings, **changes)
    if named not in {None, judge.judge}:
        other = f"but judge_type or judge_model means {judge.judge}. Name one judge."
        raise GradingError(f"judge_settings name the judge {named}, {other}")
    with packages_for("load_environment"):
        module = import_module("pcgeval.rl.paper_environment")
    return module.paper_environment(max_steps, paper_ids, judge)


class PaperBenchRubric:
    """The reward of an attempt, under the name of integrations of PaperBench's grading."""

    async def score_rollout(self, state: Any) -> float:
        """Return the root's score of the tree in `state["grade"]`; 0 without a grade."""
        grade = state.get("grade")
        tree = grade["graded_task_tree"] if isinstance(grade, dict) and "graded_task_tree" in grade else {}
        return float(tree.score if isinstance(tree, GradedTaskNode) else tree.get("score", 0.0))
