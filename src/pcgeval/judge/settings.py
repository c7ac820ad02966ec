"""The input of one grading: its settings, made once and passed whole, and the submission with its rubric."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from pcgeval.checks.evidence import Evidence, PaperEvidence
from pcgeval.core.errors import PcgevalError
from pcgeval.core.params import RubricParams
from pcgeval.rubric.tree import TaskNode, code_only, prune, resources_provided


class GradingError(PcgevalError):
    """A grading that is impossible: an invalid setting, no model, no submission."""


class JudgeSettings(RubricParams):
    """The section `rubric` of params.yaml, and the settings of a single grading.

    Attributes:
        code_only: Grade only the leaves about code, and do not run reproduce.sh.
        resources_provided: Give weight 0 to acquiring data sets and models, because they were handed out.
        propagate_zero_weights: Do the same to nodes below which every weight is 0.
        max_depth: Levels of the rubric; deeper nodes are graded as a whole by the node above. None: all.
        ignore_checks: Ask the model about leaves with a check too.
        human_grades: The file of the judge `human`.
    """

    code_only: bool = False
    resources_provided: bool = False
    propagate_zero_weights: bool = False
    max_depth: int | None = None
    ignore_checks: bool = False
    human_grades: Path | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.max_depth is not None and self.max_depth < 1:
            raise ValueError(f"max_depth is {self.max_depth}. Give 1 for the root alone, or more")
        if self.judge == "simple" and self.votes > 1 and self.model and not self.model.options.get("temperature"):
            raise ValueError(
                f"votes is {self.votes}, but at temperature 0 all votes are the same. Give the model a temperature (in "
                "its options, or with --temperature), or ask for 1 vote"
            )
        return self

    @property
    def is_replay(self) -> bool:
        """Whether the model's replies come from recordings alone."""
        return self.model is not None and self.model.backend == "recorded"

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> Self:
        """Return settings with these values.

        Raises:
            GradingError: A value is invalid.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            faults = (
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" if each["loc"] else each["msg"]
                for each in error.errors(include_url=False)
            )
            text = "; ".join(fault.replace("Value error, ", "") for fault in faults)
            raise GradingError(f"{text}. See `rubric` in params.yaml, or `pcgeval grade --help`.") from error

    def cut(self, rubric: TaskNode) -> TaskNode:
        """Return the part of a rubric that is graded; raises RubricError if nothing is left."""
        if self.code_only:
            rubric = code_only(rubric)
        if self.resources_provided:
            rubric = resources_provided(rubric, propagate_zero_weights=self.propagate_zero_weights)
        return rubric if self.max_depth is None else prune(rubric, self.max_depth)


@dataclass(frozen=True)
class GradingTask:
    """A submission, the rubric that it is graded by, and all that a judge is told.

    Attributes:
        rubric: The whole rubric.
        folder: The submission; nothing outside is ever read.
        evidence: The input of the checks; it also says whether the submission reproduces a paper or takes part in the
            competition.
        paper: The paper's text; for the competition, its rules in words.
        addendum: Clarifications by the rubric's authors for the submitters.
        judge_addendum: Their clarifications for the judge alone.
    """

    rubric: TaskNode
    folder: Path
    evidence: Evidence | PaperEvidence
    paper: str = ""
    addendum: str = ""
    judge_addendum: str = ""

    @property
    def run(self) -> PaperEvidence | None:
        """The attempt to reproduce a paper; None for the competition."""
        return self.evidence if isinstance(self.evidence, PaperEvidence) else None
