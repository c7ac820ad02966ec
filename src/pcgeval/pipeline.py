"""The stages of a competition: each reads and writes files below a competition's folder.

The scripts in `stages/` run them for DVC, and the audit runs all of them again in an empty folder. A stage imports only
the packages that it uses, which are its dependencies in dvc.yaml.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pcgeval.core.params import Params

if TYPE_CHECKING:
    from pcgeval.judge.calls import OpenBackend


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
    from pcgeval.checks.gathering import evidence_stage
    from pcgeval.judge.stage import grade_stage

    evidence_stage(params, root)
    grade_stage(params, root, **({"open_backend": open_backend} if open_backend else {}))


def report(params: Params, root: Path = Path()) -> None:
    """Write the pages of the evaluated round: `results/report`."""
    from pcgeval.core.layout import REPORT
    from pcgeval.report.render import write_report

    write_report(params, root, root / REPORT)


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
OUTPUTS: Mapping[str, tuple[str, ...]] = {  # of each stage, as in dvc.yaml
    "generate": ("data/raw", "data/trials"),
    "extract": ("data/intermediate",),
    "convert": ("data/levels",),
    "simulate": ("data/stability", "data/images", "data/replays"),
    "classify": ("data/similarity",),
    "diversity": ("data/diversity",),
    "score": ("results/official",),
    "rank": ("results/ranking.json", "results/ranking.csv", "results/metrics"),
    "grade": ("data/grades", "data/judgements", "data/evidence"),
    "report": ("results/report",),
}
