"""What each command does with its parsed words; heavy packages are imported only by the command that needs them."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from pcgeval.core import layout
from pcgeval.core.console import EXIT_BAD_INPUT, EXIT_CHECK_FAILED, print_stderr
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import FileError, read_json, read_text, write_bytes
from pcgeval.core.params import Params, load_params
from pcgeval.scoring.decimals import rounded
from pcgeval.submissions.load import Program, Submission, load_submissions

FILE_LIMIT = 64 * 2**20  # bytes of one file that a command reads whole


def check(_: argparse.Namespace) -> int:
    """Check every input before a long run, and say what will be evaluated."""
    params = load_params()
    submissions = load_submissions(params.teams)
    _check_recordings(params)
    _check_sandbox(params, submissions)
    _check_rubric(params)
    _check_classifier(params)
    competition = params.competition
    print_stderr(
        f"{competition.name} {competition.edition}, {competition.round}: {len(submissions)} submissions x "
        f"{len(params.models)} models x {len(competition.characters)} letters x {competition.trials} trials"
    )
    return 0


def _check_recordings(params: Params) -> None:
    for model, settings in params.models.items():
        for team in params.teams if settings.backend == "recorded" else ():
            path = layout.recording_file(model, team)
            if not path.is_file():
                raise FileError(f"{path}: no such recording. Set models.{model}.backend to ollama, or add the file.")
    judge = params.rubric.model if params.rubric.judge == "simple" else None
    for team in params.teams if judge and judge.backend == "recorded" else ():
        path = layout.judge_recording_file(team)
        if not path.is_file():
            print_stderr(
                f"warning: {path}: no such recording, so what a model is to judge of {team} stays without a grade."
            )


def _check_sandbox(params: Params, submissions: dict[str, Submission]) -> None:
    programs = [team for team, each in submissions.items() if isinstance(each.work, Program)]
    asked = [model for model, settings in params.models.items() if settings.backend != "recorded"]
    if programs and asked:
        from pcgeval.sandbox.sandbox import TRUST_MEANS, TRUST_PROGRAMS, Allowance, open_sandbox

        if not open_sandbox(Allowance(), os.environ.get(TRUST_PROGRAMS) == "1").contained:
            print_stderr(f"warning: there is no sandbox for {', '.join(programs)}. {TRUST_MEANS}")


def _check_rubric(params: Params) -> None:
    from pcgeval.rubric.loading import load_rubric

    load_rubric(layout.rubric_file(params.rubric.id))


def _check_classifier(params: Params) -> None:
    from pcgeval.similarity.source import check_source

    check_source(params.similarity.model, params.similarity.revision)


def ranking(arguments: argparse.Namespace) -> int:
    """Print results/ranking.json as a table."""
    values = read_json(layout.RANKING_JSON)
    if arguments.json:
        _print_json([values])
        return 0
    table = Table(title=None, box=None, pad_edge=False, header_style="bold")
    for column in ("rank", "team", "normalised", "90 % interval", "total", "failed trials", "status"):
        table.add_column(column, justify="left" if column in {"team", "status"} else "right")
    for team in values["teams"]:
        table.add_row(*_ranking_row(team))
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print_stderr(
        f"{values['reason']}\nThe page is {layout.REPORT / 'index.html'}; `make audit` names the inputs of every line."
    )
    return 0


def _ranking_row(team: dict[str, Any]) -> list[str]:
    scored = team["total"] is not None
    return [
        str(team["rank"] or "-"),
        team["team"],
        rounded(team["normalised"], 3) if scored else "-",
        f"{team['interval'][0]:.1f} to {team['interval'][1]:.1f}" if team["interval"] else "-",
        rounded(team["total"]) if scored else "-",
        str(sum(each["failed_trials"] for each in team["models"].values())),
        "winner" if team["winner"] else team["status"],
    ]


def run_round(arguments: argparse.Namespace) -> int:
    """Evaluate another round in its own workspace."""
    from pcgeval.cli.rounds import prepare_round

    workspace = prepare_round(arguments.name)
    print_stderr(f"evaluating the round {arguments.name} in {workspace}")
    environment = {
        **os.environ,
        "PYTHONPATH": str((workspace / "src").resolve()),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    for words in (["pcgeval", "check"], ["dvc", "repro"], ["pcgeval", "ranking"]):
        if subprocess.run([sys.executable, "-m", *words], cwd=workspace, env=environment, check=False).returncode:
            print_stderr(f"the round {arguments.name} was not evaluated to its end; the message above says why")
            return EXIT_BAD_INPUT
    return 0


def run_audit(arguments: argparse.Namespace) -> int:
    """Walk from each line of the ranking back to its inputs."""
    from pcgeval.audit.audit import audit

    found = audit(Path(), arguments.team)
    sys.stdout.write((found.to_json() if arguments.json else found.to_text()) + "\n")
    return EXIT_CHECK_FAILED if found.faults else 0


def try_submission(arguments: argparse.Namespace) -> int:
    """Run a few trials of a submission as the competition would, and show what came of them."""
    from pcgeval.cli import try_setting as setting
    from pcgeval.cli import try_terminal as terminal
    from pcgeval.cli.try_run import rehearse
    from pcgeval.core.console import Progress
    from pcgeval.llm.backends import open_backend

    own = load_params() if Path("params.yaml").is_file() else setting.usual_params()
    submission = setting.rehearsed_submission(arguments.program)
    model = setting.rehearsed_model(own, arguments.model, arguments.host)
    params = setting.rehearsed_params(own, model, arguments.letters, arguments.trials)
    folder = arguments.out or setting.usual_folder(submission.team, model)
    progress = Progress(f"try {submission.team} with {model.name}", len(arguments.letters) * arguments.trials, every=0)
    rehearsal = rehearse(
        params,
        setting.model_key(model),
        submission,
        open_backend(model, Path()),
        folder,
        lambda trial, record, is_new: progress.step(
            f"{trial.letter}{trial.number}",
            tokens=record.tokens,
            failed=record.reason is not None,
            kept=not is_new,
        ),
        trust_programs=arguments.trust_programs,
    )
    full_trials = len(own.competition.characters) * own.competition.trials
    if arguments.json:
        _print_json([terminal.to_json(rehearsal, full_trials)])
    else:
        sys.stdout.write(terminal.to_text(rehearsal, full_trials) + "\n")
        print_stderr(f"all files are in {folder}")
    return 0


def submit_submission(arguments: argparse.Namespace) -> int:
    """Check a submission and file it; print where."""
    from pcgeval.submissions.filing import submit
    from pcgeval.submissions.findings import lines

    filed = submit(arguments.path, arguments.team, force=arguments.force)
    for line in lines(filed.check.findings):
        print_stderr(line)
    if arguments.json:
        folder = None if filed.folder is None else str(filed.folder)
        values = {"team": filed.team, "folder": folder, "replaced": filed.replaced, "to_do": filed.to_do}
        _print_json([{**values, **filed.check.to_json()}])
    elif filed.folder is not None:
        sys.stdout.write(f"{filed.folder}\n")
    if filed.folder is None:
        print_stderr(f"{arguments.path} was not filed: mend the errors, then submit it again")
        return EXIT_CHECK_FAILED
    print_stderr(f"{'replaced' if filed.replaced else 'filed'} {filed.folder}: {filed.check.summary}")
    for line in filed.to_do:
        print_stderr(line)
    return 0


def validate_submission(arguments: argparse.Namespace) -> int:
    """Print all that was found in a submission."""
    from pcgeval.submissions.findings import lines
    from pcgeval.submissions.inspection import rules_of
    from pcgeval.submissions.validation import validate

    found = validate(arguments.path, rules_of())
    if arguments.json:
        _print_json([found.to_json()])
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(found.findings))
    print_stderr(f"{arguments.path}: {found.summary}; {'can be handed in' if found.passed else 'mend the errors'}")
    return 0 if found.passed else EXIT_CHECK_FAILED


def record(_: argparse.Namespace) -> int:
    """Turn the finished trials and the judge's exchanges into recordings."""
    from pcgeval.generation.recording import record_competition
    from pcgeval.judge.step import record_judgements

    params = load_params()
    for path in [*record_competition(params), *record_judgements(params)]:
        print_stderr(f"wrote {path}")
    return 0


def extract(arguments: argparse.Namespace) -> int:
    """Print the calls of each response."""
    from pcgeval.levels.extraction import extract_code, no_code_reason

    def one(path: Path) -> dict[str, Any]:
        response = _read_limited(path)
        code = extract_code(response)
        return {"code": code} if code is not None else {"code": None, "reason": no_code_reason(response)}

    return _each_file(arguments, one, "code")


def convert(arguments: argparse.Namespace) -> int:
    """Print the level of each code file."""
    from pcgeval.levels.xml import level_xml

    return _each_file(arguments, lambda path: {"xml": level_xml(_read_limited(path))}, "xml")


def simulate(arguments: argparse.Namespace) -> int:
    """Print the stability of each level; draw it if asked."""
    from pcgeval.evaluator.image import png_bytes, render
    from pcgeval.evaluator.physics import simulate as simulate_level

    def one(path: Path) -> dict[str, Any]:
        stability = simulate_level(_read_limited(path))
        if arguments.images:
            write_bytes(arguments.images / f"{path.stem}.png", png_bytes(render(stability)))
        return {
            "score": stability.score,
            "total_blocks": stability.total_blocks,
            "moving_blocks": stability.moving_blocks,
            "positions": stability.positions.tolist(),
        }

    return _each_file(arguments, one, "score")


def classify(arguments: argparse.Namespace) -> int:
    """Print the most probable letters of each picture."""
    from PIL import Image

    from pcgeval.similarity.classifier import Classifier

    classifier = Classifier.load(arguments.classifier, arguments.revision)

    def one(path: Path) -> dict[str, Any]:
        try:
            with Image.open(path) as image:
                row = classifier.predict([image]).probabilities[0]
        except (OSError, Image.DecompressionBombError) as error:
            raise FileError(f"{path}: not a picture that can be read ({error}). Give a PNG.") from error
        found = dict(zip(classifier.labels, (float(each) for each in row), strict=True))
        return {"label": max(found, key=lambda label: found[label]), "probabilities": found}

    return _each_file(arguments, one, "label")


def rescore(arguments: argparse.Namespace) -> int:
    """Score and rank from folders of results."""
    from pcgeval.scoring.inputs import ScoringRules
    from pcgeval.scoring.rescore import rescore as rescore_folders

    rules = ScoringRules(arguments.letters, arguments.trials, arguments.official_quirks, arguments.baseline)
    found = rescore_folders(
        arguments.folders,
        arguments.out,
        rules,
        baselines=arguments.baselines,
        disqualified=arguments.disqualified,
    )
    if arguments.json:
        _print_json([read_json(arguments.out / layout.RANKING_JSON.name)])
    for each in found.reproductions:
        compared = ", ".join(f"{count} {kind}" for kind, count in each.compared.items())
        print_stderr(f"{each.folder}: compared {compared}; {each.differing} differ")
        for line in each.differences:
            print_stderr(f"  {line}")
    print_stderr(f"{found.ranking.reason}\nwrote {arguments.out}")
    return 0 if found.reproduced else EXIT_CHECK_FAILED


def export(arguments: argparse.Namespace) -> int:
    """Copy the data into the official layout."""
    from pcgeval.cli.export import export_official

    count = export_official(load_params(), arguments.target)
    print_stderr(f"wrote {count} files to {arguments.target}")
    return 0


def grade(arguments: argparse.Namespace) -> int:
    """Grade a submission by a rubric and print the tree."""
    from pcgeval.cli.grade_command import run_grade

    return run_grade(arguments)


def models(arguments: argparse.Namespace) -> int:
    """List or fetch the local models."""
    from pcgeval.llm.local_models import LOCAL_MODELS, cached_path, fetch

    if arguments.what == "list":
        for model in LOCAL_MODELS:
            state = "fetched" if cached_path(model).is_file() else "not fetched"
            sys.stdout.write(
                f"{model.name}  {model.size / 1e6:.0f} MB  {model.sha256[:12]}  {model.licence}  {state}\n"
            )
        return 0
    for name in arguments.names or [model.name for model in LOCAL_MODELS]:
        sys.stdout.write(f"{fetch(name)}\n")
    return 0


def serve_local(arguments: argparse.Namespace) -> int:
    """Serve the fetched models until stopped."""
    from pcgeval.serve.server import serve

    serve(arguments.host, arguments.port)
    return 0


def _each_file(arguments: argparse.Namespace, one: Callable[[Path], dict[str, Any]], shown: str) -> int:
    """Print what was found for each file; a file that failed does not keep the others from being done."""
    code = 0
    for path in arguments.files:
        try:
            found = one(path)
        except PcgevalError as error:
            found = {shown: None, "reason": str(error)}
        if found[shown] is None:
            code = EXIT_CHECK_FAILED
            print_stderr(f"{path}: {found['reason']}")
        if arguments.json:
            _print_json([{"file": str(path), **found}])
        elif found[shown] is not None:
            prefix = f"{path}: " if shown not in {"code", "xml"} else ""
            sys.stdout.write(f"{prefix}{found[shown]}\n")
    return code


def _read_limited(path: Path) -> str:
    if path.is_file() and path.stat().st_size > FILE_LIMIT:
        raise FileError(f"{path}: over {FILE_LIMIT // 2**20} MB. No response or level is that large.")
    return read_text(path)


def _print_json(values: Iterable[Any]) -> None:
    for value in values:
        sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
