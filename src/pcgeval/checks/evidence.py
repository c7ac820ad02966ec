"""The input and output of a check: the evidence, how it is gathered, the types of a check's arguments, and its result.

The evidence is a submission's texts and the results of its trials, or the reproduction of a paper. Submissions and
responses are untrusted: links are not followed, sizes are bounded, and a text that cannot be read has the reason
instead.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from pcgeval.core.errors import FileError
from pcgeval.core.files import write_json
from pcgeval.core.untrusted import UntrustedFileError, files_below, read_bytes, read_text
from pcgeval.formats.failures import Failure, FailureStage
from pcgeval.formats.layout import (
    DATA,
    EVIDENCE,
    SUBMISSIONS,
    StageDir,
    Trial,
    evidence_file,
    letter_file,
    stage_dir,
    summaries_file,
)
from pcgeval.formats.params import Params, Team
from pcgeval.formats.stages import DiversityFile, changed_teams, is_likeliest, read_stage_file
from pcgeval.formats.trial_view import TrialFiles
from pcgeval.formats.trials import TrialUsage
from pcgeval.submissions.load import Program, SubmissionError, find_readme, load_submission


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


MAX_DOCUMENT_BYTES = 1_000_000
_MODEL_EVIDENCE: TypeAdapter[ModelEvidence] = TypeAdapter(ModelEvidence)
_PROMPT_SUFFIXES = (".md", ".py", ".txt")  # where a program may keep its messages to a model
_NO_DECISIONS = Team()
MAX_REPLY_BYTES = 16 * 2**20  # what the extraction reads of a response
# A line of code that starts a loop in Python or a language with braces; prose such as "for the letter I" does not.
_LOOP = re.compile(r"^[ \t]*+(?:for|while)\b[^\n{:]*+[{:]", re.MULTILINE)
_FENCED = re.compile(r"```(.*?)(?:```|\Z)", re.DOTALL)


def evidence_stage(params: Params, root: Path = Path()) -> None:
    """Gather the results of all trials into `data/evidence/<team>/<model>.json`, for the rubric's checks."""
    stages: tuple[StageDir, ...] = ("raw", "stability", "similarity", "diversity")
    with changed_teams(
        params,
        root,
        [EVIDENCE],
        DATA / "raw",
        reads=lambda *place: [*(stage_dir(stage, *place) for stage in stages), summaries_file(*place)],
        writes=lambda *place: [evidence_file(*place)],
        made_from=lambda *_: params.competition,
    ) as changed:
        for model, team in changed:
            evidence = _MODEL_EVIDENCE.dump_python(gather_model(params, model, team, root))
            write_json(root / evidence_file(model, team), evidence)


def read_evidence(params: Params, team: str, root: Path = Path()) -> Evidence:
    """Read a team's submission and its evidence with all models; one without evidence was not run."""
    evidence = gather_submission(root / SUBMISSIONS / team, team, params.limits.prompt_words, params.teams[team])
    paths = {model: root / evidence_file(model, team) for model in params.models}
    if missing := [model for model, path in paths.items() if not path.exists()]:
        return replace(evidence, no_results=f"the submission was not run with {', '.join(missing)}")
    models = tuple(read_stage_file(path, _MODEL_EVIDENCE.validate_json) for path in paths.values())
    return replace(evidence, models=models, no_results="")


def gather_submission(folder: Path, team: str, prompt_words: int, decisions: Team = _NO_DECISIONS) -> Evidence:
    """Read a submission that need not have been run."""
    try:
        is_program = isinstance(load_submission(folder, decisions).work, Program)
    except SubmissionError:  # an invalid submission is read as one with a prompt
        is_program = False
    readme = find_readme(folder) or folder / "README.md"
    prompt = _program_texts(folder, readme) if is_program else _document(folder / "prompt.txt")
    return Evidence(team, prompt_words, _document(readme), prompt, is_program)


def gather_model(params: Params, model: str, team: str, root: Path = Path()) -> ModelEvidence:
    """Read a team's results with one model from all stages; raise FileError if an output is missing or incomplete."""
    files, results, rates = TrialFiles(model, team, root), [], {}
    for letter in params.competition.characters:
        rates[letter] = DiversityFile.read(letter_file(files.folders["diversity"], letter)).rate
        for trial in params.trials(letter):
            view = files.view(trial, drawn=False)
            outcome, measured = view.outcome, (view.stability, view.similarity, view.probabilities or None)
            if outcome is None or (outcome.failure is None and None in measured):
                folders = f"{files.folders['stability']} or {files.folders['similarity']}"
                raise FileError(f"{folders}: lacks values of {trial}. Run `dvc repro`.")
            shape = None if outcome.failed_stage == "generate" else _shape(files.official(trial)["raw"])
            results.append(
                TrialEvidence(
                    model=model,
                    trial=trial,
                    failure=outcome.failure,
                    has_loop=shape and shape[0],
                    has_open_fence=shape and shape[1],
                    stability=view.stability,
                    similarity=view.similarity,
                    on_top=is_likeliest(view.similarity, [one.probability for one in view.probabilities]),
                    usage=view.usage,
                )
            )
    return ModelEvidence(model, tuple(results), rates)


def _program_texts(folder: Path, readme: Path) -> Document:
    """Join the texts and sources of a program without its README, up to the size limit of a document."""
    parts: list[bytes] = []
    left = MAX_DOCUMENT_BYTES
    try:
        for path in files_below(folder):
            if left > 0 and path.suffix in _PROMPT_SUFFIXES and path != readme:
                parts.append(read_bytes(path, left, cut=True))
                left -= len(parts[-1])
    except UntrustedFileError as error:
        return Document("the program", "unreadable", reason=str(error))
    return Document("the program", "read", b"\n".join(parts).decode("utf-8", errors="replace"))


def _document(path: Path) -> Document:
    try:
        return Document(path.name, "read", read_text(path, MAX_DOCUMENT_BYTES))
    except UntrustedFileError as error:
        reason = f"{path.name} {error.reason}"
        return Document(path.name, "unreadable" if error.kind == "system" else "refused", reason=reason)


def _shape(path: Path) -> tuple[bool, bool]:
    """Return whether a response has a loop and an open fence."""
    content = read_bytes(path, MAX_REPLY_BYTES, follow_link=True, cut=True)  # DVC may link
    text = content.decode("utf-8", errors="replace")
    has_loop = any(_LOOP.search(fenced[1]) for fenced in _FENCED.finditer(text))
    return has_loop, text.count("```") % 2 == 1
