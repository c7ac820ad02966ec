"""The commands for one submission: `validate`, `try`, `submit`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pcgeval.cli.options import BaseUrl, Json, TrustPrograms, group, print_json
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr

app = group()
SubmissionPath = Annotated[Path, typer.Argument(metavar="PATH", help="The submission's folder or zip file.")]


@app.command()
def validate(path: SubmissionPath, json: Json = False) -> None:
    """Check a submission and list every problem."""
    from pcgeval.submissions.validate import printable_findings
    from pcgeval.submissions.validate import validate as check

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
    trust_programs: TrustPrograms = False,
    json: Json = False,
) -> None:
    """Run a few trials of your submission and score them.

    The trials run exactly as in the competition, with the same seeds, requests and limits. A unique beginning of
    a model's name is enough. After Ctrl-C, repeat the command to continue. All files go to the folder --out, which
    keeps earlier trials of other letters. Exit code 1: the submission has errors, or all trials failed.
    """
    print_stderr(f"checking {path}")  # before the imports, which take a second
    from pcgeval.cli.try_submission import params_for_try, run_try

    if host and base_url:
        raise typer.BadParameter("--host and --base-url: give one of them.")
    params = params_for_try(model, host, base_url, letters, trials)
    run_try(path, params, out, trust_programs=trust_programs, json=json)


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
    from pcgeval.submissions.filing import submit as file_submission
    from pcgeval.submissions.validate import printable_findings

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
