"""The outputs of all stages: only what changed is written, what left is removed, a lost input costs nothing."""

import shutil
from importlib import import_module
from pathlib import Path

import pytest
from params_for_tests import contents, file_states

from pcgeval import PcgevalError, pipeline
from pcgeval.formats.layout import STAGE_DIRS
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


WORK = {  # what the stages do as a whole or by team, and a file of each of their inputs
    "rank": ("pcgeval.scoring.stages.rank_stage", ("submissions", "recordings", "trials", *STAGE_DIRS[4:], "raw")),
    "grade": ("pcgeval.judge.many.grade_stage", ("submissions", "rubrics", "evidence")),
    "report": (
        "pcgeval.report.render.write_report",
        ("submissions", "trials", "replays", "grades", *STAGE_DIRS[4:6], "raw", "intermediate", "classifier"),
    ),
}


@pytest.mark.parametrize("stage", WORK)
def test_a_stage_does_nothing_while_nothing_changed_and_keeps_no_old_output(stage, competition, tmp_path, monkeypatch):
    root = shutil.copytree(competition, tmp_path / "copy", ignore=shutil.ignore_patterns("src", ".cache"))
    params, (work, inputs), works = load_params(root / "params.yaml"), WORK[stage], []
    module, _, name = work.rpartition(".")
    original = getattr(import_module(module), name)
    monkeypatch.setattr(work, lambda *args, **options: (works.append(stage), original(*args, **options))[1])

    def has_worked(params=params, root=root):
        works.clear()
        STAGES[stage](params, root)
        return bool(works)

    def outputs():
        return {path: path.read_bytes() for output in OUTPUTS[stage] for path in files_at(root / output)}

    assert has_worked()
    assert not has_worked()
    right = outputs()
    for file in right:
        for change in (lambda file: file.write_bytes(b"forged"), Path.unlink):
            change(file)
            assert has_worked(), file
            assert outputs() == right
    for output in OUTPUTS[stage]:
        if (root / output).is_dir():
            (root / output / "of nobody").touch()
            has_worked()
    assert outputs() == right
    for folder in inputs:
        file = max(files_at(root / "data" / folder))
        file.write_bytes(file.read_bytes() + b"\n")
        assert has_worked(), file
        assert not has_worked()
    assert has_worked(params.model_copy(update={"scoring": params.scoring.model_copy(update={"bootstrap": 2})}))
    assert has_worked()
    assert has_worked(root=shutil.copytree(root, tmp_path / "elsewhere"))
    if stage != "grade":  # its judge computes nothing with other packages
        monkeypatch.setattr("pcgeval.pipeline.installed_versions", lambda *_: {"numpy": "0"})
        assert has_worked()
    monkeypatch.setattr("pcgeval.formats.stages.installed_release", lambda: "another package")
    assert has_worked()
    assert not has_worked()


def files_at(path):
    return [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]


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
