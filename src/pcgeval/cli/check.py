"""The command `check`: all that can be found before a run, and all of it at once."""

import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pcgeval.cli.options import Json, group, print_json
from pcgeval.core.console import EXIT_BAD_INPUT, count, print_stderr
from pcgeval.core.errors import PcgevalError

if TYPE_CHECKING:
    from pcgeval.core.params import Model, Params
    from pcgeval.report.status import RunStatus
    from pcgeval.submissions.load import Program, Submission

TRIAL_BYTES = 50_000  # of all stages' outputs and DVC's copy of them: 44 kB a trial in the demo
REPLY_BYTES = 16  # of one token: four bytes each in the call log, the record, the response and DVC's copies
app = group()
Severity = Literal["error", "failing team", "warning"]


@dataclass(frozen=True)
class CheckFinding:
    """One problem.

    Attributes:
        group: What was checked.
        severity: A run does not begin with an error; a failing team fails its own trials; a warning may be intended.
        text: What is wrong, where, and what to do.
    """

    group: str
    severity: Severity
    text: str


@app.command()
def check(
    full: Annotated[
        bool, typer.Option("--full", help="Check models, packages, programs and classifier of a replay too.")
    ] = False,
    do_seal: Annotated[
        bool, typer.Option("--seal", help="Write the hashes of params and submissions to results/seal.json.")
    ] = False,
    json: Json = False,
) -> None:
    """Check params.yaml, the submissions and all other inputs.

    All problems are listed at once. Where a model is asked for real, or with --full, the model's servers are asked for
    it, requirements are resolved, locked and installed, each program is started in the sandbox, several at once,
    and the classifier is loaded.

    What differs from results/seal.json is a warning. --seal writes that file unless there is an error, and prints its
    hash; publish both before the run, and everybody sees what was changed afterwards.
    """
    from pcgeval.core.params import load_params
    from pcgeval.report.status import run_status

    summary = seal_sha256 = None
    try:
        params = load_params()
    except PcgevalError as error:
        findings = _faults("params.yaml", error)
    else:
        is_live = any(model.backend != "recorded" for model in params.models.values())
        status = run_status(params) if is_live else None
        findings = list(dict.fromkeys(_all_findings(params, status, full=full)))
        findings += _seal_findings(params, is_sealing=do_seal)
        summary = _summary(params, status)
    passed = all(finding.severity != "error" for finding in findings)
    if do_seal and passed:
        seal_sha256 = _seal(params)
    if json:
        values = [asdict(finding) for finding in findings]
        print_json({"passed": passed, "summary": summary, "seal": seal_sha256, "findings": values})
    else:
        _print_findings(findings)
        if summary:
            print_stderr(summary)
        if seal_sha256:
            sys.stdout.write(f"{seal_sha256}\n")
    if not passed:
        raise typer.Exit(EXIT_BAD_INPUT)


def _print_findings(findings: list[CheckFinding]) -> None:
    for name in dict.fromkeys(finding.group for finding in findings):
        print_stderr(f"{name}:")
        for finding in findings:
            if finding.group == name:
                print_stderr(f"  {finding.severity}: {finding.text.removeprefix(f'{name}: ')}")


def _summary(params: "Params", status: "RunStatus | None") -> str:
    competition = params.competition
    sizes = (
        count(len(params.teams), "submission"),
        count(len(params.models), "model"),
        count(len(competition.characters), "letter"),
        count(competition.trials, "trial"),
    )
    summary = f"{competition.name} {competition.edition}, {competition.round}: {' x '.join(sizes)}"
    return f"{summary}. {status.summary}" if status else summary


def _faults(name: str, error: PcgevalError | OSError, severity: Severity = "error") -> list[CheckFinding]:
    return [CheckFinding(name, severity, line.strip()) for line in str(error).splitlines()]


def _attempt(name: str, work: Callable[..., object], *arguments: object) -> list[CheckFinding]:
    """Return the faults for which a function of a package raises an error."""
    try:
        work(*arguments)
    except (PcgevalError, OSError) as error:
        return _faults(name, error)
    return []


def _all_findings(params: "Params", status: "RunStatus | None", *, full: bool) -> Iterator[CheckFinding]:
    from pcgeval.core.layout import SUBMISSIONS, rubric_file
    from pcgeval.judge.settings import JudgeSettings
    from pcgeval.rubric.loading import load_rubric
    from pcgeval.similarity.source import check_source
    from pcgeval.submissions.load import Program, load_submission

    submissions: dict[str, Submission] = {}
    for team in params.teams:
        try:
            submissions[team] = load_submission(SUBMISSIONS / team)
        except PcgevalError as error:
            yield from _faults("submissions", error)
    yield from _name_findings(submissions)
    yield from _recording_findings(params, submissions)
    yield from _dvc_findings()
    yield from _attempt("rubric", load_rubric, rubric_file(params.rubric.id))
    yield from _attempt("rubric", JudgeSettings.checked, dict(params.rubric))
    yield from _disk_findings(params)
    yield from _model_findings(params, status)
    if full or status:
        yield from _classifier_findings(params)
        programs = {team: entry.work for team, entry in submissions.items() if isinstance(entry.work, Program)}
        yield from _program_findings(params, programs)
    else:
        yield from _attempt("classifier", check_source, params.similarity.model, params.similarity.revision)


def _name_findings(teams: Collection[str]) -> Iterator[CheckFinding]:
    """Name the submissions that have the README of another team."""
    from pcgeval.core.layout import SUBMISSIONS
    from pcgeval.core.untrusted import printable_name
    from pcgeval.submissions.filing import is_same_team, team_in_readme

    for team in teams:
        try:
            name = team_in_readme(SUBMISSIONS / team)
        except PcgevalError as error:
            yield from _faults("submissions", error, "warning")
            continue
        if name is not None and not is_same_team(name, team):
            text = (
                f"{SUBMISSIONS / team}: README.md names the team {printable_name(name)!r}, but the folder is {team!r}"
            )
            remedy = "Rename the folder, swap it with the other team's, or let the team correct its README.md."
            yield CheckFinding("submissions", "warning", f"{text}. {remedy}")


def _recording_findings(params: "Params", submissions: "Mapping[str, Submission]") -> Iterator[CheckFinding]:
    from pcgeval.core.layout import RECORDINGS, judge_recording_file, recording_file

    if not RECORDINGS.is_dir():
        text = f"{RECORDINGS}: is missing, and stages depend on it. Make it, with any file in it, so that git keeps it."
        yield CheckFinding("recordings", "error", text)
    for team, (name, model) in product(submissions, params.models.items()):
        path = recording_file(name, team)
        if model.backend == "recorded" and not path.is_file():
            text = f"{path}: no such recording. Set models.{name}.backend to ollama, or add the file."
            yield CheckFinding("recordings", "error", text)
    judge = params.rubric.model if params.rubric.judge == "simple" else None
    missing = [team for team in submissions if not judge_recording_file(team).is_file()]
    if judge and judge.backend == "recorded" and missing:
        text = f"the judge has no recordings of {', '.join(missing)}: the leaves that a model judges get no grade"
        path = judge_recording_file("TEAM")
        yield CheckFinding("recordings", "warning", f"{text}. Set rubric.model.backend to ollama, or add {path}.")


def _dvc_findings() -> Iterator[CheckFinding]:
    """Name the files that a killed DVC left half-written: it refuses to start with them."""
    import yaml
    from dvc.schema import COMPILED_LOCKFILE_SCHEMA
    from voluptuous import Invalid

    from pcgeval.core.files import read_text
    from pcgeval.core.layout import DVC_LOCK

    for path in (DVC_LOCK, Path(".dvc", "tmp", "rwlock")):
        if not path.is_file():
            continue
        text = read_text(path)
        try:
            values = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - both are safe
            if path == DVC_LOCK:
                COMPILED_LOCKFILE_SCHEMA(values)
            is_whole = isinstance(values, dict) and text.endswith(("\n", "}"))
        except (yaml.YAMLError, Invalid):
            is_whole = False
        if not is_whole:
            text = "DVC was killed while it wrote this. Remove it: nothing is asked, simulated or classified again."
            yield CheckFinding("dvc", "error", f"{path}: {text}")


def _disk_findings(params: "Params") -> Iterator[CheckFinding]:
    """Compare the disk's free space with what the trials that were never done will take."""
    from pcgeval.core.layout import stage_dir, trials
    from pcgeval.core.trials import record_path

    to_do = asked = 0
    for (name, model), team, trial in product(params.models.items(), params.teams, trials(params)):
        if not record_path(stage_dir("raw", name, team), team, trial).exists():
            to_do += 1
            asked += model.backend != "recorded"
    least = to_do * TRIAL_BYTES
    likely = 2 * least + asked * params.limits.tokens * REPLY_BYTES
    free = shutil.disk_usage(Path()).free
    if free < likely:
        text = f"{free / 1e9:.1f} GB are free, and the trials to do take {least / 1e9:.1f} to {likely / 1e9:.1f} GB"
        severity: Severity = "error" if free < least else "warning"
        yield CheckFinding("disk", severity, f"{Path().absolute()}: {text}. Make room.")


def _model_findings(params: "Params", status: "RunStatus | None") -> Iterator[CheckFinding]:
    """Ask the servers for each model, the judge's too, and its digest; one that has nothing to do may be away."""
    from pcgeval.core.layout import grade_file
    from pcgeval.llm.backends import open_backend, pinned_digest

    undone = {team.model for team in status.teams if team.done < team.trials} if status else set()
    models = [(model, name in undone) for name, model in params.models.items()]
    if params.rubric.judge == "simple" and params.rubric.model is not None:
        models.append((params.rubric.model, not all(grade_file(team).exists() for team in params.teams)))

    def ask(model: "Model", left_out: list[str]) -> None:
        pinned_digest(model, open_backend(model, Path(), left_out.append))

    for model, is_needed in models:
        if model.backend != "recorded":
            print_stderr(f"asking for the model {model.name}")
            left_out: list[str] = []
            faults = _attempt("models", ask, model, left_out)
            yield from faults if is_needed else (replace(fault, severity="warning") for fault in faults)
            if not faults:
                yield from (CheckFinding("models", "warning", text) for text in left_out)


def _classifier_findings(params: "Params") -> list[CheckFinding]:
    """Load the classifier, which fetches one of the hub, and show it a picture."""
    from PIL import Image

    from pcgeval.similarity.classifier import Classifier

    def classify() -> None:
        settings = params.similarity
        classifier = Classifier.load(settings.model, settings.revision, settings.device)
        classifier.predict([Image.new("RGB", (64, 64), "white")])

    print_stderr("loading the classifier")
    return _attempt("classifier", classify)


def _program_findings(params: "Params", programs: "dict[str, Program]") -> Iterator[CheckFinding]:
    """Install what the programs require, and start each of them."""
    from pcgeval.generation.runners import start_programs
    from pcgeval.sandbox.sandbox import TRUST_MEANS, TRUST_PROGRAMS, ResourceLimits, SandboxError, open_sandbox
    from pcgeval.submissions.packages import LOCK, REQUIREMENTS, RequirementsError, interpreter_for, lock_requirements

    ready = {}
    for team, program in programs.items():
        if (program.folder / REQUIREMENTS).exists():
            print_stderr(f"installing what {team} requires")
        try:
            is_new = not (program.folder / LOCK).exists()
            if (lock := lock_requirements(program.folder)) and is_new:
                print_stderr(f"wrote {lock}: commit it, and every machine installs the same packages")
            interpreter_for(program.folder)
            ready[team] = program
        except RequirementsError as error:
            yield from _faults("packages", error, "failing team")
        except (PcgevalError, OSError) as error:
            yield from _faults("packages", error)
    if not programs:
        return
    print_stderr(f"starting {', '.join(ready)}" if ready else "no program can be started")
    try:
        with open_sandbox(ResourceLimits(), os.environ.get(TRUST_PROGRAMS) == "1") as sandbox:
            if not sandbox.contained:
                yield CheckFinding("sandbox", "warning", f"there is none for {', '.join(programs)}. {TRUST_MEANS}")
            starts = set(start_programs(ready, sandbox, params.competition.characters[0]))
    except SandboxError as error:
        yield from _faults("sandbox", error)
        return
    for team, reason in sorted((team, reason) for team, reason in starts if reason is not None):
        yield CheckFinding("programs", "failing team", f"{team}: {reason}")


def _seal_findings(params: "Params", *, is_sealing: bool) -> list[CheckFinding]:
    """Name what is not as it was sealed."""
    from pcgeval.core.layout import SEAL
    from pcgeval.scoring.seal import seal_differences

    severity: Severity = "error" if is_sealing else "warning"
    try:
        findings = [CheckFinding("seal", severity, difference) for difference in seal_differences(params)]
    except PcgevalError as error:
        return _faults("seal", error, severity)
    if findings and is_sealing:
        text = f"{SEAL} is there already. Put back what was changed, or remove that file to seal again."
        findings.append(CheckFinding("seal", severity, text))
    return findings


def _seal(params: "Params") -> str:
    """Write the seal if there is none, and return its hash."""
    from pcgeval.core.layout import SEAL
    from pcgeval.scoring.seal import make_seal

    seal = make_seal(params)
    if SEAL.exists():
        print_stderr(f"{SEAL}: agrees with params.yaml and the submissions")
    else:
        seal.write(SEAL)
        print_stderr(f"wrote {SEAL}: commit it with params.yaml and data/submissions, and publish that before the run")
    return seal.sha256
