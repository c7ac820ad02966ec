"""The commands `check`, every problem that can be found before a run, and `run`, from the checks to the ranking.

`run` evaluates the competition of this folder, or another round of it below `rounds/`. The workspace of a round has
copies of stages and inputs, and separate outputs. It shares the cache and the call log: what both rounds need is
computed, or asked of a model, once.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import psutil
import typer
import yaml

from pcgeval.cli.options import Json, group, print_json
from pcgeval.cli.ranking import show_ranking
from pcgeval.cli.status import RunStatus, run_status
from pcgeval.core.console import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, INSIDE_RUN, print_stderr
from pcgeval.core.errors import FileError, PcgevalError
from pcgeval.core.files import copy_files, derived_seed, write_text
from pcgeval.core.locks import lock_folder
from pcgeval.core.text import count, listed
from pcgeval.formats import layout
from pcgeval.formats.params import PARAMS_FILE, Params, ParamsError, load_params
from pcgeval.formats.trials import record_path
from pcgeval.judge.settings import JudgeSettings
from pcgeval.llm.backends import open_backend, pinned_digest
from pcgeval.llm.protocol import usual_tokens
from pcgeval.pipeline import check_package
from pcgeval.proof.commitment import read_commitment
from pcgeval.proof.parts import parts_for
from pcgeval.rubric.tree import load_rubric
from pcgeval.sandbox.sandbox import TRUST_MEANS, ResourceLimits, open_sandbox, programs_are_trusted
from pcgeval.similarity.source import check_source
from pcgeval.submissions.load import Program, Prompt, Submission, load_submission
from pcgeval.submissions.packages import (
    REQUIREMENTS,
    PackagesError,
    RequirementsError,
    interpreter_for,
    lock_requirements,
)

Severity = Literal["error", "failing team", "warning"]
_TRIAL_BYTES = 100_000  # of the files of all stages and DVC's copies of them: twice the mean of the demo
_TOKEN_BYTES = 16  # of a reply's token: 4 bytes each in the call log, the record, the response and DVC's copies
ROUNDS = Path("rounds")
_DVC_CONFIG = """\
[core]
    analytics = false
    no_scm = true
    check_update = false
[cache]
    dir = {cache}
    type = copy
"""

app = group()


class Finding(NamedTuple):
    """One problem: an error prevents the run, a failing team fails its own trials, a warning may be intended."""

    group: str
    severity: Severity
    text: str


Findings = list[Finding]


@contextmanager
def _attempt(findings: Findings, group: str, severity: Severity = "error") -> Iterator[None]:
    """Add a finding for each line of the error that ends the block."""
    try:
        yield
    except (PcgevalError, OSError) as error:
        for line in str(error).splitlines():
            findings.append(Finding(group, severity, line.strip()))


@app.command()
def check(
    full: Annotated[bool, typer.Option("--full", help="Check a replay as if its models ran live.")] = False,
    json: Json = False,
) -> None:
    """Check params.yaml, the submissions and all other inputs.

    The command lists all problems at once. If a model runs live, or with --full, it also asks the servers for each
    model, locks and installs the requirements, starts each program with trials to do, and loads the classifier.

    It prints the commit to publish before the run, or names what is not committed. `pcgeval audit --since COMMIT`
    names every change after that.
    """
    findings, answers, summary = Findings(), list[str](), None
    with _attempt(findings, PARAMS_FILE):
        params = load_params()
        answers, summary = _check_inputs(params, findings, is_full=full)
    # the workspace of a round is in no commit: its inputs are copies
    commit = None if INSIDE_RUN in os.environ else _check_commitment(findings)
    findings = list(dict.fromkeys(findings))  # two models may have the same fault
    passed = all(finding.severity != "error" for finding in findings)
    if json:
        values = [finding._asdict() for finding in findings]
        print_json({"passed": passed, "answers": answers, "summary": summary, "commit": commit, "findings": values})
    else:
        for finding in findings:
            print_stderr(f"{finding.severity}: {finding.text}")
        for line in (*answers, *filter(None, [summary])):
            print_stderr(line)
        if commit:
            sys.stdout.write(f"commit to publish: {commit}\n")
    if not passed:
        raise typer.Exit(EXIT_BAD_INPUT)


def _check_inputs(params: Params, findings: Findings, *, is_full: bool) -> tuple[list[str], str]:
    """Check everything that params.yaml names; return a line about each live model, and one about the run's size."""
    is_live = any(model.backend != "recorded" for model in params.models.values())
    status = run_status(params) if is_live else None
    submissions: dict[str, Submission] = {}
    for team, decisions in params.teams.items():
        with _attempt(findings, "submissions"):
            submissions[team] = load_submission(layout.SUBMISSIONS / team, decisions)
    _check_recordings(params, list(submissions), findings)
    _check_dvc(findings)
    _check_disk(params, findings)
    with _attempt(findings, "rubric"):
        load_rubric(layout.rubric_file(params.rubric.id))
    with _attempt(findings, "rubric"):
        JudgeSettings.checked(dict(params.rubric))
    for team in params.teams if params.rubric.judge == "human" else ():
        if not (path := layout.human_grades_file(params.rubric.id, team)).is_file():
            text = f"{path}: is missing, and the judge human reads it. Write it, or choose another judge."
            findings.append(Finding("rubric", "error", text))
    answers = _check_models(params, status, submissions, findings)
    _check_classifier(params, findings, is_full=is_full or is_live)
    undone = {team.team for team in status.teams if team.done < team.trials} if status else set()
    programs = {
        team: entry.work
        for team, entry in submissions.items()
        if isinstance(entry.work, Program) and (is_full or team in undone)
    }
    _check_programs(params, programs, findings)
    competition = params.competition
    sizes = (
        count(len(params.teams), "submission"),
        count(len(params.models), "model"),
        count(len(competition.characters), "letter"),
        count(competition.trials, "trial"),
    )
    summary = f"{competition.name} {competition.edition}, {competition.round}: {' x '.join(sizes)}"
    return answers, f"{summary}. {status.summary}" if status else summary


def _check_recordings(params: Params, teams: list[str], findings: Findings) -> None:
    for folder in (layout.RECORDINGS, layout.LOCKS):
        if not folder.is_dir():
            text = "is missing, and stages depend on it. Make the folder; it may be empty."
            findings.append(Finding(folder.name, "error", f"{folder}: {text}"))
    judge = {"rubric.model": params.rubric.model} if params.rubric.judge == "simple" and params.rubric.model else {}
    for name, model in ({f"models.{name}": model for name, model in params.models.items()} | judge).items():
        if model.backend == "recorded" and model.digest is None:
            text = f"{name}.digest is null, and a replay finds its replies by it. Write the recorded model's."
            findings.append(Finding("recordings", "error", text))
    for team, (name, model) in product(teams, params.models.items()):
        path = layout.recording_file(name, team)
        if model.backend == "recorded" and not path.is_file():
            text = f"no such recording. Add it, or set models.{name}.backend to the one that has the model."
            findings.append(Finding("recordings", "error", f"{path}: {text}"))


def _check_dvc(findings: Findings) -> None:
    """Find the files that a killed DVC left half-written, with which it refuses to start."""
    for path in (layout.DVC_LOCK, Path(".dvc/tmp/rwlock")):
        try:
            content = path.read_bytes() if path.is_file() else b"{}\n"
            is_whole = isinstance(yaml.load(content, yaml.CSafeLoader), dict) and (
                content.endswith(b"\n") or path != layout.DVC_LOCK
            )
        except yaml.YAMLError:
            is_whole = False
        if not is_whole:
            text = "DVC was killed while it wrote this. Remove it: nothing is asked, simulated or classified again."
            findings.append(Finding("dvc", "error", f"{path}: {text}"))


def _check_disk(params: Params, findings: Findings) -> None:
    """Warn if the trials without a record may need more space than the disk has."""
    places = product(params.models, params.teams, params.trials())
    paths = (record_path(layout.stage_dir("raw", model, team), team, trial) for model, team, trial in places)
    needed = sum(not path.exists() for path in paths) * (_TRIAL_BYTES + _TOKEN_BYTES * params.limits.tokens)
    free = shutil.disk_usage(Path()).free
    if free < needed:
        text = f"{free / 1e9:.1f} GB are free, and the trials to do may need {needed / 1e9:.1f} GB. Make room."
        findings.append(Finding("disk", "warning", f"{Path().absolute()}: {text}"))


def _check_models(
    params: Params, status: RunStatus | None, submissions: dict[str, Submission], findings: Findings
) -> list[str]:
    """Make the neutral call to each live model and return what came back; ask for the digest of the judge's model.

    A server that has no trials left may be down.
    """
    undone = {team.model for team in status.teams if team.done < team.trials} if status else set()
    lines = []
    for name, model in params.models.items():
        if model.backend != "recorded":
            print_stderr(f"asking the model {model.name}")
            with _attempt(findings, "models", "error" if name in undone else "warning"):
                lines.append(_neutral_answer(params, name, submissions, findings))
    judge = params.rubric.model if params.rubric.judge == "simple" else None
    if judge is not None and judge.backend != "recorded":
        from pcgeval.judge.calls import check_judge  # noqa: PLC0415

        is_graded = all(layout.grade_file(team).exists() for team in params.teams)
        with _attempt(findings, "models", "warning" if is_graded else "error"):
            check_judge(judge)
            if judge.digest is None and judge.backend != "openai":
                text = "rubric.model.digest is null, so another model could grade in its place. Write the model's."
                findings.append(Finding("models", "warning", text))
    return lines


def _neutral_answer(params: Params, name: str, submissions: dict[str, Submission], findings: Findings) -> str:
    """Make the neutral call to a model and return a line about the reply and the context."""
    from pcgeval.llm.blame import neutral_request, neutral_seconds  # noqa: PLC0415

    model = params.models[name]
    backend = open_backend(model)
    digest = pinned_digest(model, backend)
    if model.digest is None and model.backend != "openai":  # which has none
        text = f"models.{name}.digest is null, so another model could answer in its place. Write {digest} there."
        findings.append(Finding("models", "warning", text))
    reply = backend.chat(neutral_request(model), neutral_seconds(params.limits))
    facts = [
        f"model {name} answered as {reply.answered_by or 'an unnamed model'}",
        f"{reply.prompt_tokens} tokens read and {reply.output_tokens} written",
        f"ended with {reply.done_reason}",
        "thoughts and no text" if reply.thoughts else "no thoughts" if reply.text.strip() else "no text",
        f"{reply.seconds:g} s",
    ]
    context = model.options.get("num_ctx")
    facts.append(f"num_ctx {context} is sent" if context else "no num_ctx is sent, so the server decides the context")
    prompts = {
        team: usual_tokens(entry.work.text) for team, entry in submissions.items() if isinstance(entry.work, Prompt)
    }
    if prompts:
        team = max(prompts, key=lambda team: prompts[team])
        longest = f"the longest prompt ({team}, about {prompts[team]} tokens)"
        fits = isinstance(context, int) and prompts[team] < context
        facts.append(f"{longest} {'fits' if fits else 'may not fit'}" if context else longest)
        if context and not fits:
            text = f"{longest} does not fit into num_ctx {context} of models.{name}. Raise it."
            findings.append(Finding("models", "warning", text))
    return "; ".join(facts)


def _check_classifier(params: Params, findings: Findings, *, is_full: bool) -> None:
    """Check the classifier's files, or load it, from the hub if necessary."""
    settings = params.similarity
    with _attempt(findings, "classifier"):
        if is_full:
            from PIL import Image  # noqa: PLC0415 - a replay needs no picture, no network and no program

            from pcgeval.similarity.classifier import Classifier  # noqa: PLC0415

            print_stderr("loading the classifier")
            classifier = Classifier.load(settings.model, settings.revision, settings.device, settings.precision)
            classifier.predict([Image.new("RGB", (64, 64), "white")])
        else:
            check_source(settings.model, settings.revision)


def _check_programs(params: Params, programs: dict[str, Program], findings: Findings) -> None:
    """Lock and install what the programs require, then start them in the sandbox, several at once."""
    ready = {}
    for team, program in programs.items():
        if (program.folder / REQUIREMENTS).exists():
            print_stderr(f"installing what {team} requires")
        lock = layout.packages_lock(program.folder)
        is_new = not lock.exists()
        try:
            if lock_requirements(program.folder, lock) and is_new:
                print_stderr(f"wrote {lock}: commit it, and every machine installs the same packages")
            interpreter_for(program.folder, lock)
            ready[team] = program
        except PackagesError as error:
            severity: Severity = "failing team" if isinstance(error, RequirementsError) else "error"
            findings += [Finding("packages", severity, f"{team}: {line}") for line in error.full_text.splitlines()]
    if not ready:
        return
    from pcgeval.generation.runners import START_SECONDS, start_programs  # noqa: PLC0415

    print_stderr(f"starting {', '.join(ready)}: a program has {START_SECONDS:g} s to call the model")
    with (
        _attempt(findings, "sandbox"),
        open_sandbox(ResourceLimits(), programs_are_trusted()) as sandbox,
    ):
        if not sandbox.contained:
            findings.append(Finding("sandbox", "warning", f"no sandbox for {', '.join(ready)}. {TRUST_MEANS}"))
        for team, reason in sorted(start_programs(ready, sandbox, params.competition.characters[0])):
            if reason is not None:
                findings.append(Finding("programs", "failing team", f"{team}: {reason}"))


def _check_commitment(findings: Findings) -> str | None:
    """Return the commit to publish; None, with a warning, if the inputs are not committed."""
    with _attempt(findings, "commit", "warning"):
        commit, uncommitted = read_commitment(Path())
        if not uncommitted:
            return commit
        text = f"not committed: {listed(uncommitted)}. Commit and publish them before the run."
        findings.append(Finding("commit", "warning", text))
    return None


@app.command()
def run(
    round_name: Annotated[str | None, typer.Option("--round", metavar="NAME", help="Evaluate this round.")] = None,
) -> None:
    """Evaluate the competition, from the checks to the ranking.

    The command runs `check`, `dvc repro --keep-going` and `ranking`. It computes only changes, and continues a stopped
    run. A round of params.yaml is evaluated in rounds/NAME. Exit code 1: a stage failed; the stages that do not depend
    on it have run.
    """
    if round_name is not None:
        run_round(round_name)
        return
    import dvc  # noqa: F401, PLC0415 - it is run as a program, and an extra brings it

    load_params()  # outside a competition's folder, leave nothing behind
    check_package()
    with lock_folder(Path.cwd(), layout.RUN_LOCK):
        check()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # the stages run this Python
        environment = {**os.environ, INSIDE_RUN: "1", "PATH": path}
        process = psutil.Popen([sys.executable, "-m", "dvc", "repro", "--keep-going"], env=environment)
        try:
            failed = process.wait()
        except KeyboardInterrupt:
            with suppress(psutil.NoSuchProcess):
                stages = process.children(recursive=True)
                process.terminate()
                psutil.wait_procs([process, *stages], timeout=30)  # stages hold locks that the next run needs
            print_stderr("")  # DVC may have been in the middle of a line
            raise
    if failed:
        print_stderr("The evaluation is not complete: a stage failed for the reason above. Fix that and run again.")
        raise typer.Exit(EXIT_CHECK_FAILED)
    show_ranking()


def run_round(name: str) -> None:
    """Evaluate a round of params.yaml in rounds/NAME with `pcgeval run`, and exit with its code if it failed."""
    with lock_folder(ROUNDS / name, layout.STATE / f"round-{layout.state_name(ROUNDS / name)}.lock"):
        with lock_folder(layout.SUBMISSIONS, layout.SUBMIT_LOCK):  # copy no half of a submission that is being filed
            workspace = prepare_round(name)
        print_stderr(f"evaluating the round {name} in {workspace}")
        environment = {**os.environ, INSIDE_RUN: "1"}
        if (workspace / "src").is_dir():
            environment["PYTHONPATH"] = str((workspace / "src").resolve())
        words = [sys.executable, "-m", "pcgeval", "run"]
        if code := subprocess.run(words, cwd=workspace, env=environment, check=False).returncode:
            raise typer.Exit(code if code == EXIT_BAD_INPUT else EXIT_CHECK_FAILED)
        print_stderr(f"The files of this round lie in {workspace}")


def prepare_round(name: str, root: Path = Path()) -> Path:
    """Make or refresh the workspace of a round in a competition's folder, and return it; its outputs are kept."""
    rounds = load_params(root / PARAMS_FILE).rounds
    if name not in rounds:
        known = ", ".join(rounds) or "none"
        raise ParamsError(f"params.yaml has no round {name!r} below `rounds` ({known}). Add its letters and trials.")
    values = yaml.safe_load((root / PARAMS_FILE).read_bytes())
    seed = rounds[name].seed
    if seed is None:  # with the final's seed, an earlier round would reveal its replies
        seed = derived_seed(values["competition"]["seed"], name)
    values["competition"] |= {"round": name, **values["rounds"][name], "seed": seed}
    workspace = root / ROUNDS / name
    dvc_config = workspace / ".dvc" / "config"  # comes first: it marks the workspace as ours
    if workspace.exists() and not dvc_config.is_file() and any(workspace.iterdir()):
        raise FileError(f"{workspace}: already exists and `pcgeval run --round` did not make it. Move it elsewhere.")
    write_text(dvc_config, _DVC_CONFIG.format(cache=root.resolve() / ".dvc" / "cache"))
    for part in parts_for("round"):
        source, target = root / part.path, workspace / part.path
        if not (source.exists() or part.is_optional):
            raise FileError(f"{source}: is missing, and every round needs it. Restore it, for example from git.")
        shutil.rmtree(target, ignore_errors=True)
        names = layout.competition_files(root, part.path)
        copy_files(root, workspace, names, follow_link=True, with_status=True)
    write_text(workspace / PARAMS_FILE, yaml.safe_dump(values, sort_keys=False))
    calls = workspace / layout.CALLS
    (root / layout.CALLS).mkdir(parents=True, exist_ok=True)
    calls.parent.mkdir(exist_ok=True)
    if not os.path.lexists(calls):
        calls.symlink_to((root / layout.CALLS).resolve())
    return workspace
