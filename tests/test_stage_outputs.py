"""The outputs of all stages: only what changed is written, what left is removed, a lost input costs nothing."""

import shutil

import pytest
from params_for_tests import contents, file_states

from pcgeval import PcgevalError, pipeline
from pcgeval.formats.params import load_params
from pcgeval.proof.parts import OUTPUTS

STAGES = {stage.__name__: stage for stage in pipeline.STAGES}
INPUTS = {
    "extract": "data/raw",
    "convert": "data/intermediate",
    "simulate": "data/levels",
    "classify": "data/images",
    "diversity": "data/similarity",
    "score": "data/similarity",
}


@pytest.mark.parametrize("stage", INPUTS)
def test_a_run_writes_what_changed_removes_what_left_and_keeps_what_lost_its_input(competition, tmp_path, stage):
    root = shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src"))
    params = load_params(root / "params.yaml")
    outputs = [root / output for output in OUTPUTS[stage]]
    STAGES[stage](params, root)
    before, names = [file_states(output) for output in outputs], [set(contents(output)) for output in outputs]
    assert all(before)
    STAGES[stage](params, root)
    assert [file_states(output) for output in outputs] == before

    model = next(iter(params.models))
    alone = {"teams": {"alpha": params.teams["alpha"]}, "models": {model: params.models[model]}}
    one_letter = {"competition": params.competition.model_copy(update={"characters": "I"})}
    STAGES[stage](params.model_copy(update=alone | one_letter), root)
    after = [set(contents(output)) for output in outputs]
    assert all(set() < left < everything for left, everything in zip(after, names, strict=True))
    assert all(name.startswith(model) for left in after for name in left)
    assert not [name for left in after for name in left if "beta" in name or "T.json" in name or "/T/" in name]

    before = [file_states(output) for output in outputs]
    shutil.rmtree(root / INPUTS[stage])
    with pytest.raises(PcgevalError, match=r"Run `dvc repro`"):
        STAGES[stage](params, root)
    assert [file_states(output) for output in outputs] == before
