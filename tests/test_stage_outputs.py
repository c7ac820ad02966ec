"""The outputs of all stages: only what changed is written, what left is removed, a lost input costs nothing."""

import shutil
from pathlib import Path

import pytest
from params_for_tests import contents, file_states

from pcgeval import PcgevalError, pipeline
from pcgeval.core.params import Params, load_params

STAGES = {stage.__name__: stage for stage in pipeline.STAGES}
INPUTS = {
    "extract": "data/raw",
    "convert": "data/intermediate",
    "simulate": "data/levels",
    "classify": "data/images",
    "diversity": "data/similarity",
    "score": "data/similarity",
}


@pytest.fixture
def root(competition: Path, tmp_path: Path) -> Path:
    """A copy of the small competition, evaluated."""
    return shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src"))


@pytest.fixture
def params(root: Path) -> Params:
    return load_params(root / "params.yaml")


@pytest.mark.parametrize("stage", INPUTS)
def test_a_second_run_writes_nothing_and_one_without_its_input_removes_nothing(root: Path, params: Params, stage: str):
    outputs = [root / output for output in pipeline.OUTPUTS[stage]]
    STAGES[stage](params, root)
    before = [file_states(output) for output in outputs]
    assert all(before)
    STAGES[stage](params, root)
    assert [file_states(output) for output in outputs] == before
    shutil.rmtree(root / INPUTS[stage])
    with pytest.raises(PcgevalError, match=r"Run `dvc repro`"):
        STAGES[stage](params, root)
    assert [file_states(output) for output in outputs] == before


@pytest.mark.parametrize("stage", INPUTS)
def test_what_belongs_to_a_team_a_model_or_a_letter_that_left_is_removed(root: Path, params: Params, stage: str):
    competition = params.competition.model_copy(update={"characters": "I"})
    models = dict(list(params.models.items())[:1])
    left = params.model_copy(update={"teams": ("alpha",), "models": models, "competition": competition})
    before = {name for output in pipeline.OUTPUTS[stage] for name in contents(root / output)}
    STAGES[stage](left, root)
    after = {name for output in pipeline.OUTPUTS[stage] for name in contents(root / output)}
    assert 0 < len(after) < len(before)
    for name in after:
        assert name.startswith(tuple(models))
        assert "beta" not in name
        assert "T.json" not in name
        assert "/T/" not in name
