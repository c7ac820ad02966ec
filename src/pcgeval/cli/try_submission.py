"""`pcgeval try`: a few trials of one submission as the competition runs them, each level scored as soon as it is there.

Nothing is asked before all that can be checked is. All files go into one folder: responses, calls, levels and pictures
with the official names, and what a program printed. Finished trials are kept: a second try of the same submission in
the same folder asks for nothing twice.
"""

import sys
import threading
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from statistics import fmean

import typer

from pcgeval.cli.settings import SettingsError, known_model
from pcgeval.cli.try_output import LetterSummary, TriedTrial, describe, print_summary, trial_text
from pcgeval.core.console import EXIT_CHECK_FAILED, StatusLine, count, print_stderr
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
from pcgeval.generation.generate import TeamTrials, do_trials
from pcgeval.generation.summaries import supplied_blocks
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.protocol import Backend, LlmError
from pcgeval.sandbox.sandbox import ResourceLimits, open_sandbox
from pcgeval.scoring.official_files import TRIAL_SCORES
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.similarity.diversity import diversity
from pcgeval.submissions.load import Program, Prompt, Submission, load_prompt
from pcgeval.submissions.packages import interpreter_for
from pcgeval.submissions.validate import SubmissionFinding, check, opened, printable_findings, work_findings

MARKER = ".pcgeval-try.json"  # names the team and model of the folder's trials
LOCK = ".pcgeval-try.lock"
_DIGITS = 7  # of a diversity, as in the official files


class OutputFolderError(PcgevalError):
    """`pcgeval try` may not write into this folder."""


def run_try(
    path: Path, name: str, competition: Params, params: Params, out: Path | None, *, trust_programs: bool, json: bool
) -> None:
    """Check a submission and all that its trials need, run them, and show each and the means.

    Args:
        path: The submission's folder or zip file, the file that starts a program, or a prompt.
        name: The name that the model was asked for by.
        competition: The params of the competition.
        params: The same, with the one model, the letters and the number of trials to run.
        out: Where the files go; default: below `rehearsals`.
        trust_programs: Run a program without a sandbox where there is none.
        json: Print nothing on stdout but the whole at the end, as JSON.

    Raises:
        typer.Exit: The submission has errors.
        PcgevalError: Something that is needed is missing, or failed; the trials that ended are shown and kept.
    """
    ((key, model),) = params.models.items()
    with ExitStack() as stack:
        status = stack.enter_context(StatusLine(every=10))
        submission = _checked_submission(path, params, stack)
        folder = out or Path("rehearsals") / submission.team / key
        _refuse_foreign(folder, submission.team, key)
        if isinstance(submission.work, Program):
            status.show("preparing the program's packages and sandbox")
            interpreter_for(submission.work.folder)
            with open_sandbox(ResourceLimits(), trust_programs):
                pass
        status.show("loading the classifier")
        similarity = params.similarity
        classifier = loaded_classifier(similarity.model, similarity.revision, similarity.device)
        run = Try(params, submission, classifier, folder, status, json=json)
        status.show(f"loading {model.name}" if model.backend == "llamacpp" else f"looking for {model.name}")
        backend = _opened_model(competition, model, name, run)
        try:
            run.do_trials(backend, trust_programs=trust_programs)
        finally:
            if run.tried:
                status.clear()
                letters = summary(submission.team, run.tried, params.diversity.vectors)
                baseline = baseline_summary(competition, model, params.competition.characters)
                print_summary(run.tried, letters, baseline, len(list(trials(competition))), json=json)
                print_stderr(f"all files are in {folder}")


class Try:
    """The trials of a submission with the one model of params: what is under way goes to stderr, results to stdout.

    Attributes:
        tried: The trials that have ended, in this order.
    """

    def __init__(
        self,
        params: Params,
        submission: Submission,
        classifier: Classifier,
        folder: Path,
        status: StatusLine,
        *,
        json: bool,
    ) -> None:
        """Begin nothing yet; all files will go to `<folder>/<stage>/<letter>/...`, where those of other letters stay.

        With `json`, no trial is printed.
        """
        self.params, self.submission, self.classifier, self.folder = params, submission, classifier, folder
        self.tried: list[TriedTrial] = []
        self._status, self._json, self._total = status, json, len(list(trials(params)))
        self._lock = threading.Lock()
        self._calls: dict[Trial, int] = {}  # of the trials under way
        self._pieces = 0  # of replies, since no other trial was under way

    def do_trials(self, backend: Backend, *, trust_programs: bool = False) -> None:
        """Run every trial that an earlier try has not finished, and score them all.

        Raises:
            OutputFolderError: The folder was not made by a try of this team and model.
            FolderBusyError: Another process works on the same folder.
            LlmError: The model cannot be asked.
            SandboxError: There is no sandbox for a program.
            TrialFaultError: Trials failed through no fault of the submission.
        """
        ((model, _),) = self.params.models.items()
        _refuse_foreign(self.folder, self.submission.team, model)
        with lock_folder(self.folder, self.folder / LOCK):
            write_json(self.folder / MARKER, {"team": self.submission.team, "model": model})
            do_trials(
                self.params,
                model,
                [TeamTrials(self.submission, backend, self.folder / "raw")],
                self.score,
                state=self.folder / "unfinished",
                trust_programs=trust_programs,
                observer=self,
            )

    def message(self, text: str) -> None:
        """Print a message that stays."""
        self._status.clear()
        print_stderr(text)

    def asking(self, trial: Trial, call: int) -> None:
        """Show that a trial's program is started, or that the model is asked."""
        with self._lock:
            self._calls[trial] = call
            if len(self._calls) == 1:
                self._pieces = 0
        self._show()

    def hear(self, _: str) -> None:
        """Count a piece of a reply; most servers send one for each token."""
        with self._lock:
            self._pieces += 1
        self._show()

    def ended(self, trial: Trial, printed: str) -> None:
        """Write what a trial's program printed; an empty text removes what an earlier one did."""
        lines = printed.replace("\r\n", "\n").replace("\r", "\n")  # progress bars return to the start of their line
        if printed:
            write_text(self._printed(trial), printable_text(lines))
        else:
            self._printed(trial).unlink(missing_ok=True)
        with self._lock:
            self._calls.pop(trial, None)

    def score(self, trial: Trial, record: TrialRecord, is_new: bool) -> None:
        """Score a trial's response, write the files of its level, and print it."""
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
        tried = TriedTrial(
            trial=trial,
            record=record,
            response=response,
            level=level,
            picture=picture if level.simulated else None,
            printed=printed if printed.is_file() else None,
            supplied=supplied_blocks(self.submission.work, trial.letter, text, record),
            is_new=is_new,
        )
        self.tried.append(tried)
        self._status.clear()
        if self._json:
            self._status.show(describe(tried))
        else:
            sys.stdout.write(f"{printable_text(trial_text(tried))}\n\n")
            sys.stdout.flush()

    def _show(self) -> None:
        with self._lock:
            calls = {f"{trial.letter}{trial.number}": call for trial, call in self._calls.items()}
            pieces = self._pieces
        if calls:
            names = [f"{name}, call {call}" if call > 1 else name for name, call in calls.items()]
            word = "asking" if any(calls.values()) else "starting"
            heard = f": {count(pieces, 'token')} so far" if pieces else ""
            self._status.show(f"{word} {'; '.join(names)} ({len(self.tried)} of {self._total} trials done)", heard)

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


def _checked_submission(path: Path, params: Params, stack: ExitStack) -> Submission:
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
        print_stderr(line)
    if work is None or any(finding.severity == "error" for finding in findings):
        print_stderr(f"{path.name}: fix the errors above; nothing was asked")
        raise typer.Exit(EXIT_CHECK_FAILED)
    return Submission(team, work)


def _opened_model(params: Params, model: Model, name: str, run: Try) -> Backend:
    """Open a model's backend and look whether the model is there; `name` is what the user called it."""
    try:
        backend = open_backend(model, report=run.message, on_text=run.hear)
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
