"""The stages of a competition: each reads and writes files below a competition's folder.

The scripts in `stages/` run them for DVC, and the audit runs all of them again in an empty folder. A stage imports only
the packages that it uses, which are its dependencies in dvc.yaml.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import psutil

from pcgeval.core.console import EXIT_INTERRUPTED, GARBAGE, exit_code_of, raise_on_sigterm
from pcgeval.core.errors import FileError
from pcgeval.core.packages import MEASURING, installed_release, installed_versions
from pcgeval.core.untrusted import read_json
from pcgeval.formats import layout
from pcgeval.formats.params import Params, load_params
from pcgeval.formats.stages import changed_teams

if TYPE_CHECKING:
    from pcgeval.judge.calls import OpenBackend

_PARENT_SECONDS = 0.5  # between two looks whether DVC still runs
_SHELLS = frozenset({"sh", "dash", "bash", "zsh", "fish", "ksh"})


def generate(params: Params, root: Path = Path()) -> None:
    """Ask all models for all teams' responses: `data/raw`, `data/trials`; no call is made twice."""
    from pcgeval.generation.generate import generate_stage

    generate_stage(params, root)


def extract(params: Params, root: Path = Path()) -> None:
    """Extract the drop_block calls from the responses: `data/intermediate`."""
    from pcgeval.levels.stages import extract_stage

    extract_stage(params, root)


def convert(params: Params, root: Path = Path()) -> None:
    """Convert the calls to Science Birds levels: `data/levels`."""
    from pcgeval.levels.stages import convert_stage

    convert_stage(params, root)


def simulate(params: Params, root: Path = Path()) -> None:
    """Simulate the levels: `data/stability`, `data/images`, `data/replays`."""
    from pcgeval.evaluator.stage import simulate_stage

    simulate_stage(params, root)


def classify(params: Params, root: Path = Path()) -> None:
    """Classify the pictures of the levels: `data/similarity`."""
    from pcgeval.similarity.stage import classify_stage

    classify_stage(params, root)


def diversity(params: Params, root: Path = Path()) -> None:
    """Compare the trials of each letter with one another: `data/diversity`."""
    from pcgeval.similarity.stage import diversity_stage

    diversity_stage(params, root)


def score(params: Params, root: Path = Path()) -> None:
    """Score all teams on each model: `results/official`."""
    from pcgeval.scoring.stages import score_stage

    score_stage(params, root)


def rank(params: Params, root: Path = Path()) -> None:
    """Rank the teams over all models: `results/ranking.json`, `ranking.csv` and `metrics`."""
    folders = (layout.SUBMISSIONS, layout.LOCKS, layout.RECORDINGS, layout.TRIALS, Path(params.similarity.model))
    measured = [layout.DATA / name for name in ("raw", "stability", "similarity", "diversity")]
    with changed_teams(
        params,
        root,
        [layout.METRICS],
        layout.DATA / "similarity",
        places=[()],
        reads=lambda: [*folders, *measured, Path("stages"), layout.PACKAGE_FILE],
        writes=lambda: [layout.RANKING_CSV, layout.RANKING_JSON, layout.METRICS],
        made_from=lambda: [params, installed_versions("numpy")],
    ) as changed:
        if changed:
            from pcgeval.scoring.stages import rank_stage

            rank_stage(params, root)


def grade(params: Params, root: Path = Path(), *, open_backend: "OpenBackend | None" = None) -> None:
    """Grade the submissions by the rubric: `data/evidence`, `data/judgements`, `data/grades`.

    `open_backend`, if given, opens the judge's model.
    """
    from pcgeval.checks.evidence import evidence_stage

    evidence_stage(params, root)
    shared = [layout.RUBRICS, layout.PACKAGED_DATA / layout.RUBRICS.name, layout.JUDGE_RECORDINGS]
    with changed_teams(
        params,
        root,
        [layout.GRADES, layout.JUDGEMENTS],
        layout.EVIDENCE,
        places=[(team,) for team in params.teams],
        reads=lambda team: [*shared, layout.SUBMISSIONS / team, layout.EVIDENCE / team],
        writes=lambda team: [layout.grade_file(team), layout.judgement_file(team)],
        made_from=lambda _: params,
    ) as changed:
        if changed:
            from pcgeval.judge.many import grade_stage

            settings = {"open_backend": open_backend} if open_backend else {}
            grades = grade_stage(params, root, [team for (team,) in changed], **settings)
            if params.rubric.judge == "simple":  # a leaf without a grade is asked about again
                changed[:] = [(team,) for team, grade in grades.items() if not grade.num_invalid_leaf_nodes]


def report(params: Params, root: Path = Path()) -> None:
    """Write the pages of the evaluated round: `results/report`."""
    with changed_teams(
        params,
        root,
        [layout.REPORT],
        layout.OFFICIAL_RESULTS,
        places=[()],
        reads=lambda: [layout.DATA, layout.OFFICIAL_RESULTS, layout.RANKING_CSV, layout.RANKING_JSON],
        writes=lambda: [layout.REPORT],
        made_from=lambda: [params, installed_versions("jinja2", "markupsafe", "pyarrow", *MEASURING)],
    ) as changed:
        if changed:
            from pcgeval.report.render import write_report

            write_report(params, root, root / layout.REPORT)


STAGES: tuple[Callable[[Params, Path], None], ...] = (  # in the order in which they run
    generate,
    extract,
    convert,
    simulate,
    classify,
    diversity,
    score,
    rank,
    grade,
    report,
)


def run_stage(stage: Callable[[Params], None]) -> NoReturn:
    """Run a stage on this folder's params.yaml, and end the process."""
    raise_on_sigterm()
    gc.set_threshold(GARBAGE)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a stage divides its work over the cores itself, at less cost
    if "DVC_STAGE" in os.environ:
        threading.Thread(target=_end_with_dvc, daemon=True).start()
    code = stage_exit_code(stage)
    sys.stdout.flush()
    sys.stderr.flush()
    if code == EXIT_INTERRUPTED:
        os._exit(code)  # a usual exit would wait for a thread that asks a model
    sys.exit(code)


def stage_exit_code(stage: Callable[[Params], None]) -> int:
    """Run a stage on this folder's params.yaml and return its exit code; an error becomes a message."""

    def action() -> None:
        check_package()
        stage(load_params())

    return exit_code_of(action, stage.__name__)


def check_package() -> None:
    """Raise FileError if Python imports another pcgeval than DVC hashes: src/pcgeval here, or that of pcgeval.json."""
    package, beside = Path(__file__).parent, Path("src", "pcgeval")
    if beside.is_dir() and not beside.samefile(package):
        raise FileError(
            f"{package}: Python imports this pcgeval, but the folder {Path.cwd()} has another one in {beside}, which "
            "its results are hashed with. Run `make setup` here and use its .venv, or set PYTHONPATH=src."
        )
    if layout.PACKAGE_FILE.is_file() and (named := read_json(layout.PACKAGE_FILE)) != installed_release():
        raise FileError(
            f"{layout.PACKAGE_FILE}: this competition is run with {named}, but Python imports {installed_release()} "
            f"of {package}. Install that version, or run `pcgeval init . --upgrade` to evaluate it again with this one."
        )


def _end_with_dvc() -> None:
    """Stop this process once the DVC that started it has ended: a killed DVC leaves its stage running."""
    with contextlib.suppress(psutil.NoSuchProcess, StopIteration):  # the latter where only a shell is left
        parents = psutil.Process().parents()
        dvc = next(parent for parent in parents if parent.name() not in _SHELLS)
        while dvc.is_running() and dvc.status() != psutil.STATUS_ZOMBIE:
            time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
