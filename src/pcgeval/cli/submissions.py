"""The commands for one submission: `validate`, `try`, `submit`."""

import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcgeval.cli.options import BaseUrl, Host, Json, TrustPrograms, group, print_json
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr

if TYPE_CHECKING:
    from pcgeval.submissions.filing import SubmitOptions

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
        Path, typer.Argument(metavar="PROGRAM", help="The submission's folder, zip file, .py file or prompt.txt.")
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar="M",
            help="A local model (`pcgeval models list`) or one of params.yaml, or a server's; may be shortened.",
        ),
    ],
    letters: Annotated[str, typer.Option(help="The letters to try.")] = "IL",
    trials: Annotated[int, typer.Option(help="Trials per letter.")] = 2,
    host: Host = None,
    base_url: BaseUrl = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the files go; default: rehearsals/<team>/<model>.")
    ] = None,
    trust_programs: TrustPrograms = False,
    json: Json = False,
) -> None:
    """Run a few trials of your submission and show their scores.

    The trials are those of the competition: the same seeds, requests and limits. Ctrl-C stops it, and the same command
    goes on; another run in the same folder keeps the replies and pictures of other letters.
    """
    print_stderr(f"checking {program}")  # before the imports, which take a second
    from pcgeval.cli import settings
    from pcgeval.cli.try_output import TryDisplay
    from pcgeval.cli.try_run import run_try
    from pcgeval.core.console import StatusLine

    if host and base_url:
        raise typer.BadParameter("--host and --base-url: give one of them.")
    competition = settings.load_params_or_default()
    wanted = settings.params_for_try(
        competition, settings.find_model_to_ask(competition, model, host, base_url), letters, trials
    )
    with StatusLine(every=10) as status:
        display = TryDisplay(status, len(letters) * trials, json=json)
        run_try(program, competition, wanted, model, out, display, trust_programs=trust_programs)


def _time(text: str) -> datetime:
    """Return an option's time; typer's own type has no time zone."""
    from pcgeval.core.params import parse_time

    try:
        return parse_time(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}.") from error


@app.command()
def submit(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The submission's folder or zip file; with --csv, a folder of these.")
    ],
    team: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: the name of the folder or zip file.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FILE", help="File many: a CSV file with the columns team, file, received and contact."
        ),
    ] = None,
    received: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME", help="When it was handed in, ISO 8601, UTC without a zone; default: now.", parser=_time
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace a baseline, or a team that the submission does not name.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a submission that is not committed to git.")] = False,
    as_baseline: Annotated[bool, typer.Option("--as-baseline", help="File it with the role baseline.")] = False,
    accept: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="File it in spite of this formal error; may be repeated.")
    ] = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why --accept; it is kept in its notes.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Add the team to `teams` in params.yaml.")] = False,
    json: Json = False,
) -> None:
    """Check submissions and copy them to data/submissions.

    A receipt for each team lies in .pcgeval/receipts. Of several submissions of a team in the CSV file, the last one
    received by `intake.deadline` of params.yaml that passes the check counts.
    """
    from pydantic import ValidationError

    from pcgeval.submissions.filing import SubmitOptions
    from pcgeval.submissions.filing import submit as file_submission
    from pcgeval.submissions.findings import printable_findings
    from pcgeval.submissions.load import AcceptedFinding

    if bool(accept) != bool(reason):
        raise typer.BadParameter("--accept CODE and --reason TEXT belong together.")
    try:
        decisions = tuple(AcceptedFinding(code=code, reason=reason or "") for code in accept or ())
    except ValidationError as error:
        raise typer.BadParameter("--accept takes a code, and --reason a text of at most 2000 characters.") from error
    options = SubmitOptions(
        replace=replace, force=force, as_baseline=as_baseline, add=add, received=received, accept=decisions
    )
    if csv is not None:
        if team or received or as_baseline or accept:
            raise typer.BadParameter("--csv takes no --team, --received, --as-baseline or --accept: file one of these.")
        _submit_many(path, csv, options, json=json)
        return
    filed = file_submission(path, team, options)
    if json:
        print_json(filed.to_json())
    else:
        sys.stdout.writelines(f"{line}\n" for line in printable_findings(filed.check.findings))
        if filed.folder is not None:
            sys.stdout.write(f"{filed.folder}\n")
    print_stderr(f"receipt: {filed.receipt.path}")
    if filed.folder is None:
        print_stderr(f"{path} was not filed: fix the errors above, then submit it again")
        raise typer.Exit(EXIT_CHECK_FAILED)
    print_stderr(f"{filed.status} {filed.folder}: {filed.check.summary}")
    print_stderr(f"SHA-256 of the submission: {filed.receipt.tree_sha256}")
    for line in filed.to_do:
        print_stderr(line)


def _submit_many(folder: Path, csv: Path, options: "SubmitOptions", *, json: bool) -> None:
    """File the submissions of a CSV file and print what became of each row."""
    from pcgeval.core.untrusted import printable_name
    from pcgeval.submissions.filing import to_do
    from pcgeval.submissions.findings import printable_findings
    from pcgeval.submissions.intake import CONTACTS, submit_many
    from pcgeval.submissions.receipts import RECEIPTS

    results = submit_many(folder, csv, options)
    zoneless = [each.line for each in results if each.row and not each.row.has_zone]
    several = sorted({each.row.team for each in results if each.row and each.has_other_contact})
    steps = list(to_do(*sorted({each.filed.team for each in results if each.filed and each.filed.folder})))
    if json:
        rows = [each.to_json() for each in results]
        print_json({"rows": rows, "taken_as_utc": zoneless, "several_contacts": several, "to_do": steps})
    else:
        for each in results:
            team = f"{each.row.team}: " if each.row else ""
            words = f"{each.result}, {each.reason}"
            if each.filed and each.filed.folder:
                words = f"{each.filed.status} {each.filed.folder}"
            sys.stdout.write(printable_name(f"{csv.name}:{each.line}: {team}{words}", 2000) + "\n")
            findings = each.filed.check.findings if each.filed else ()
            sys.stdout.writelines(f"  {line}\n" for line in printable_findings(findings))
        if zoneless:
            sys.stdout.write(f"times without a zone were taken as UTC: lines {', '.join(map(str, zoneless))}\n")
        if several:
            sys.stdout.write(f"several contacts; look whether somebody handed in for another: {', '.join(several)}\n")
    counts = Counter(each.result for each in results)
    done = ", ".join(f"{count} {result}" for result, count in sorted(counts.items())) or "no rows"
    print_stderr(f"{csv}: {done}; receipts in {RECEIPTS}, contacts in {CONTACTS}")
    for line in steps:
        print_stderr(line)
    if counts.keys() - {"filed", "superseded"}:
        raise typer.Exit(EXIT_CHECK_FAILED)
