"""The command `check`: it lists every problem that can be found before a run."""

import json as json_format
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from pcgeval.cli.options import Json, group, print_json
from pcgeval.core.console import EXIT_BAD_INPUT, count, print_stderr
from pcgeval.core.errors import PcgevalError
from pcgeval.core.layout import (
    DVC_LOCK,
    RECORDINGS,
    SEAL,
    SUBMISSIONS,
    grade_file,
    judge_recording_file,
    recording_file,
    rubric_file,
    stage_dir,
    trials,
)
from pcgeval.core.untrusted import printable_name

if TYPE_CHECKING:
    from pcgeval.core.params import Params
    from pcgeval.report.status import RunStatus
    from pcgeval.submissions.load import Submission

TRIAL_BYTES = 50_000  # of all stages' outputs and DVC's copy of them: 44 kB a trial in the demo
REPLY_BYTES = 16  # of one token: four bytes each in the call log, the record, the response and DVC's copies
app = group()
Severity = Literal["error", "failing team", "warning"]


class Finding(NamedTuple):
    """One problem: an error prevents the run, a failing team fails its own trials, a warning may be intended."""

    group: str
    severity: Severity
    text: str


class Inputs:
    """The inputs of a run, and the problems in them."""

    def __init__(self, params: "Params", status: "RunStatus | None", *, is_full: bool, is_sealing: bool) -> None:
        """Begin without problems; `status` is None if all models are replayed."""
        self.params, self.status, self.is_full, self.is_sealing = params, status, is_full, is_sealing
        self.submissions: dict[str, Submission] = {}  # those that can be read
        self.findings: dict[Finding, None] = {}  # in order, each once

    def add(self, group: str, severity: Severity, text: str) -> None:
        """Add a problem."""
        self.findings[Finding(group, severity, text)] = None

    @contextmanager
    def attempt(
        self, group: str, severity: Severity = "error", *, failing: type[PcgevalError] | tuple[()] = ()
    ) -> Iterator[None]:
        """Add a problem for each line of the error that ends the block; `failing` errors fail a team alone."""
        try:
            yield
        except (PcgevalError, OSError) as error:
            for line in str(error).splitlines():
                self.add(group, "failing team" if isinstance(error, failing) else severity, line.strip())


@app.command()
def check(
    full: Annotated[
        bool, typer.Option("--full", help="Also check models, packages, programs and classifier of a replay.")
    ] = False,
    do_seal: Annotated[
        bool, typer.Option("--seal", help="Write the hashes of params and submissions to results/seal.json.")
    ] = False,
    json: Json = False,
) -> None:
    """Check params.yaml, the submissions and all other inputs.

    The command lists all problems at once. If a model runs live, or with --full, it also asks the servers for each
    model, locks and installs the requirements, starts each program in the sandbox, and loads the classifier.

    --seal writes results/seal.json unless there is an error, and prints its hash. Publish both before the run: later
    checks warn about every change since.
    """
    from pcgeval.core.params import load_params
    from pcgeval.report.status import run_status

    summary = seal_sha256 = None
    try:
        params = load_params()
    except PcgevalError as error:
        findings = [Finding("params.yaml", "error", line) for line in str(error).splitlines()]
    else:
        is_live = any(model.backend != "recorded" for model in params.models.values())
        inputs = Inputs(params, run_status(params) if is_live else None, is_full=full or is_live, is_sealing=do_seal)
        for check_group in CHECKS:
            check_group(inputs)
        findings, summary = list(inputs.findings), _summary(inputs)
    passed = all(finding.severity != "error" for finding in findings)
    if do_seal and passed:
        seal_sha256 = _seal(params)
    if json:
        values = [finding._asdict() for finding in findings]
        print_json({"passed": passed, "summary": summary, "seal": seal_sha256, "findings": values})
    else:
        _print_findings(findings)
        if summary:
            print_stderr(summary)
        if seal_sha256:
            sys.stdout.write(f"{seal_sha256}\n")
    if not passed:
        raise typer.Exit(EXIT_BAD_INPUT)


def _print_findings(findings: list[Finding]) -> None:
    for name in dict.fromkeys(finding.group for finding in findings):
        print_stderr(f"{name}:")
        for _, severity, text in (finding for finding in findings if finding.group == name):
            print_stderr(f"  {severity}: {text.removeprefix(f'{name}: ')}")


def _summary(inputs: Inputs) -> str:
    params, competition = inputs.params, inputs.params.competition
    sizes = (
        count(len(params.teams), "submission"),
        count(len(params.models), "model"),
        count(len(competition.characters), "letter"),
        count(competition.trials, "trial"),
    )
    summary = f"{competition.name} {competition.edition}, {competition.round}: {' x '.join(sizes)}"
    return f"{summary}. {inputs.status.summary}" if inputs.status else summary


def _seal(params: "Params") -> str:
    """Write the seal, unless it exists, and return its hash."""
    from pcgeval.scoring.seal import make_seal

    seal = make_seal(params)
    if SEAL.exists():
        print_stderr(f"{SEAL}: agrees with params.yaml and the submissions")
    else:
        seal.write(SEAL)
        print_stderr(f"wrote {SEAL}: commit it with params.yaml and data/submissions, and publish that before the run")
    return seal.sha256


def _check_submissions(inputs: Inputs) -> None:
    """Read each submission, and warn about one with the README of another team."""
    from pcgeval.submissions.filing import is_same_team, team_in_readme
    from pcgeval.submissions.load import load_submission

    for team in inputs.params.teams:
        with inputs.attempt("submissions"):
            inputs.submissions[team] = load_submission(SUBMISSIONS / team)
    for team in inputs.submissions:
        with inputs.attempt("submissions", "warning"):
            name = team_in_readme(SUBMISSIONS / team)
            if name is not None and not is_same_team(name, team):
                text = f"README.md names the team {printable_name(name)!r}, but the folder is {team!r}"
                remedy = "Rename the folder, swap it with the other team's, or let the team correct its README.md."
                inputs.add("submissions", "warning", f"{SUBMISSIONS / team}: {text}. {remedy}")


def _check_recordings(inputs: Inputs) -> None:
    if not RECORDINGS.is_dir():
        text = "is missing, and stages depend on it. Make it, with any file in it, so that git keeps it."
        inputs.add("recordings", "error", f"{RECORDINGS}: {text}")
    for team, (name, model) in product(inputs.submissions, inputs.params.models.items()):
        path = recording_file(name, team)
        if model.backend == "recorded" and not path.is_file():
            text = f"no such recording. Set models.{name}.backend to ollama, or add the file."
            inputs.add("recordings", "error", f"{path}: {text}")
    rubric = inputs.params.rubric
    missing = [team for team in inputs.submissions if not judge_recording_file(team).is_file()]
    if missing and rubric.judge == "simple" and rubric.model and rubric.model.backend == "recorded":
        text = f"the judge has no recordings of {', '.join(missing)}: the leaves that a model judges get no grade."
        remedy = f"Set rubric.model.backend to ollama, or add {judge_recording_file('TEAM')}."
        inputs.add("recordings", "warning", f"{text} {remedy}")


def _check_dvc(inputs: Inputs) -> None:
    """Find the files that a killed DVC left half-written, with which it refuses to start."""
    import yaml
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from voluptuous import Invalid

    def read_lock(content: bytes) -> None:
        if not content.endswith(b"\n"):
            raise ValueError("the last line has no end")
        COMPILED_LOCKFILE_SCHEMA(yaml.load(content, yaml.CSafeLoader))

    for path, read in ((DVC_LOCK, read_lock), (Path(".dvc/tmp/rwlock"), json_format.loads)):
        try:
            if path.is_file():
                read(path.read_bytes())
        except (ValueError, yaml.YAMLError, Invalid):
            text = "DVC was killed while it wrote this. Remove it: nothing is asked, simulated or classified again."
            inputs.add("dvc", "error", f"{path}: {text}")


def _check_rubric(inputs: Inputs) -> None:
    from pcgeval.judge.settings import JudgeSettings
    from pcgeval.rubric.loading import load_rubric

    with inputs.attempt("rubric"):
        load_rubric(rubric_file(inputs.params.rubric.id))
    with inputs.attempt("rubric"):
        JudgeSettings.checked(dict(inputs.params.rubric))


def _check_disk(inputs: Inputs) -> None:
    """Compare the disk's free space with the space that new trials take."""
    from pcgeval.core.trials import record_path

    params = inputs.params
    to_do = [
        model.backend
        for (name, model), team, trial in product(params.models.items(), params.teams, trials(params))
        if not record_path(stage_dir("raw", name, team), team, trial).exists()
    ]
    least = len(to_do) * TRIAL_BYTES
    asked = len(to_do) - to_do.count("recorded")
    likely = 2 * least + asked * params.limits.tokens * REPLY_BYTES
    free = shutil.disk_usage(Path()).free
    if free < likely:
        text = f"{free / 1e9:.1f} GB are free, and the trials to do take {least / 1e9:.1f} to {likely / 1e9:.1f} GB"
        inputs.add("disk", "error" if free < least else "warning", f"{Path().absolute()}: {text}. Make room.")


def _check_models(inputs: Inputs) -> None:
    """Ask the servers for each model, the judge's too, and its digest; a server without work may be away."""
    from pcgeval.llm.backends import open_backend, pinned_digest

    params = inputs.params
    undone = {team.model for team in inputs.status.teams if team.done < team.trials} if inputs.status else set()
    models = [(model, name in undone) for name, model in params.models.items()]
    if params.rubric.judge == "simple" and params.rubric.model is not None:
        models.append((params.rubric.model, not all(grade_file(team).exists() for team in params.teams)))
    for model, has_work in models:
        if model.backend != "recorded":
            print_stderr(f"asking for the model {model.name}")
            reports: list[str] = []
            with inputs.attempt("models", "error" if has_work else "warning"):
                pinned_digest(model, open_backend(model, report=reports.append))
                for text in reports:
                    inputs.add("models", "warning", text)


def _check_classifier(inputs: Inputs) -> None:
    """Check the classifier's files, or load it, from the hub if necessary, and show it a picture."""
    from PIL import Image

    from pcgeval.similarity.classifier import Classifier
    from pcgeval.similarity.source import check_source

    settings = inputs.params.similarity
    with inputs.attempt("classifier"):
        if inputs.is_full:
            print_stderr("loading the classifier")
            classifier = Classifier.load(settings.model, settings.revision, settings.device)
            classifier.predict([Image.new("RGB", (64, 64), "white")])
        else:
            check_source(settings.model, settings.revision)


def _check_programs(inputs: Inputs) -> None:
    """Lock and install what the programs require, then start them in the sandbox, several at once."""
    from pcgeval.generation.runners import start_programs
    from pcgeval.sandbox.sandbox import TRUST_MEANS, TRUST_PROGRAMS, ResourceLimits, open_sandbox
    from pcgeval.submissions.load import Program
    from pcgeval.submissions.packages import LOCK, REQUIREMENTS, RequirementsError, interpreter_for, lock_requirements

    ready = {}
    for team, submission in inputs.submissions.items():
        if not inputs.is_full or not isinstance(program := submission.work, Program):
            continue
        if (program.folder / REQUIREMENTS).exists():
            print_stderr(f"installing what {team} requires")
        is_new = not (program.folder / LOCK).exists()
        with inputs.attempt("packages", failing=RequirementsError):
            if (lock := lock_requirements(program.folder)) and is_new:
                print_stderr(f"wrote {lock}: commit it, and every machine installs the same packages")
            interpreter_for(program.folder)
            ready[team] = program
    if not ready:
        return
    print_stderr(f"starting {', '.join(ready)}")
    with inputs.attempt("sandbox"), open_sandbox(ResourceLimits(), os.environ.get(TRUST_PROGRAMS) == "1") as sandbox:
        if not sandbox.contained:
            inputs.add("sandbox", "warning", f"there is none for {', '.join(ready)}. {TRUST_MEANS}")
        for team, reason in sorted(start_programs(ready, sandbox, inputs.params.competition.characters[0])):
            if reason is not None:
                inputs.add("programs", "failing team", f"{team}: {reason}")


def _check_seal(inputs: Inputs) -> None:
    """Compare params and submissions with the seal; differences are errors only if they prevent a new seal."""
    from pcgeval.scoring.seal import seal_differences

    severity: Severity = "error" if inputs.is_sealing else "warning"
    with inputs.attempt("seal", severity):
        differences = seal_differences(inputs.params)
        for difference in differences:
            inputs.add("seal", severity, difference)
        if differences and inputs.is_sealing:
            text = f"{SEAL} exists already. Undo the changes, or remove that file to seal again."
            inputs.add("seal", severity, text)


CHECKS: tuple[Callable[[Inputs], None], ...] = (  # the first one reads the submissions
    _check_submissions,
    _check_recordings,
    _check_dvc,
    _check_rubric,
    _check_disk,
    _check_models,
    _check_classifier,
    _check_programs,
    _check_seal,
)
