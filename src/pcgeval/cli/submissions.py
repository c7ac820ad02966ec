"""The commands for one submission: `validate`, `try`, `submit`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pcgeval.cli.options import Host, Json, TrustPrograms, group, print_json
from pcgeval.core.console import EXIT_CHECK_FAILED, Progress, print_stderr

app = group()
SubmissionPath = Annotated[Path, typer.Argument(metavar="PATH", help="The submission's folder or zip file.")]


@app.command()
def validate(path: SubmissionPath, json: Json = False) -> None:
    """Check a submission and list every problem."""
    from pcgeval.submissions.findings import printable_findings
    from pcgeval.submissions.validate import limits_of
    from pcgeval.submissions.validate import validate as check

    found = check(path, limits_of())
    if json:
        print_json(found.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in printable_findings(found.findings))
    print_stderr(f"{path}: {found.summary}; {'can be handed in' if found.passed else 'fix the errors above'}")
    if not found.passed:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command("try")
def try_command(
    program: Annotated[
        Path, typer.Argument(metavar="PROGRAM", help="The submission's folder, .py file or prompt.txt.")
    ],
    model: Annotated[str, typer.Option(metavar="M", help="A model of params.yaml, a local one, or one of Ollama's.")],
    letters: Annotated[str, typer.Option(help="The letters to try.")] = "IL",
    trials: Annotated[int, typer.Option(help="Trials per letter.")] = 2,
    host: Host = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go; default: rehearsals/<team>/<model>.")
    ] = None,
    trust_programs: TrustPrograms = False,
    json: Json = False,
) -> None:
    """Run a few trials of your submission and show their scores.

    They go through the competition's own stages. Another run in the same folder keeps the replies and pictures of
    other letters.
    """
    from pcgeval.cli import settings
    from pcgeval.cli.try_output import to_json, to_text
    from pcgeval.cli.try_submission import try_submission
    from pcgeval.core.untrusted import printable_text
    from pcgeval.llm.backends import open_backend

    competition_params = settings.load_params_or_default()
    submission = settings.load_submission_or_file(program)
    asked = settings.find_model_to_ask(competition_params, model, host)
    key = settings.model_key(asked)
    params = settings.params_for_try(competition_params, asked, letters, trials)
    folder = out or Path("rehearsals") / submission.team / key
    progress = Progress(f"try {submission.team} with {asked.name}", len(letters) * trials, every=0)
    result = try_submission(
        params,
        key,
        submission,
        open_backend(asked, Path()),
        folder,
        lambda trial, record, is_new: progress.step(
            f"{trial.letter}{trial.number}", tokens=record.tokens, failed=record.reason is not None, kept=not is_new
        ),
        trust_programs=trust_programs,
    )
    full_trials = len(competition_params.competition.characters) * competition_params.competition.trials
    if json:
        print_json(to_json(result, full_trials))
    else:
        sys.stdout.write(printable_text(to_text(result, full_trials)) + "\n")
        print_stderr(f"all files are in {folder}")


@app.command()
def submit(
    path: SubmissionPath,
    team: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the name of the folder or zip file.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a baseline, or a team that the submission does not name.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a submission that is not committed to git.")] = False,
    as_baseline: Annotated[bool, typer.Option("--as-baseline", help="File it with the role baseline.")] = False,
    add: Annotated[bool, typer.Option("--add", help="Add the team to `teams` in params.yaml.")] = False,
    json: Json = False,
) -> None:
    """Check a submission and copy it to data/submissions."""
    from pcgeval.submissions.filing import SubmitOptions
    from pcgeval.submissions.filing import submit as file_submission
    from pcgeval.submissions.findings import printable_findings

    filed = file_submission(path, team, SubmitOptions(replace, force, as_baseline, add))
    if json:
        folder = None if filed.folder is None else str(filed.folder)
        values = {"team": filed.team, "folder": folder, "status": filed.status, "replaced": filed.replaced}
        print_json({**values, "to_do": filed.to_do, **filed.check.to_json()})
    else:
        sys.stdout.writelines(f"{line}\n" for line in printable_findings(filed.check.findings))
        if filed.folder is not None:
            sys.stdout.write(f"{filed.folder}\n")
    if filed.folder is None:
        print_stderr(f"{path} was not filed: fix the errors above, then submit it again")
        raise typer.Exit(EXIT_CHECK_FAILED)
    print_stderr(f"{filed.status} {filed.folder}: {filed.check.summary}")
    for line in filed.to_do:
        print_stderr(line)
