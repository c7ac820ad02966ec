"""`pcgeval try`: a few trials of one submission as the competition runs them, each level scored as soon as it is there.

Nothing is asked before all that can be checked is. All files go into one folder: responses, calls, levels and pictures
with the official names, and what a program printed. Finished trials are kept: a second try of the same submission in
the same folder asks for nothing twice.
"""

from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from statistics import fmean

import typer

from pcgeval.cli.settings import SettingsError, known_model
from pcgeval.cli.try_output import LetterSummary, TriedTrial, TryDisplay
from pcgeval.core.console import EXIT_CHECK_FAILED
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import read_json, read_text, write_bytes, write_json, write_text
from pcgeval.core.layout import OFFICIAL_RESULTS, StageDir, Trial, tag, trial_file, trials
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import Model, Params
from pcgeval.core.stage_files import TrialRow, read_csv
from pcgeval.core.trials import TrialRecord
from pcgeval.core.untrusted import printable_text
from pcgeval.evaluator.image import png_bytes
from pcgeval.evaluator.level_score import LevelScore, score_level
from pcgeval.generation.environments import interpreter_for
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.generation.summaries import supplied_blocks
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.protocol import Backend, LlmError
from pcgeval.sandbox.sandbox import ResourceLimits, open_sandbox
from pcgeval.scoring.official_files import TRIAL_SCORES
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.similarity.diversity import diversity
from pcgeval.submissions.findings import SubmissionFinding, printable_findings
from pcgeval.submissions.hand_in import opened
from pcgeval.submissions.load import Program, Prompt, Submission, load_prompt
from pcgeval.submissions.validate import check, work_findings

MARKER = ".pcgeval-try.json"  # whose trials the folder holds
LOCK = ".pcgeval-try.lock"
_DIGITS = 7  # of a diversity, as in the official files


class OutputFolderError(PcgevalError):
    """`pcgeval try` may not write into this folder."""


def run_try(
    path: Path,
    competition: Params,
    wanted: Params,
    name: str,
    out: Path | None,
    display: TryDisplay,
    *,
    trust_programs: bool,
) -> None:
    """Check a submission and all that its trials need, run them, and show each and the means.

    Args:
        path: The submission's folder or zip file, the file that starts a program, or a prompt.
        competition: The params of the competition.
        wanted: The same, with the one model, the letters and the number of trials to run.
        name: The name that the model was asked for by.
        out: Where the files go; default: below `rehearsals`.
        display: Shows it.
        trust_programs: Run a program without a sandbox where there is none.

    Raises:
        typer.Exit: The submission has errors.
        PcgevalError: Something that is needed is missing, or failed; the trials that ended are shown and kept.
    """
    ((key, model),) = wanted.models.items()
    with ExitStack() as stack:
        submission = _checked_submission(path, wanted, display, stack)
        folder = out or Path("rehearsals") / submission.team / key
        _refuse_foreign(folder, submission.team, key)
        if isinstance(submission.work, Program):
            display.activity("preparing the program's packages and sandbox")
            interpreter_for(submission.work.folder)
            with open_sandbox(ResourceLimits(), trust_programs):
                pass
        display.activity("loading the classifier")
        similarity = wanted.similarity
        classifier = loaded_classifier(similarity.model, similarity.revision, similarity.device)
        backend = _opened_model(competition, model, name, display)
        try:
            try_submission(wanted, submission, backend, classifier, folder, display, trust_programs=trust_programs)
        finally:
            if display.tried:
                own = summary(submission.team, display.tried, wanted.diversity.vectors)
                baseline = baseline_summary(competition, model, wanted.competition.characters)
                display.finish(own, baseline, len(list(trials(competition))))
                display.message(f"all files are in {folder}")


def try_submission(
    params: Params,
    submission: Submission,
    backend: Backend,
    classifier: Classifier,
    folder: Path,
    display: TryDisplay,
    *,
    trust_programs: bool = False,
) -> None:
    """Run every trial of params, which have one model.

    Args:
        params: The competition, with the letters, trials and model to run.
        submission: The prompt or program.
        backend: Where the model is asked.
        classifier: Tells which letter a level shows.
        folder: Where all files go, `<stage>/<letter>/...`; those of other letters in it are kept.
        display: Is told of each trial, once it is scored and before.
        trust_programs: Run a program without a sandbox where there is none.

    Raises:
        OutputFolderError: The folder was not made by a try of this team and model.
        FolderBusyError: Another process works on the same folder.
        LlmError: The model cannot be asked.
        SandboxError: There is no sandbox for a program.
        TrialFaultError: Trials failed through no fault of the submission.
    """
    (model,) = params.models
    _refuse_foreign(folder, submission.team, model)
    run = _Run(params, submission, classifier, folder, display)
    with lock_folder(folder, folder / LOCK):
        write_json(folder / MARKER, {"team": submission.team, "model": model})
        do_trials(
            params,
            model,
            [TeamTrials(submission, backend, folder / "raw")],
            run.score,
            state=folder / "unfinished",
            trust_programs=trust_programs,
            observer=run,
        )


def _refuse_foreign(folder: Path, team: str, model: str) -> None:
    """Refuse a folder that is neither new nor empty nor of an earlier try of the same team and model."""
    if (folder / MARKER).is_file():
        owner = read_json(folder / MARKER)
        if (owner["team"], owner["model"]) != (team, model):
            held = f"holds {owner['team']} with {owner['model']}, not {team} with {model}"
            raise OutputFolderError(f"{folder}: {held}. Name another folder with --out.")
    elif folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK}):
        raise OutputFolderError(
            f"{folder}: already exists and `pcgeval try` did not make it. Name a new or empty folder with --out."
        )


class _Run:
    """Scores finished trials and keeps what programs print."""

    def __init__(
        self, params: Params, submission: Submission, classifier: Classifier, folder: Path, display: TryDisplay
    ) -> None:
        self.params, self.submission, self.classifier = params, submission, classifier
        self.folder, self.display = folder, display

    def asking(self, trial: Trial, call: int) -> None:
        self.display.asking(trial, call)

    def ended(self, trial: Trial, printed: str) -> None:
        """Write what a trial's program printed; an empty text removes what an earlier one did."""
        lines = printed.replace("\r\n", "\n").replace("\r", "\n")  # progress bars return to the start of their line
        if printed:
            write_text(self._printed(trial), printable_text(lines))
        else:
            self._printed(trial).unlink(missing_ok=True)
        self.display.ended(trial)

    def score(self, trial: Trial, record: TrialRecord, is_new: bool) -> None:
        """Score a trial's response and write the files of its level."""
        team, physics = self.submission.team, self.params.physics
        response = trial_file(self.folder / "raw", "raw", team, trial)
        text = read_text(response)
        if record.reason is None:
            level = score_level(text, trial.letter, self.classifier, physics, read_as="response")
        else:
            level = LevelScore(
                letter=trial.letter,
                read_as="response",
                physics=physics,
                failed_stage="generate",
                reason=record.reason,
            )
        self._write("intermediate", trial, None if level.code is None else level.code.encode())
        self._write("levels", trial, None if level.xml is None else level.xml.encode())
        picture = self._write("images", trial, png_bytes(level.image()) if level.simulated else None)
        printed = self._printed(trial)
        self.display.scored(
            TriedTrial(
                trial=trial,
                record=record,
                response=response,
                level=level,
                picture=picture if level.simulated else None,
                printed=printed if printed.is_file() else None,
                supplied=supplied_blocks(self.submission.work, trial.letter, text, record),
                is_new=is_new,
            )
        )

    def _write(self, stage: StageDir, trial: Trial, content: bytes | None) -> Path:
        """Write a file of a level, or remove that of an earlier try where there is none now."""
        path = trial_file(self.folder / stage, stage, self.submission.team, trial)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            write_bytes(path, content)
        return path

    def _printed(self, trial: Trial) -> Path:
        return self.folder / "printed" / trial.letter / f"{tag(self.submission.team, trial)}.txt"


def summary(team: str, tried: list[TriedTrial], vectors: str) -> list[LetterSummary]:
    """Return the means of each letter.

    Args:
        team: Whose trials these are.
        tried: The trials.
        vectors: What the diversity compares: `softmax` or `cls`.
    """
    summaries = []
    for letter in sorted({trial.trial.letter for trial in tried}):
        levels = [trial.level for trial in tried if trial.trial.letter == letter]
        simulated = [level for level in levels if level.simulated]
        rows = [level.embedding if vectors == "cls" else tuple(level.probabilities.values()) for level in simulated]
        distance = round(diversity(rows, len(levels)), _DIGITS) if len(levels) > 1 else None
        failed = sum(level.reason is not None for level in levels)
        measured = [(level.stability, level.similarity) for level in levels]
        summaries.append(_means(team, letter, measured, failed, distance))
    return summaries


def baseline_summary(
    params: Params, model: Model, letters: str, results: Path = OFFICIAL_RESULTS
) -> list[LetterSummary]:
    """Return the means of the competition's baseline with the same model, by its last evaluation.

    Empty where there is no baseline, or no evaluation of it with this model.

    Raises:
        FileError: The results are there and cannot be read.
    """
    team = params.scoring.baseline
    keys = [key for key, other in params.models.items() if (other.name, other.options) == (model.name, model.options)]
    table = next((path for key in keys if (path := results / key / TRIAL_SCORES).is_file()), None)
    if table is None or team is None:
        return []
    rows = [row for row in read_csv(TrialRow, table) if row.team == team and row.letter in letters]
    summaries = []
    for letter, group in groupby(sorted(rows, key=lambda row: row.letter), key=lambda row: row.letter):
        trials_of_letter = list(group)
        measured = [(float(row.stability), float(row.similarity)) for row in trials_of_letter]
        summaries.append(_means(team, letter, measured, None, float(trials_of_letter[0].diversity)))
    return summaries


def _means(
    team: str, letter: str, measured: list[tuple[float, float]], failed: int | None, distance: float | None
) -> LetterSummary:
    return LetterSummary(
        team=team,
        letter=letter,
        trials=len(measured),
        failed=failed,
        stability=fmean(stability for stability, _ in measured),
        similarity=fmean(similarity for _, similarity in measured),
        score=fmean(stability * similarity for stability, similarity in measured),
        diversity=distance,
    )


def _checked_submission(path: Path, params: Params, display: TryDisplay, stack: ExitStack) -> Submission:
    """Return a submission that passes the checks of `pcgeval validate`; every finding is shown.

    `stack` removes the contents of a zip file when it ends.
    """
    path = path.resolve()
    work: Prompt | Program | None
    findings: tuple[SubmissionFinding, ...]
    if path.is_dir() or path.suffix.lower() == ".zip":
        checked = check(stack.enter_context(opened(path)), params.limits)
        team, work, findings = path.stem if path.is_file() else path.name, checked.work, checked.findings
    elif path.is_file() and path.suffix in {".py", ".txt"}:
        team = path.parent.name
        work = Program(path.parent, path.name) if path.suffix == ".py" else Prompt(load_prompt(path))
        findings = tuple(work_findings(work, params.limits))
    else:
        fault = "is neither a program nor the text of a prompt" if path.exists() else "there is no such submission"
        raise SettingsError(f"{path}: {fault}. Name a submission's folder, zip file, .py file or prompt.txt.")
    for line in printable_findings(findings):
        display.message(line)
    if work is None or any(finding.severity == "error" for finding in findings):
        display.message(f"{path.name}: fix the errors above; nothing was asked")
        raise typer.Exit(EXIT_CHECK_FAILED)
    return Submission(team, work)


def _opened_model(params: Params, model: Model, name: str, display: TryDisplay) -> Backend:
    """Open a model's backend and look whether the model is there; `name` is what the user called it."""
    display.activity(f"loading {model.name}" if model.backend == "llamacpp" else f"looking for {model.name}")
    try:
        backend = open_backend(model, report=display.message, on_text=display.hear)
        pinned_digest(model, backend)
    except LlmError as error:
        if model.backend == "ollama" and model.host is None and known_model(params, name) is None:
            local = ", ".join(local.name for local in LOCAL_MODELS)
            raise SettingsError(
                f"model {name}: is neither in params.yaml nor one of the local models ({local}), and as a model of "
                f"Ollama: {error} Name a local model, of which the beginning is enough (fetched with `pcgeval models "
                "fetch NAME`); or give --host ADDRESS of an Ollama server that has it; or --base-url http://ADDRESS/v1 "
                "of a server with OpenAI's interface."
            ) from error
        raise
    return backend
