"""PaperBench's names for judges and their models, so that code written for PaperBench runs with its imports changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pcgeval.judge.calls import CallFiles
from pcgeval.judge.grading import grade
from pcgeval.judge.run import evidence_as_it_lies, graded_in_thread
from pcgeval.judge.settings import GradingTask, JudgeSettings
from pcgeval.rubric.grades import GradedTaskNode
from pcgeval.rubric.tree import TaskNode


class OpenAICompletionsTurnCompleter:
    """A model of OpenAI's interface; pcgeval takes its `Config` wherever a model of the judge is named."""

    @dataclass(frozen=True)
    class Config:
        """A model and its settings; what is None is not sent. The endpoint is OPENAI_BASE_URL's without a base_url."""

        model: str
        reasoning_effort: str | None = None
        temperature: float | None = None
        max_tokens: int | None = None
        top_p: float | None = None
        seed: int | None = None
        base_url: str | None = None


class Judge:
    """A judge of one submission: `await SimpleJudge(...).judge()` returns the graded tree.

    `run_judge` takes the class itself as its `judge_type`.
    """

    judge_type: ClassVar[str]

    def __init__(
        self,
        paper_path: Path | None,
        rubric: TaskNode,
        addendum: str | None,
        judge_addendum: str | None,
        submission_dir: Path,
        paper_md: Path | None = None,
        completer_config: Any = None,
        *,
        max_depth: int | None = None,
        code_only: bool = False,
        max_prior_nodes: int | None = None,
    ) -> None:
        """Prepare a grading; the paper's text is that of `paper_md`, and its PDF (`paper_path`) is not read.

        The submission is graded as it lies. Raises GradingError for an invalid setting.
        """
        del paper_path
        self.rubric, self.submission_dir = rubric, Path(submission_dir)
        limits = {"max_depth": max_depth, "max_prior_nodes": max_prior_nodes}
        changes = {"judge": self.judge_type, "model": completer_config, "code_only": code_only, **limits}
        self._settings = JudgeSettings.of(None, **changes)
        paper = "" if paper_md is None else Path(paper_md).read_text("utf-8")
        self._texts = paper, addendum or "", judge_addendum or ""

    async def judge(self) -> GradedTaskNode:
        """Grade the submission without blocking the event loop; raises what `run_judge` does."""
        evidence = evidence_as_it_lies(self.submission_dir, self._settings)
        task = GradingTask(self.rubric, self.submission_dir, evidence, *self._texts)
        output = await graded_in_thread(grade, task, CallFiles().client(self._settings))
        return output.graded_task_tree


class SimpleJudge(Judge):
    """The judge `simple`: a language model, GPT-4o without a `completer_config`."""

    judge_type = "simple"


class RandomJudge(Judge):
    """The judge `random`: a seeded coin."""

    judge_type = "random"


class DummyJudge(Judge):
    """The judge `dummy`: always 1."""

    judge_type = "dummy"
