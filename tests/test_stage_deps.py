"""Every stage lists the modules that its result depends on: a forgotten one would leave stale results unnoticed."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from imports import MODULES, loaded_by_stage

from pcgeval import pipeline

ROOT = Path(__file__).parents[1]
STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["stages"]


def script(stage: str) -> str:
    """Return the path of a stage's script."""
    return f"stages/{stage}.py"


def is_covered(path: Path, deps: list[str]) -> bool:
    """Tell whether a dep is a file or one of the folders that it lies in."""
    name = path.relative_to(ROOT)
    return any(Path(dep) in {name, *name.parents} for dep in deps)


def modules_of(stage: str) -> list[Path]:
    """Return the files of the modules that a stage loads."""
    return [MODULES[module] for module in sorted(loaded_by_stage(stage))]


def test_the_stages_are_those_of_the_pipeline_in_its_order() -> None:
    assert list(STAGES) == ["generate", *(stage.__name__ for stage in pipeline.STAGES)] == list(pipeline.OUTPUTS)
    assert {path.stem for path in (ROOT / "stages").glob("*.py")} == STAGES.keys()


@pytest.mark.parametrize("stage", STAGES)
def test_the_outputs_are_those_of_the_pipeline(stage: str) -> None:
    """The outputs of the matrix over the models lie in a folder each of the pipeline's output."""
    listed = [*STAGES[stage]["outs"], *STAGES[stage].get("metrics", [])]
    paths = [path.removesuffix("/${item.model}") for out in listed for path in out]
    assert sorted(paths) == sorted(pipeline.OUTPUTS[stage])
    assert all(settings["persist"] for out in listed for settings in out.values())


@pytest.mark.parametrize("stage", STAGES)
def test_the_script_runs_and_is_a_dep(stage: str) -> None:
    words = STAGES[stage]["cmd"].split()
    assert words == ["python", script(stage), *(["${item.model}"] if "matrix" in STAGES[stage] else [])]
    assert is_covered(ROOT / script(stage), STAGES[stage]["deps"])
    first, *_, last = (ROOT / script(stage)).read_text("utf-8").splitlines()
    assert first.startswith('"""')
    assert last == f"    run_stage({stage})"


@pytest.mark.parametrize("stage", STAGES)
def test_every_imported_module_is_covered(stage: str) -> None:
    deps = STAGES[stage]["deps"]
    missing = [str(path.relative_to(ROOT)) for path in modules_of(stage) if not is_covered(path, deps)]
    assert not missing, f"add to the deps of stage {stage} in dvc.yaml, or their folders: {', '.join(missing)}"
