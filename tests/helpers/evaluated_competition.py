"""The small competition of `workspace`, evaluated by the functions of the pipeline in this process, without DVC."""

from pathlib import Path

from workspace import make_workspace

from pcgeval import pipeline
from pcgeval.core.params import load_params

STAGES = ("generate", *(stage.__name__ for stage in pipeline.STAGES))


def make_evaluated(folder: Path) -> Path:
    """Lay out the competition and run every stage but the report."""
    make_workspace(folder)
    evaluate(folder, until="grade")
    return folder


def evaluate(folder: Path, since: str = "generate", until: str = "report") -> None:
    """Run the stages from one to another: what was altered before is then what all later files follow from."""
    params = load_params(folder / "params.yaml")
    for name in STAGES[STAGES.index(since) : STAGES.index(until) + 1]:
        if name == "generate":
            for model in params.models:
                pipeline.generate(params, model, folder)
        else:
            getattr(pipeline, name)(params, folder)
