"""The commands that prove a ranking: `audit`, `bundle`, `verify`."""

import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcgeval.cli.options import Json, group, print_json, print_table, within
from pcgeval.core.console import EXIT_CHECK_FAILED, count, print_stderr
from pcgeval.core.untrusted import printable_name, printable_text

if TYPE_CHECKING:
    from pcgeval.proof.asking import AskedCall
    from pcgeval.proof.audit import Audit

app = group()
_MOST = 20  # lines of a kind; --json has all
_HASH = 12  # digits of a hash that are shown

Trust = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Take a stage's published output instead of running it; may be repeated."),
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Fail also where something was not run again or is not committed.")
]


@app.command()
def audit(
    trust: Trust = None,
    strict: Strict = False,
    ask: Annotated[
        int, typer.Option(metavar="N", callback=within(0, 1_000_000), help="Ask the models N of the calls again.")
    ] = 0,
    json: Json = False,
) -> None:
    """Run the whole evaluation again, compare every file.

    It runs in an empty folder, from the inputs and the recorded replies alone; programs run in the sandbox. Exit code 1
    means that a published file differs, or that a call that was asked again was not answered as before.
    """
    import dvc  # noqa: F401 - it is run as a program, and an extra brings it

    from pcgeval.core.params import load_params
    from pcgeval.proof.asking import ask_again
    from pcgeval.proof.audit import audit as audit_folder

    result = audit_folder(Path(), trust=trust or ())
    asked = ask_again(Path(), load_params(), ask, report=print_stderr) if ask else []
    passed = result.passed(strict=strict) and all(call.same for call in asked)
    if json:
        print_json({"passed": passed, **_values(result), "asked": [asdict(call) for call in asked]})
    else:
        _print_audit(result, passed=passed)
        _print_lines("asked", (_asked_line(call) for call in asked))
    if not passed:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def bundle(
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="The ZIP file to write.")],
    json: Json = False,
) -> None:
    """Write inputs and results to one file that anyone can verify."""
    from pcgeval.core.files import sha256_bytes, write_bytes
    from pcgeval.core.layout import SUBMISSIONS
    from pcgeval.core.params import load_params
    from pcgeval.proof.bundle import make_bundle
    from pcgeval.submissions.load import submission_sha256

    content = make_bundle(Path())
    write_bytes(out, content)
    submissions = {team: submission_sha256(SUBMISSIONS / team) for team in load_params().teams}
    if json:
        values = {"bytes": len(content), "sha256": sha256_bytes(content), "submissions": submissions}
        print_json({"file": str(out), **values})
    else:
        sys.stdout.write(f"{sha256_bytes(content)}  {out}\n")
        sys.stdout.writelines(f"{digest}  submission of {team}\n" for team, digest in submissions.items())
    print_stderr(f"wrote {out} ({len(content) / 2**20:.1f} MB); `pcgeval verify {out}` runs the evaluation again")


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle that `pcgeval bundle` wrote.")],
    trust: Trust = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Run the evaluation of a bundle again with this release.

    Exit code 1 means that a file of it differs from what its inputs give.
    """
    from pcgeval.core.files import sha256_file
    from pcgeval.proof.bundle import verify_bundle

    result = verify_bundle(file, trust=trust or ())
    passed, digest = result.passed(strict=strict), sha256_file(file)
    if json:
        print_json({"passed": passed, "sha256": digest, **_values(result)})
    else:
        _print_audit(result, passed=passed)
        sys.stdout.write(f"SHA-256 of the bundle {digest}\n")
    if not passed:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _values(result: "Audit") -> dict[str, Any]:
    values = asdict(result)
    for team in values["teams"]:
        team |= {name: None if team[name] is None else str(team[name]) for name in ("total", "again")}
    return values


def _print_audit(result: "Audit", *, passed: bool) -> None:
    """Print the verdict, a line for each team, and what differs."""
    sys.stdout.write(f"{_verdict(result, passed=passed)}\n")
    if result.result:
        sys.stdout.write(f"result hash {result.result}\n")
    from pcgeval.scoring.decimals import rounded

    def total(value: Any) -> str:
        return "-" if value is None else rounded(value)

    print_table(
        ("rank", "team", "status", "submission", "trials", "failed", "total", "again"),
        (
            (
                str(team.rank or "-"),
                printable_name(team.team),
                team.status,
                team.submission[:_HASH],
                str(team.trials),
                str(team.failed),
                total(team.total),
                total(team.again),
            )
            for team in result.teams
        ),
    )
    places = (
        f"{difference.path}{f': {difference.place}' if difference.place else ''}: published {difference.published}, "
        f"again {difference.again}"
        for difference in result.differences
    )
    _print_lines("differs", places)
    _print_lines("fault", result.faults)
    _print_lines("not run again", result.not_run)
    _print_lines("not published", result.unpublished)
    _print_lines("note", result.notes)


def _verdict(result: "Audit", *, passed: bool) -> str:
    faults = len(result.differences) + len(result.faults)
    if faults:
        words = f"{count(len(result.differences), 'published file')} differ from what the inputs give"
        verdict = (
            words.replace("file differ", "file differs") if result.differences else "something is not as it should be"
        )
        if result.winners is not None:
            verdict += f"; by the inputs the winner is {', '.join(result.winners) or 'nobody'}"
    else:
        verdict = "every published file is what the inputs give"
    if result.not_run:
        stages = ", ".join(dict.fromkeys(line.partition(":")[0] for line in result.not_run))
        verdict += f"; not all was run again: {stages}"
    return f"{'PASSED' if passed else 'FAILED'}  {printable_name(result.competition)}: {verdict}"


def _print_lines(word: str, lines: Iterable[str]) -> None:
    lines = list(lines)
    sys.stdout.writelines(f"{word}: {printable_text(line)}\n" for line in lines[:_MOST])
    if len(lines) > _MOST:
        sys.stdout.write(f"{word}: and {len(lines) - _MOST} more; --json has all\n")


def _asked_line(call: "AskedCall") -> str:
    outcome = {True: "the same answer", False: "another answer", None: "no answer"}[call.same]
    where = f"{call.team} with {call.model}, {call.letter}{call.trial}, call {call.turn}"
    return f"{where}: {outcome}{f': {call.detail}' if call.detail else ''}"
