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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn

import psutil

from pcgeval.core.console import EXIT_INTERRUPTED, GARBAGE, exit_code_of, raise_on_sigterm
from pcgeval.core.errors import FileError
from pcgeval.core.packages import installed_release
from pcgeval.core.untrusted import read_json
from pcgeval.formats import layout
from pcgeval.formats.params import PARAMS_FILE, Params, load_params

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
    from pcgeval.similarity.diversity import diversity_stage

    diversity_stage(params, root)


def score(params: Params, root: Path = Path()) -> None:
    """Score all teams on each model: `results/official`."""
    from pcgeval.scoring.stages import score_stage

    score_stage(params, root)


def rank(params: Params, root: Path = Path()) -> None:
    """Rank the teams over all models: `results/ranking.json`, `ranking.csv` and `metrics`."""
    from pcgeval.scoring.stages import rank_stage

    rank_stage(params, root)


def grade(params: Params, root: Path = Path(), *, open_backend: "OpenBackend | None" = None) -> None:
    """Grade the submissions by the rubric: `data/evidence`, `data/judgements`, `data/grades`.

    `open_backend`, if given, opens the judge's model.
    """
    from pcgeval.checks.evidence import evidence_stage
    from pcgeval.judge.many import grade_stage

    evidence_stage(params, root)
    grade_stage(params, root, **({"open_backend": open_backend} if open_backend else {}))


def report(params: Params, root: Path = Path()) -> None:
    """Write the pages of the evaluated round: `results/report`."""
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
Use = Literal["audit", "bundle", "round", "commit", "init"]


class Part(NamedTuple):
    """A file or folder of a competition.

    Attributes:
        path: The place below the competition's folder.
        kind: People write an `input`, a release has the `code`, and a stage writes an `output`, which DVC keeps, or a
            `result`, which git keeps.
        uses: An `audit` copies it into its empty folder, a `bundle` packs it, a `round` gets a copy, a `commit` before
            the run promises it, and `init` writes it. git keeps all that is not for `init` alone.
        stage: The stage that writes it.
        each: Whose folders or files it holds: a bundle has only those of the competition's teams and models.
        first: The one of its folders that `init` writes.
        is_optional: Whether a competition may lack it.
    """

    path: Path
    kind: Literal["input", "code", "output", "result"]
    uses: tuple[Use, ...] = ()
    stage: str = ""
    each: Literal["", "team", "model and team"] = ""
    first: str = ""
    is_optional: bool = False

    def places(self, params: Params) -> list[Path]:
        """Return its folders of a competition's teams and models, or its path."""
        if self.each == "team":
            return [self.path / team for team in params.teams]
        if self.each:
            return [self.path / model / team for model in params.models for team in params.teams]
        return [self.path]


PARTS = (  # a test compares them with dvc.yaml
    Part(Path(PARAMS_FILE), "input", ("audit", "bundle", "commit")),
    Part(layout.SUBMISSIONS, "input", ("audit", "bundle", "round", "commit", "init"), each="team", first="zero-shot"),
    Part(layout.LOCKS, "input", ("audit", "bundle", "round", "commit", "init")),
    Part(layout.RECORDINGS, "input", ("audit", "bundle", "round")),
    Part(layout.RUBRICS, "input", ("audit", "bundle", "round", "commit", "init"), first="competition"),
    Part(layout.CLASSIFIER, "input", ("round", "commit", "init")),  # an audit of a bundle takes the shipped one
    Part(layout.EXAMPLE_LETTERS, "input", ("audit", "round"), is_optional=True),
    Part(Path("stages"), "code", ("audit", "bundle", "round")),
    Part(Path("src/pcgeval"), "code", ("audit", "bundle", "round"), is_optional=True),
    Part(layout.PACKAGE_FILE, "code", ("audit", "bundle", "round"), is_optional=True),  # in its place
    Part(Path("dvc.yaml"), "code", ("bundle", "round")),
    Part(Path(".dvcignore"), "code", ("bundle", "round", "init")),
    Part(Path("constraints.txt"), "code", ("bundle",), is_optional=True),
    Part(Path(".gitignore"), "code", ("init",)),
    Part(Path(".gitattributes"), "code", ("init",)),
    Part(Path(".dvc/.gitignore"), "code", ("init",)),
    Part(Path(".dvc/config"), "code", ("init",)),
    Part(layout.DVC_LOCK, "result", ("bundle",)),
    Part(layout.DATA / "raw", "output", ("bundle",), "generate", each="model and team"),
    Part(layout.TRIALS, "output", ("bundle",), "generate"),
    Part(layout.DATA / "intermediate", "output", ("bundle",), "extract", each="model and team"),
    Part(layout.DATA / "levels", "output", ("bundle",), "convert", each="model and team"),
    Part(layout.DATA / "stability", "output", ("bundle",), "simulate", each="model and team"),
    Part(layout.DATA / "images", "output", (), "simulate"),  # as replays and pages, they follow from the rest
    Part(layout.REPLAYS, "output", (), "simulate"),
    Part(layout.DATA / "similarity", "output", ("bundle",), "classify", each="model and team"),
    Part(layout.DATA / "diversity", "output", ("bundle",), "diversity", each="model and team"),
    Part(layout.OFFICIAL_RESULTS, "result", ("bundle",), "score"),
    Part(layout.RANKING_JSON, "result", ("bundle",), "rank"),
    Part(layout.RANKING_CSV, "result", ("bundle",), "rank"),
    Part(layout.METRICS, "result", ("bundle",), "rank"),
    Part(layout.GRADES, "result", ("bundle",), "grade", each="team"),
    Part(layout.JUDGEMENTS, "output", ("bundle",), "grade", each="team"),
    Part(layout.EVIDENCE, "output", ("bundle",), "grade", each="team"),
    Part(layout.REPORT, "output", (), "report"),
)
OUTPUTS: Mapping[str, tuple[str, ...]] = {  # of each stage, as in dvc.yaml
    stage.__name__: tuple(str(part.path) for part in PARTS if part.stage == stage.__name__) for stage in STAGES
}


def parts_for(use: Use) -> list[Part]:
    """Return the parts of a competition that have a use."""
    return [part for part in PARTS if use in part.uses]


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
    named_in = layout.PACKAGE_FILE
    if named_in.is_file() and (named := read_json(named_in)) != installed_release():
        raise FileError(
            f"{named_in}: this competition is run with {named}, but Python imports {installed_release()} from "
            f"{package}. Install that version, or run `pcgeval init . --upgrade` to evaluate it again with this one."
        )


def _end_with_dvc() -> None:
    """Stop this process once the DVC that started it has ended: a killed DVC leaves its stage running."""
    with contextlib.suppress(psutil.NoSuchProcess, StopIteration):  # the latter where only a shell is left
        parents = psutil.Process().parents()
        dvc = next(parent for parent in parents if parent.name() not in _SHELLS)
        while dvc.is_running() and dvc.status() != psutil.STATUS_ZOMBIE:
            time.sleep(_PARENT_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
