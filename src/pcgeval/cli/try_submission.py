"""`pcgeval try`: run a few trials of one submission as the competition does, and score each level at once.

No model is asked before all checks have passed. All files go into one folder: responses, calls, levels and pictures
with the official names, and the output of programs. A second try in the same folder keeps the finished trials.
"""

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import typer

from pcgeval.cli.options import print_lines, terminal_width
from pcgeval.cli.settings import SettingsError, known_model
from pcgeval.cli.try_output import TriedTrial, print_summary, trial_lines
from pcgeval.core.console import EXIT_CHECK_FAILED, StatusLine, count, duration, print_stderr
from pcgeval.core.files import read_json, read_text, write_bytes, write_json, write_text
from pcgeval.core.layout import EXTENSIONS, Trial, tag, trial_file, trials
from pcgeval.core.locks import lock_folder
from pcgeval.core.params import Model, Params
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
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.submissions.load import Program, Prompt, Submission, load_prompt
from pcgeval.submissions.packages import interpreter_for
from pcgeval.submissions.validate import SubmissionCheck, check, opened, printable_findings, work_findings

MARKER = ".pcgeval-try.json"  # names the team and model of the folder's trials
LOCK = ".pcgeval-try.lock"


def run_try(
    path: Path, name: str, competition: Params, params: Params, out: Path | None, *, trust_programs: bool, json: bool
) -> None:
    """Check a submission and everything that its trials need, run them, and print each trial and the means.

    `path` may be the file that starts a program, or a prompt; `name` is the model's on the command line; `params` are
    those of the competition with the one model, the letters and the number of trials to run. What is finished when an
    error ends the try is printed and kept.
    """
    ((key, model),) = params.models.items()
    with ExitStack() as stack:
        status = stack.enter_context(StatusLine())
        submission = _checked_submission(path, params, stack)
        folder = out or Path("rehearsals") / submission.team / key
        owner = {"team": submission.team, "model": key}
        _refuse_foreign(folder, owner)
        if isinstance(submission.work, Program):
            status.show("preparing the program's packages and sandbox")
            interpreter_for(submission.work.folder)
            with open_sandbox(ResourceLimits(), trust_programs):
                pass
        status.show("loading the classifier")
        similarity = params.similarity
        classifier = loaded_classifier(similarity.model, similarity.revision, similarity.device)
        status.show(f"loading {model.name}" if model.backend == "llamacpp" else f"looking for {model.name}")
        run = _Try(params, submission, classifier, folder, status, prints=not json)
        backend = _opened_model(competition, model, name, run)
        stack.enter_context(lock_folder(folder, folder / LOCK))
        write_json(folder / MARKER, owner)
        try:
            do_trials(
                params,
                key,
                [TeamTrials(submission, backend, folder / "raw")],
                run.score,
                state=folder / "unfinished",
                trust_programs=trust_programs,
                observer=run,
            )
        finally:
            if run.tried:
                status.clear()
                print_summary(run.tried, competition, params, json=json)
                print_stderr(f"all files are in {folder}")


@dataclass
class _Try:
    """Observe the trials of one submission, score them, and write and print their results.

    All files go to `<folder>/<stage>/<letter>/...`.
    """

    params: Params
    submission: Submission
    classifier: Classifier
    folder: Path
    status: StatusLine
    prints: bool
    tried: list[TriedTrial] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    calls: dict[Trial, int] = field(default_factory=dict)  # of the trials under way
    pieces: int = 0  # of replies, since a trial ended; most servers send one for each token

    def message(self, text: str) -> None:
        """Print a message that stays."""
        self.status.clear()
        print_stderr(text)

    def asking(self, trial: Trial, call: int) -> None:
        """Show that a trial's program starts, or asks the model."""
        self.calls[trial] = call
        self._show()

    def hear(self, _: str) -> None:
        """Count a piece of a reply."""
        self.pieces += 1
        self._show()

    def ended(self, trial: Trial, printed: str) -> None:
        """Write the output of a trial's program; remove that of an earlier try if it printed nothing."""
        if printed:
            lines = printed.replace("\r\n", "\n").replace("\r", "\n")  # progress bars return to the start of their line
            write_text(self._printed(trial), printable_text(lines))
        else:
            self._printed(trial).unlink(missing_ok=True)
        self.calls.pop(trial, None)
        self.pieces = 0

    def score(self, trial: Trial, record: TrialRecord, is_new: bool) -> None:
        """Score a trial's response, write the files of its level, and print it."""
        team, physics = self.submission.team, self.params.physics
        files = {stage: trial_file(self.folder / stage, stage, team, trial) for stage in EXTENSIONS}
        response = read_text(files["raw"])
        if record.reason is None:
            level = score_level(response, trial.letter, self.classifier, physics, read_as="response")
        else:
            level = LevelScore(
                letter=trial.letter,
                read_as="response",
                physics=physics,
                failed_stage="generate",
                reason=record.reason,
            )
        for path, content in (
            (files["intermediate"], None if level.code is None else level.code.encode()),
            (files["levels"], None if level.xml is None else level.xml.encode()),
            (files["images"], png_bytes(level.image()) if level.simulated else None),
        ):
            if content is None:
                path.unlink(missing_ok=True)  # of an earlier try
            else:
                write_bytes(path, content)
        printed = self._printed(trial)
        tried = TriedTrial(
            team=team,
            trial=trial,
            record=record,
            level=level,
            response=files["raw"],
            picture=files["images"] if level.simulated else None,
            printed=printed if printed.is_file() else None,
            supplied=supplied_blocks(self.submission.work, trial.letter, response, record),
            is_new=is_new,
        )
        self.tried.append(tried)
        self.status.clear()
        if self.prints:
            print_lines([*trial_lines(tried, terminal_width(piped=sys.maxsize)), ""])
            sys.stdout.flush()
        else:
            self.status.show(str(tried))

    def _show(self) -> None:
        """Show the calls under way, the finished trials, and the time left."""
        calls, total = dict(self.calls), len(list(trials(self.params)))
        names = [f"{trial.letter}{trial.number}{f', call {call}' if call > 1 else ''}" for trial, call in calls.items()]
        verb = "asking" if any(calls.values()) else "starting"
        detail = f": {count(self.pieces, 'token')} so far" if self.pieces else ""
        if new := sum(tried.is_new for tried in self.tried):
            pace = (time.monotonic() - self.started) / new
            detail += f", about {duration(pace * (total - len(self.tried)))} left"
        self.status.show(f"{verb} {'; '.join(names)} ({len(self.tried)} of {total} trials done)", detail)

    def _printed(self, trial: Trial) -> Path:
        return self.folder / "printed" / trial.letter / f"{tag(self.submission.team, trial)}.txt"


def _refuse_foreign(folder: Path, owner: dict[str, str]) -> None:
    """Refuse a folder with files, unless a try of the same team and model made it."""
    if (folder / MARKER).is_file():
        other = read_json(folder / MARKER)
        if other != owner:
            held = f"holds {other['team']} with {other['model']}, not {owner['team']} with {owner['model']}"
            raise SettingsError(f"{folder}: {held}. Name another folder with --out.")
    elif folder.exists() and not (folder.is_dir() and {path.name for path in folder.iterdir()} <= {LOCK}):
        raise SettingsError(
            f"{folder}: already exists and `pcgeval try` did not make it. Name a new or empty folder with --out."
        )


def _checked_submission(path: Path, params: Params, stack: ExitStack) -> Submission:
    """Return a submission that passes the checks of `pcgeval validate`, and print all findings.

    `stack` removes the unpacked contents of a zip file when it ends.
    """
    path = path.resolve()
    team = path.name if path.is_dir() else path.stem
    if path.is_dir() or path.suffix.lower() == ".zip":
        checked = check(stack.enter_context(opened(path)), params.limits)
    elif path.is_file() and path.suffix in {".py", ".txt"}:
        team = path.parent.name
        work = Program(path.parent, path.name) if path.suffix == ".py" else Prompt(load_prompt(path))
        checked = SubmissionCheck(1, path.stat().st_size, work, tuple(work_findings(work, params.limits)))
    else:
        fault = "is neither a program nor the text of a prompt" if path.exists() else "there is no such submission"
        raise SettingsError(f"{path}: {fault}. Name a submission's folder, zip file, .py file or prompt.txt.")
    for line in printable_findings(checked.findings):
        print_stderr(line)
    if checked.work is None or not checked.passed:
        print_stderr(f"{path.name}: fix the errors above; nothing was asked")
        raise typer.Exit(EXIT_CHECK_FAILED)
    return Submission(team, checked.work)


def _opened_model(params: Params, model: Model, name: str, run: _Try) -> Backend:
    """Open a model's backend and make sure that it has the model; `name` is the name on the command line."""
    try:
        backend = open_backend(model, report=run.message, on_text=run.hear)
        pinned_digest(model, backend)
    except LlmError as error:
        if model.backend != "ollama" or model.host is not None or known_model(params, name):
            raise
        local = ", ".join(local.name for local in LOCAL_MODELS)
        raise SettingsError(
            f"model {name}: is neither in params.yaml nor one of the local models ({local}), and as a model of "
            f"Ollama: {error} Name a local model (fetched with `pcgeval models fetch NAME`), or the server with the "
            "model: --host ADDRESS for Ollama, --base-url http://ADDRESS/v1 for OpenAI's interface."
        ) from error
    return backend
