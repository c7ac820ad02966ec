"""The evidence of a competition on disk, one file a team and model.

So a team's grade depends on one folder of its own, and only on what the checks look at.
"""

from dataclasses import asdict, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from pcgeval.checks.evidence import Evidence, ModelEvidence
from pcgeval.checks.gathering import gather_model, gather_submission
from pcgeval.core.files import FileError, read_json, write_json
from pcgeval.core.layout import SUBMISSIONS, evidence_file
from pcgeval.core.params import Params

_MODEL_EVIDENCE = TypeAdapter(ModelEvidence)


def evidence_stage(params: Params, model: str, team: str, root: Path = Path()) -> None:
    """Gather what the stages made of a team's trials with one model into `data/evidence/<team>/<model>.json`.

    Raises:
        FileError: A stage's output is missing, incomplete or not what it should be.
    """
    write_json(root / evidence_file(model, team), asdict(gather_model(params, model, team, root)))


def read_evidence(params: Params, team: str, root: Path = Path()) -> Evidence:
    """Read a team's submission and its evidence with all models; one without evidence was not run.

    Raises:
        FileError: A file of evidence is unreadable or not what `evidence_stage` wrote.
    """
    evidence = gather_submission(root / SUBMISSIONS / team, team, params.limits.prompt_words)
    paths = [root / evidence_file(model, team) for model in params.models]
    if missing := [model for model, path in zip(params.models, paths, strict=True) if not path.exists()]:
        return replace(evidence, no_results=f"the submission was not run with {', '.join(missing)}")
    return replace(evidence, models=tuple(_read_model(path) for path in paths), no_results="")


def _read_model(path: Path) -> ModelEvidence:
    try:
        return _MODEL_EVIDENCE.validate_python(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FileError(f"{path}: {place}: {first['msg']}. Run `dvc repro` to make it again.") from error
