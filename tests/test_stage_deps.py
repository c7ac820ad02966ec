"""Every stage lists the modules that its result depends on: a forgotten one would leave stale results unnoticed."""

import inspect
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import pytest
import yaml

from pcgeval import pipeline
from pcgeval.proof.parts import OUTPUTS, PARTS

ROOT = Path(__file__).parents[1]
STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text("utf-8"))["stages"]
PIPELINE = "pcgeval.pipeline"


@cache
def graph() -> grimp.ImportGraph:
    """The imports of pcgeval, read from the syntax; importing a module runs its package."""
    imports = grimp.build_graph("pcgeval", exclude_type_checking_imports=True, cache_dir=None)
    for module in imports.modules - {"pcgeval"}:
        imports.add_import(importer=module, imported=module.rpartition(".")[0])
    return imports


def loaded_by(stage: str) -> set[str]:
    """Return the modules that a stage loads while it runs its function of the pipeline and no other one."""
    _, first_function = inspect.getsourcelines(pipeline.generate)
    source, start = inspect.getsourcelines(getattr(pipeline, stage))
    lines = {*range(first_function), *range(start, start + len(source))}
    modules = set()
    for module in graph().find_modules_directly_imported_by(PIPELINE):
        details = graph().get_import_details(importer=PIPELINE, imported=module)
        if any(detail["line_number"] in lines for detail in details):
            modules |= {module}
    return modules.union({PIPELINE}, *map(graph().find_upstream_modules, modules))


def path_of(module: str) -> Path:
    path = Path("src", *module.split("."))
    return path.with_suffix(".py") if (ROOT / path.with_suffix(".py")).exists() else path / "__init__.py"


def test_the_stages_are_those_of_the_pipeline_in_its_order() -> None:
    assert list(STAGES) == [stage.__name__ for stage in pipeline.STAGES] == list(OUTPUTS)


@pytest.mark.parametrize("stage", STAGES)
def test_the_outputs_are_those_of_the_pipeline(stage: str) -> None:
    listed = [*STAGES[stage]["outs"], *STAGES[stage].get("metrics", [])]
    assert sorted(path for out in listed for path in out) == sorted(OUTPUTS[stage])
    assert all(settings["persist"] for out in listed for settings in out.values())


def test_the_parts_of_a_competition_are_the_deps_and_the_outs_of_the_stages() -> None:
    parts = {part.path: part for part in PARTS}
    deps = {Path(dep) for stage in STAGES.values() for dep in stage["deps"]}
    unknown = [str(dep) for dep in deps if parts.keys().isdisjoint({dep, *dep.parents})]
    assert not unknown, f"add to PARTS in proof/parts.py: {', '.join(unknown)}"
    no_dep = {Path(name) for name in ("params.yaml", "pcgeval.json", "dvc.yaml", ".dvcignore", "constraints.txt")}
    for path, part in parts.items():
        needed = path not in no_dep and part.kind in {"input", "code"} and part.uses != ("init",)
        assert not needed or any(path in {dep, *dep.parents} for dep in deps), f"{path}: no stage depends on it"
    listed = [out for stage in STAGES.values() for out in [*stage["outs"], *stage.get("metrics", [])]]
    in_git = {Path(path) for out in listed for path, settings in out.items() if not settings.get("cache", True)}
    assert in_git == {part.path for part in parts.values() if part.stage and part.kind == "result"}


@pytest.mark.parametrize("stage", STAGES)
def test_the_script_and_every_imported_module_are_deps(stage: str) -> None:
    needed = {Path("stages", f"{stage}.py"), *map(path_of, loaded_by(stage))}
    deps = set(map(Path, STAGES[stage]["deps"]))
    if Path("results/ranking.json") in deps:  # it has a hash over the code that the ranking depends on
        deps |= {Path(dep) for dep in STAGES["rank"]["deps"] if dep.startswith("src/")}
    missing = [str(path) for path in sorted(needed) if deps.isdisjoint({path, *path.parents})]
    assert not missing, f"add to the deps of stage {stage} in dvc.yaml, or their folders: {', '.join(missing)}"
