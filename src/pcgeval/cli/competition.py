"""The commands that fill a competition's folder, and those for one submission: `init`, `validate`, `try`, `submit`."""

import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

import typer

from pcgeval.cli.options import BaseUrl, Json, TrustPrograms, file_to_write, group, print_json
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import copy_files, remove_others, tree_files, write_bytes, write_text
from pcgeval.core.text import printable_line
from pcgeval.formats import layout
from pcgeval.formats.params import load_params
from pcgeval.proof.parts import parts_for, pipeline_files
from pcgeval.submissions.validate import printable_findings, validate as check

app = group()
_PARAMS = {None: "local.yaml", "2025": "llms4pcg-2025.yaml"}  # in data/competitions, by --edition
_NOT_SHIPPED = """\
The edition's official baselines, its classifier and the digests of its models are not shipped:
- The baselines are the folders zero_shot and zero_shot_multi_turn of https://github.com/chatgpt4pcg/llms4pcg-pe-examples.
  Write a README.md into each, and file them: `pcgeval submit zero_shot --team zero-shot --replace`.
- The classifier is pittawat/vit-base-uppercase-english-characters of huggingface.co. Name it as similarity.model, and
  its commit as similarity.revision, and install pcgeval[classifier]. Until then, data/classifier is pcgeval's own.
- `pcgeval check` prints the digests of your Ollama server's models. Write them into params.yaml."""
SubmissionPath = Annotated[Path, typer.Argument(metavar="PATH", help="The submission's folder or zip file.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
    edition: Annotated[Literal["2025"] | None, typer.Option(help="Use the settings of that year's final.")] = None,
    upgrade: Annotated[bool, typer.Option("--upgrade", help="Move DIR to the installed pcgeval.")] = False,
) -> None:
    """Make a folder for a competition.

    The folder holds settings, stages, a baseline, the rubric and the classifier. By default, the settings name three
    small models that run on this machine. The stages run the installed version of pcgeval, which pcgeval.json names.
    If DIR is in no git repository, it becomes one, with a first commit if git knows your name and e-mail.
    """
    if upgrade:
        if edition:
            raise typer.BadParameter("--edition and --upgrade: use one of them; an upgrade keeps the settings.")
        _upgrade(folder)
        return
    if not folder.parent.is_dir():
        raise FileError(f"{folder.parent}: is not a folder. Make it first, or name another place.")
    folder.mkdir(exist_ok=True)
    if names := sorted(path.name for path in folder.iterdir() if path.name != ".git"):
        raise FileError(f"{folder}: is not empty (it has {names[0]}). Name a new folder, or add --upgrade.")
    _write_pipeline(folder)
    _copy_inputs(folder, layout.PACKAGED_DATA / "competitions" / _PARAMS[edition])
    _make_repository(folder)
    print_stderr(
        f"wrote a competition to {folder}. Edit params.yaml there, add teams with `pcgeval submit`, "
        "find problems with `pcgeval check`, and run `make final-eval`."
    )
    if edition:
        print_stderr(_NOT_SHIPPED)


def _upgrade(folder: Path) -> None:
    """Convert what older versions kept elsewhere, also in a checkout, and renew what `init` wrote."""
    from pcgeval.submissions.filing import convert_submissions  # noqa: PLC0415 - it needs ruamel.yaml, of an extra

    has_package = (folder / layout.PACKAGE_FILE).is_file()
    if not has_package and not (folder / "params.yaml").is_file():
        raise FileError(f"{folder / layout.PACKAGE_FILE}: is missing, so `pcgeval init` did not make this folder.")
    if convert_submissions(folder):
        print_stderr(f"params.yaml now has titles, roles and entries of the teams, and {layout.LOCKS} their locks")
    if has_package:
        _write_pipeline(folder)
        print_stderr(f"{folder} now runs the installed pcgeval; `make final-eval` there evaluates everything again")


def _write_pipeline(folder: Path) -> None:
    files = {folder / name: content for name, content in pipeline_files().items()}
    for path, content in files.items():
        write_bytes(path, content)
    remove_others(folder / "stages", set(files))


def _copy_inputs(folder: Path, params_file: Path) -> None:
    for name, source in {"params.yaml": params_file, "Makefile": params_file.with_name("Makefile")}.items():
        write_bytes(folder / name, source.read_bytes())
    for part in parts_for("init"):
        if part.kind == "code":
            copy_files(layout.RELEASED_PIPELINE, folder, [part.path.as_posix()], follow_link=True)
        else:
            names = tree_files(layout.PACKAGED_DATA, part.path.relative_to(layout.DATA) / part.first)
            copy_files(layout.PACKAGED_DATA, folder / layout.DATA, names, follow_link=True)
    params = load_params(params_file)
    recordings = [layout.RECORDINGS / model / team for model, team in product(params.models, params.teams)]
    for place in (*recordings, *(layout.JUDGE_RECORDINGS / team for team in params.teams)):
        write_text(folder / place / ".gitkeep", "")


def _make_repository(folder: Path) -> None:
    """Make a git repository and its first commit, unless the folder lies in one; without git, let DVC do without it."""

    def git(*words: str) -> str | None:
        """Return git's words if it failed."""
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
        return printable_line(done.stderr or words[0]) if done.returncode else None

    commands = f"cd {shlex.quote(str(folder))} && git add --all . && git commit -m 'A competition'"
    try:
        if git("rev-parse", "--git-dir") is None:
            print_stderr(f"{folder} lies in a git repository, in which nothing was committed. Commit it: {commands}")
            return
        failure = git("init", "--quiet")
    except OSError as error:
        failure = str(error)
    if failure:
        write_text(folder / ".dvc" / "config.local", "[core]\n    no_scm = true\n")
        print_stderr("git could not make a repository here, so the audit lists every file as not published")
        return
    commit = ("-c", "user.useConfigOnly=true", "commit", "--quiet", "--message", "A competition")  # by nobody made up
    if failure := git("add", "--all") or git(*commit):
        print_stderr(f"git made no first commit: {failure}")
        print_stderr(f"Tell it your user.name and user.email, then: {commands}")


@app.command()
def validate(path: SubmissionPath, json: Json = False) -> None:
    """Check a submission and list every problem."""
    checked = check(path)
    if json:
        print_json(checked.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in printable_findings(checked.findings))
    print_stderr(f"{path}: {checked.summary}; {'can be handed in' if checked.passed else 'fix the errors above'}")
    if not checked.passed:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command("try")
def try_command(
    path: SubmissionPath,
    model: Annotated[str, typer.Option(metavar="M", help="Of params.yaml, `pcgeval models list`, or a server.")],
    letters: Annotated[str, typer.Option(metavar="LETTERS", help="The letters to score, such as HIL.")] = "IL",
    trials: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Trials per letter.")] = 2,
    host: Annotated[str | None, typer.Option(metavar="ADDRESS", help="An Ollama server that has the model.")] = None,
    base_url: BaseUrl = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", file_okay=False, help="Default: rehearsals/<team>/<model>.")
    ] = None,
    drawings: Annotated[
        bool | None, typer.Option("--drawings/--no-drawings", help="Draw levels. Default: up to 8 trials.")
    ] = None,
    html: Annotated[Path | None, file_to_write(text="Write a page that plays all levels.")] = None,
    trust_programs: TrustPrograms = False,
    json: Json = False,
) -> None:
    """Run a few trials of your submission and score them.

    The trials run as in the competition, with the same seeds, requests and limits. A unique beginning of a model's
    name is enough. After Ctrl-C, repeat the command to continue. All files go to the folder --out, which keeps
    earlier trials. A trial shows what `pcgeval level` shows. Exit code 1: the submission has errors, or all trials
    failed.
    """
    print_stderr(f"checking {path}")  # before the imports, which take a second and need an extra
    from pcgeval.cli.try_submission import params_for_try, run_try  # noqa: PLC0415

    if host and base_url:
        raise typer.BadParameter("--host and --base-url: give one of them.")
    params = params_for_try(model, host, base_url, letters, trials)
    run_try(path, params, out, html, drawings=drawings, trust_programs=trust_programs, json=json)


@app.command()
def submit(
    path: SubmissionPath,
    team: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the name of PATH.")] = None,
    may_replace: Annotated[bool, typer.Option("--replace", help="Replace the team's submission.")] = False,
    json: Json = False,
) -> None:
    """Check a submission, copy it, and add its team to params.yaml.

    The copy is data/submissions/TEAM. A replaced submission moves to .pcgeval/replaced.
    """
    from pcgeval.submissions.filing import submit as file_submission  # noqa: PLC0415 - as above

    filed = file_submission(path, team, may_replace=may_replace)
    if json:
        print_json(filed.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in printable_findings(filed.check.findings))
        if filed.folder is not None:
            sys.stdout.write(f"{filed.folder}\n")
    if filed.folder is None:
        print_stderr(f"{path} was not filed: fix the errors above, then submit it again")
        raise typer.Exit(EXIT_CHECK_FAILED)
    print_stderr(f"{filed.status} {filed.folder}: {filed.check.summary}")
    print_stderr(f"SHA-256 of the submission: {filed.sha256}")
