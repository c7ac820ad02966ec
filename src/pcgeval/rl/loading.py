"""`load_environment`: the environment of paper reproduction, without importing verifiers before it is asked for."""

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pcgeval.core.errors import PcgevalError
from pcgeval.core.layout import PAPERS
from pcgeval.core.params import Model
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.backends import named_model

JUDGE_MODEL = "qwen2.5-coder:1.5b-instruct-q4_K_M"  # the largest of the local models


class EnvironmentsError(PcgevalError):
    """An environment cannot be loaded, or an attempt cannot be run or graded."""


def load_environment(
    max_steps: int = 50,
    code_only: bool = False,
    paper_ids: Sequence[str] | None = None,
    judge_type: str = "simple",
    judge_model: Model | str = JUDGE_MODEL,
    papers_dir: str | Path = PAPERS,
    judge_settings: JudgeSettings | None = None,
) -> Any:
    """Return the environment of paper reproduction: an agent with a shell, graded by the paper's rubric.

    Args:
        max_steps: Limit of the agent's answers; each can call the shell.
        code_only: Grade the code alone: reproduce.sh is not run, leaves of other categories are dropped.
        paper_ids: The papers, each a task; all in `papers_dir` by default.
        judge_type: simple, checks, random or dummy.
        judge_model: The model of the judge `simple`, as in params.yaml. A name alone means a local model, which runs in
            this process; a model of OpenAI's such as gpt-4o-2024-08-06, with OPENAI_API_KEY and perhaps
            OPENAI_BASE_URL; or else a model of the Ollama server. A missing model is an error before the agent starts.
        papers_dir: A folder of papers as PaperBench lays them out; without data/papers, that of the package.
        judge_settings: All else about the grading: context, votes, deadline, max_depth, resources_provided, ...; also
            `evidence`: a pass must quote lines that show it, which a small model seldom copies without a fault.

    Returns:
        A `verifiers.v1.Env`; its taskset is `.taskset`.

    Raises:
        EnvironmentsError: The package `verifiers` is not installed.
        PaperError: There is no such paper, or a paper is faulty.
    """
    if find_spec("verifiers") is None:
        raise EnvironmentsError(
            "The environments need the package verifiers. Run `python -m pip install 'pcgeval[verifiers]'`."
        )
    task = {
        "papers_dir": Path(papers_dir),
        "code_only": code_only,
        "judge_type": judge_type,
        "judge_model": named_model(judge_model) if isinstance(judge_model, str) else judge_model,
        "judge_settings": judge_settings or JudgeSettings(),
    }
    return import_module("pcgeval.rl.paper_environment").paper_environment(max_steps, paper_ids, task)
