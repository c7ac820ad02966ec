"""The commands that prove and exchange results: `audit`, `bundle`, `verify`, `compare`, `rescore`, `export`."""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path, PurePath
from typing import Annotated, Any

import typer

from pcgeval.cli.options import Json, file_to_write, group, print_json, print_table
from pcgeval.cli.ranking import print_teams
from pcgeval.core.console import EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import FileError
from pcgeval.core.files import copy_files, sha256_bytes, sha256_file, tree_files, write_bytes
from pcgeval.core.text import count, printable_line, printable_name, printable_text, rounded
from pcgeval.core.untrusted import read_json
from pcgeval.formats import layout
from pcgeval.formats.layout import RANKING_JSON, SUBMISSIONS
from pcgeval.formats.params import load_params
from pcgeval.formats.results import RankingFile, result_doubts
from pcgeval.generation.summaries import record_competition
from pcgeval.judge.many import record_judgements
from pcgeval.proof.audit import Audit, audit as audit_folder
from pcgeval.proof.bundle import SCORES, Label, compare_states, is_bundle, make_bundle, verify_bundle
from pcgeval.proof.replies import AskedCall, ask_again
from pcgeval.scoring.inputs import ScoringRules
from pcgeval.scoring.rescore import measured_letters_and_trials, rescore as rescore_folders
from pcgeval.submissions.load import submission_sha256

app = group()
_MOST = 20  # lines of a kind; --json has all
_HASH = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{52}\b")
Trust = Annotated[
    list[str] | None,
    typer.Option(metavar="STAGE", help="Take a stage's published output instead of running it. Repeatable."),
]
Since = Annotated[
    str | None, typer.Option(metavar="COMMIT", help="Also name each input that changed after this commit.")
]
# records of trials and files beside the official ones
_NOT_OFFICIAL = (
    *("*_*_*.json", layout.FAILURES_FILE),
    *(layout.CLASSIFIER_FILE, layout.SIMULATIONS_FILE, layout.TRIALS_FILE),
)
export = group()
app.add_typer(export, name="export", help="Export the data or the recordings of the last run.")


@app.command()
def audit(
    trust: Trust = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Also fail if something was not run again or is not committed.")
    ] = False,
    since: Since = None,
    ask: Annotated[int, typer.Option(metavar="N", min=0, help="Ask the models N recorded calls again.")] = 0,
    json: Json = False,
) -> None:
    """Run the whole evaluation again and compare every file.

    The command uses an empty folder, the inputs and the recorded replies; programs run in the sandbox. Exit code 1: a
    published file differs, a model answered a call of --ask differently, or what decides the ranking is not as in the
    commit of --since that was published before the run: params.yaml, submissions, locks, classifier or rubrics.
    """
    import dvc  # noqa: F401, PLC0415 - it is run as a program, and an extra brings it

    result = audit_folder(Path(), trust=trust or (), since=since)
    asked = ask_again(Path(), load_params(), ask, report=print_stderr) if ask else []
    _show_audit(result, strict=strict, json=json, asked=asked)


@app.command()
def bundle(
    out: Annotated[Path, file_to_write("-o", "--out", text="The ZIP file to write.")], json: Json = False
) -> None:
    """Write inputs and results to one file that anyone can verify."""
    if out.is_file() and not is_bundle(out):
        raise FileError(f"{out}: already exists and is no bundle. Name another file.")
    content = make_bundle(Path())
    write_bytes(out, content)
    digest = sha256_bytes(content)
    submissions = {team: submission_sha256(SUBMISSIONS / team) for team in load_params().teams}
    if json:
        print_json({"file": str(out), "bytes": len(content), "sha256": digest, "submissions": submissions})
    else:
        sys.stdout.write(f"{digest}  {out}\n")
        sys.stdout.writelines(f"{sha256}  submission of {team}\n" for team, sha256 in submissions.items())
    print_stderr(f"wrote {out} ({len(content):,} bytes); `pcgeval verify {out}` runs the evaluation again")


@app.command()
def verify(
    file: Annotated[Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="A bundle.")],
    trust: Trust = None,
    json: Json = False,
) -> None:
    """Run the evaluation of a bundle again with the installed release.

    Exit code 1: a file of the bundle does not follow from its inputs, or not everything could be run again.
    """
    result = verify_bundle(file, trust=trust or ())
    _show_audit(result, strict=True, json=json, bundle_sha256=sha256_file(file))


def _show_audit(
    result: Audit,
    *,
    strict: bool,
    json: bool,
    asked: Sequence[AskedCall] = (),
    bundle_sha256: str | None = None,
) -> None:
    """Print an audit: the verdict, a line for each team, and what differs; exit with code 1 if it failed."""
    passed = result.passed(strict=strict) and all(call.same for call in asked)
    if json:
        more: dict[str, Any] = {"sha256": bundle_sha256} if bundle_sha256 else {"asked": list(map(asdict, asked))}
        print_json({"passed": passed, **result.to_json(), **more})
    else:
        verdict = "PASSED" if passed else "FAILED"
        print(f"{verdict}  {printable_name(result.competition)}: {_verdict(result, strict, asked)}")
        if result.result:
            print(f"result hash {result.result}")
        if bundle_sha256:
            print(f"SHA-256 of the bundle {bundle_sha256}")
        rows = []
        for team in result.teams:
            totals = ["-" if total is None else rounded(total) for total in (team.total, team.again)]
            figures = (team.submission[:12], str(team.trials), str(team.failed))
            rows.append((str(team.rank or "-"), printable_name(team.team), team.status, *figures, *totals))
        print_table(("rank", "team", "status", "submission", "trials", "failed", "total", "again"), rows)
        findings: dict[str, Sequence[object]] = {
            "differs": result.differences,
            "fault": result.faults,
            "not run again": result.not_run,
            "not published": result.unpublished,
            "note": result.notes,
            "asked": asked,
        }
        for word, lines in findings.items():
            for line in lines[:_MOST]:
                print(f"{word}: {printable_text(str(line))}")
            if len(lines) > _MOST:
                print(f"{word}: and {len(lines) - _MOST} more; --json has all")
    if not passed:
        raise typer.Exit(EXIT_CHECK_FAILED)


def _verdict(result: Audit, strict: bool, asked: Sequence[AskedCall]) -> str:
    if result.differences:
        verdict = f"published files that differ from a new run of the inputs: {len(result.differences)}"
    elif result.faults:
        verdict = "the files agree, but there are faults"
    else:
        verdict = "every published file follows from the inputs"
    if (result.differences or result.faults) and result.winners is not None:
        verdict += f"; by the inputs the winner is {', '.join(result.winners) or 'nobody'}"
    if result.not_run:
        stages = ", ".join(dict.fromkeys(line.partition(":")[0] for line in result.not_run))
        verdict += f"; not all was run again: {stages}"
    if strict and result.unpublished:
        verdict += "; not all is committed"
    if not all(call.same for call in asked):
        verdict += "; a model asked again answered differently"
    return verdict


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A git revision, a folder, or a bundle.")],
    after: Annotated[str | None, typer.Argument(metavar="AFTER", help="Default: the working directory.")] = None,
    json: Json = False,
) -> None:
    """Compare two evaluations and show the differences."""
    values = compare_states(before, after, Path())
    if after is None:
        for doubt in result_doubts(load_params(), RankingFile.read(RANKING_JSON)):
            print_stderr(f"warning: this folder has the ranking of an earlier run: {doubt}")
    if json:
        print_json([{**label._asdict(), "before": before, "after": after} for label, before, after in values])
    else:
        print_table(("what", "before", "after"), _compared_rows(values))


def _compared_rows(values: Iterable[tuple[Label, Any, Any]]) -> Iterator[tuple[str, str, str]]:
    def shown(kind: str, value: Any) -> str:
        if value is None:
            return "-"
        if kind in SCORES:
            return rounded(value)
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        return _HASH.sub(r"\1", printable_line(text)) or "none"

    values = list(values)
    letters = [value for value in values if value[0].kind == "letter"]
    others = [value for value in values if value[0].kind != "letter"]
    for (kind, name, team, model), before, after in [*others, *letters[:_MOST]]:
        label = printable_line(" ".join(filter(None, (team, model, kind, name))))
        yield label, shown(kind, before), "=" if before == after else shown(kind, after)
    if len(letters) > _MOST:
        yield f"and {len(letters) - _MOST} more letters", "see --json", ""


@app.command()
def rescore(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", exists=True, file_okay=False, help="The <SOURCE> folder of each model."),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", file_okay=False, help="Write the results to this folder.")],
    letters: Annotated[
        str | None, typer.Option(metavar="LETTERS", help="The letters to score; default: those of the files.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Trials per letter; default: those of the files.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="TEAM", help="The team that the winner must beat.")] = None,
    baselines: Annotated[list[str] | None, typer.Option(metavar="TEAM", help="Score, but do not rank it.")] = None,
    disqualified: Annotated[list[str] | None, typer.Option(metavar="TEAM", help="Leave it out.")] = None,
    official_quirks: Annotated[bool, typer.Option("--official-quirks", help="Do as the official script.")] = False,
    json: Json = False,
) -> None:
    """Score and rank from official files or published tables.

    --baselines and --disqualified are repeatable. The official script departs from the rules in places. Exit code 1:
    the results differ from published figures.
    """
    measured_letters, measured_trials = measured_letters_and_trials(folders)
    rules = ScoringRules(
        measured_letters if letters is None else letters,
        measured_trials if trials is None else trials,
        official_quirks,
        baseline,
    )
    rescored = rescore_folders(folders, out, rules, baselines=baselines or (), disqualified=disqualified or ())
    if json:
        print_json(read_json(out / layout.RANKING_JSON.name))
    else:
        print_teams(RankingFile.read(out / layout.RANKING_JSON.name).teams)
    for reproduction in rescored.reproductions:
        compared = ", ".join(count(number, kind) for kind, number in reproduction.compared.items())
        print_stderr(f"{reproduction.folder}: compared {compared}; {len(reproduction.differences)} differ")
        for line in reproduction.differences[:20]:
            print_stderr(f"  {line}")
    scored = f"{count(rules.trials, 'trial')} of each of the letters {rules.letters}"
    print_stderr(f"scored {scored}; --trials and --letters name others\n{rescored.ranking.reason}\nwrote {out}")
    if not rescored.reproduced:
        raise typer.Exit(EXIT_CHECK_FAILED)


@export.command("official")
def export_official(target: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")]) -> None:
    """Copy the data to DIR/<model>/<team>/<stage>, as the official tools expect."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileError(f"{target}: already exists and is not empty. Name a new folder, or empty it.")
    params = load_params()
    for model, team, stage in product(params.models, params.teams, layout.STAGE_DIRS):
        source = layout.stage_dir(stage, model, team)
        if source.is_dir():
            names = [name for name in tree_files(source) if not any(map(PurePath(name).match, _NOT_OFFICIAL))]
            copy_files(source, target / model / team / stage, names, follow_link=True)
    if not target.exists():
        raise FileError("data: holds no results of this competition yet. Run `make final-eval` first.")
    print_stderr(f"wrote {target}")


@export.command("recordings")
def export_recordings() -> None:
    """Write all replies to data/recordings, so that others can replay them."""
    params = load_params()
    for path in [*record_competition(params), *record_judgements(params)]:
        print_stderr(f"wrote {path}")
    print_stderr("run `make final-eval` again, so that dvc.lock has the hashes of the recordings; it asks no model")
