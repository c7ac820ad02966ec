"""`pcgeval try` from its first check to its summary: nothing is asked before all that can be checked is."""

from contextlib import ExitStack
from pathlib import Path

import typer

from pcgeval.cli.output_folder import OutputFolder
from pcgeval.cli.settings import SettingsError, known_model, load_submission_file
from pcgeval.cli.try_output import TryDisplay
from pcgeval.cli.try_submission import baseline_summary, summary, try_submission
from pcgeval.core.console import EXIT_CHECK_FAILED
from pcgeval.core.errors import PcgevalError
from pcgeval.core.layout import trials
from pcgeval.core.params import Model, Params
from pcgeval.generation.environments import interpreter_for
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.local_models import LOCAL_MODELS
from pcgeval.llm.protocol import Backend, LlmError
from pcgeval.sandbox.sandbox import ResourceLimits, open_sandbox
from pcgeval.similarity.classifier import Classifier, loaded_classifier
from pcgeval.submissions.findings import printable_findings
from pcgeval.submissions.hand_in import opened
from pcgeval.submissions.load import Program, Submission
from pcgeval.submissions.validate import check, work_findings


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
        OutputFolder(folder, submission.team, key)  # one that may not be used is refused before anything is loaded
        classifier = _ready_classifier(submission, wanted, display, trust_programs=trust_programs)
        backend = _opened_model(competition, model, name, display)

        def finish() -> None:
            own = summary(submission.team, display.tried, wanted.diversity.vectors)
            baseline = baseline_summary(competition, model, wanted.competition.characters)
            display.finish(own, baseline, len(list(trials(competition))))
            display.message(f"all files are in {folder}")

        try:
            try_submission(
                wanted,
                key,
                submission,
                backend,
                classifier,
                folder,
                display.scored,
                observer=display,
                trust_programs=trust_programs,
            )
        except PcgevalError:
            if display.tried:
                finish()
            raise
        finish()


def _checked_submission(path: Path, params: Params, display: TryDisplay, stack: ExitStack) -> Submission:
    """Return a submission that passes the checks of `pcgeval validate`; every finding is told.

    Args:
        path: The submission.
        params: What the competition allows.
        display: Tells the findings.
        stack: Removes the contents of a zip file when it ends.

    Raises:
        typer.Exit: It has errors.
        PcgevalError: There is no such submission.
    """
    path = path.resolve()
    submission: Submission | None
    if path.is_dir() or path.suffix.lower() == ".zip":
        found = check(stack.enter_context(opened(path)), params.limits)
        findings = found.findings
        submission = Submission(path.stem if path.is_file() else path.name, found.work) if found.work else None
    else:
        submission = load_submission_file(path)
        findings = tuple(work_findings(submission.work, params.limits))
    for line in printable_findings(findings):
        display.message(line)
    if submission is None or any(finding.severity == "error" for finding in findings):
        display.message(f"{path.name}: fix the errors above; nothing was asked")
        raise typer.Exit(EXIT_CHECK_FAILED)
    return submission


def _ready_classifier(
    submission: Submission, params: Params, display: TryDisplay, *, trust_programs: bool
) -> Classifier:
    """Return the classifier, once a program's packages are installed and its sandbox is known to work.

    Raises:
        RequirementsError: The program asks for what cannot be had.
        SandboxError: There is no sandbox for it.
        ClassifierError: The classifier cannot be loaded.
    """
    if isinstance(submission.work, Program):
        display.activity("preparing the program's packages and sandbox")
        interpreter_for(submission.work.folder)
        with open_sandbox(ResourceLimits(), trust_programs):
            pass
    display.activity("loading the classifier")
    similarity = params.similarity
    return loaded_classifier(similarity.model, similarity.revision, similarity.device)


def _opened_model(params: Params, model: Model, name: str, display: TryDisplay) -> Backend:
    """Open a model's backend and look whether the model is there.

    Args:
        params: The competition.
        model: The model.
        name: The name that it was asked for by.
        display: Shows what is under way.

    Raises:
        LlmError: It cannot be asked.
        SettingsError: The same, for a model of which nothing but its name is known.
    """
    display.activity(f"loading {model.name}" if model.backend == "llamacpp" else f"looking for {model.name}")
    try:
        backend = open_backend(model, report=display.message, on_text=display.hear)
        pinned_digest(model, backend)
    except LlmError as error:
        if model.backend == "ollama" and model.host is None and known_model(params, name) is None:
            local = ", ".join(each.name for each in LOCAL_MODELS)
            raise SettingsError(
                f"model {name}: is neither in params.yaml nor one of the local models ({local}), and as a model of "
                f"Ollama: {error} Name a local model, of which the beginning is enough (fetched with `pcgeval models "
                "fetch NAME`); or give --host ADDRESS of an Ollama server that has it; or --base-url http://ADDRESS/v1 "
                "of a server with OpenAI's interface."
            ) from error
        raise
    return backend
