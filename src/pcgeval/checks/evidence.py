"""The input and output of a check: the evidence, the types of its arguments, and its result.

The evidence is a submission's texts and the results of its trials, or the reproduction of a paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pcgeval.formats.failures import Failure, FailureStage
from pcgeval.formats.layout import Trial
from pcgeval.formats.trials import TrialUsage


def _inner_path(text: str) -> str:
    path = PurePosixPath(text)
    if not text.isprintable() or path.is_absolute() or not path.parts or ".." in path.parts:
        raise ValueError("give a file's path below the submission, with parts joined by '/'")
    return text


# the arguments that a rubric may give
Text = Annotated[str, Field(min_length=1, max_length=1000)]
InnerPath = Annotated[Text, AfterValidator(_inner_path)]
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]


@dataclass(frozen=True)
class Document:
    """A text of a submission: its author is at fault if it is `refused`, and perhaps we if it is `unreadable`."""

    name: str
    status: Literal["read", "refused", "unreadable"]
    text: str = ""
    reason: str = ""


@dataclass(frozen=True)
class TrialEvidence:
    """One trial with one model. `failure` is None if the trial has passed all stages."""

    model: str
    trial: Trial
    failure: Failure | None
    has_loop: bool | None = None  # in the fenced code of the response; None without a response
    has_open_fence: bool | None = None  # as when the response was cut off
    stability: float | None = None
    similarity: float | None = None  # the probability of the target letter
    on_top: bool = False  # no letter is more probable than the target
    usage: TrialUsage | None = None  # None: no record lies beside the response

    @property
    def failed_stage(self) -> FailureStage | None:
        """The stage in which the trial failed; None if it did not."""
        return self.failure.type.stage if self.failure else None

    @property
    def name(self) -> str:
        """The trial as a person names it: model, letter and number."""
        return f"{self.model} {self.trial.letter} {self.trial.number}"


@dataclass(frozen=True)
class ModelEvidence:
    """The results of all configured trials of a team with one model."""

    model: str
    trials: tuple[TrialEvidence, ...]
    diversity: Mapping[str, float]  # by the letter


@dataclass(frozen=True)
class Evidence:
    """A submission to the competition, as the checks see it."""

    team: str
    prompt_words: int  # how many the rules allow in a prompt
    readme: Document
    prompt: Document  # prompt.txt; of a program, all texts and sources from which it makes prompts
    is_program: bool = False  # the rules for a prompt.txt do not apply to one
    models: tuple[ModelEvidence, ...] = ()  # in the order of params.yaml
    no_results: str = "the submission was not run"  # why there are no `models`


@dataclass(frozen=True)
class PaperEvidence:
    """An attempt to reproduce a paper, as the checks see it."""

    folder: Path  # the submission after its reproduce.sh was run, or as it lies
    log: str | None = None  # the output of reproduce.sh; None if nobody ran it
    started_at: float = 0.0  # when reproduce.sh was, in seconds since 1970: older files are no results
    exit_code: int | None = None  # in our run; None if it was stopped or could not be run, or if we did not run it
    reason: str | None = None  # why it was stopped or could not be run
    blacklist: tuple[str, ...] = ()  # addresses that must not have been used
    warnings: tuple[str, ...] = ()  # doubts about a run that is not ours

    @property
    def is_ours(self) -> bool:
        """Whether we ran reproduce.sh, or tried to, so that the log is not the submission's own."""
        return self.exit_code is not None or self.reason is not None


class Undecided(Exception):  # noqa: N818 - it is no error: a judge turns it into a leaf without a grade
    """The evidence does not say whether the criterion is met."""


class NotMet(Exception):  # noqa: N818 - it is no error: it becomes a result of 0
    """The criterion is not met because a file or value that it needs is missing or malformed."""


@dataclass(frozen=True)
class CheckResult:
    """How far a criterion is met, from 0 to 1, and the figures that say so."""

    score: float
    explanation: str


def yes_or_no(met: bool, explanation: str) -> CheckResult:
    """Return 1 for a criterion that is met, else 0."""
    return CheckResult(1.0 if met else 0.0, explanation)
