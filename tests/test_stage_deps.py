"""Every stage lists the modules that its result depends on: a forgotten one would leave stale results unnoticed."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from pcgeval.audit.imports import SourceTree, imported_modules
from pcgeval.scoring.result_hash import PACKAGES

ROOT = Path(__file__).parents[1]
SOURCE = SourceTree(ROOT / "src")
MODULES = SOURCE.modules

STAGES: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]


def script(stage: str) -> str:
    """Return the path of a stage's script from its command."""
    found = re.search(r"stages/\w+\.py", STAGES[stage]["cmd"])
    assert found, f"stage {stage}: its command runs no script in stages/"
    return found.group()


def is_covered(path: Path, deps: list[str]) -> bool:
    """Tell whether a dep is a file or one of the folders that it lies in."""
    name = path.relative_to(ROOT)
    return any(Path(dep) in {name, *name.parents} for dep in deps)


@pytest.mark.parametrize("stage", STAGES)
def test_the_script_is_a_dep(stage: str) -> None:
    assert script(stage) in STAGES[stage]["deps"]
    assert (ROOT / script(stage)).is_file()


@pytest.mark.parametrize("stage", STAGES)
def test_every_imported_module_is_covered(stage: str) -> None:
    needed = {MODULES[module] for module in SOURCE.loaded_by(ROOT / script(stage))}
    missing = sorted(str(path.relative_to(ROOT)) for path in needed if not is_covered(path, STAGES[stage]["deps"]))
    assert not missing, f"add to the deps of stage {stage} in dvc.yaml, or their folders: {', '.join(missing)}"


@pytest.mark.parametrize("stage", STAGES)
def test_every_module_dep_is_imported(stage: str) -> None:
    """A dep too many reruns a stage for nothing."""
    imported = {MODULES[module] for module in SOURCE.loaded_by(ROOT / script(stage))}
    modules = [dep for dep in STAGES[stage]["deps"] if dep.startswith("src/") and Path(dep).suffix in {"", ".py"}]
    read = [f"src/pcgeval/{each}" for each in PACKAGES] if stage == "rank" else []  # for the result hash
    unused = [dep for dep in modules if dep not in read and not any(is_covered(path, [dep]) for path in imported)]
    assert not unused, f"stage {stage} imports nothing of {', '.join(unused)}: take them from its deps in dvc.yaml"


def test_the_check_can_fail() -> None:
    grid = MODULES["pcgeval.levels.grid"]
    assert MODULES["pcgeval.core.files"] in {MODULES[each] for each in SOURCE.loaded_by(ROOT / "stages/convert.py")}
    assert is_covered(grid, ["src/pcgeval/levels"])
    assert is_covered(grid, ["src/pcgeval/levels/grid.py"])
    assert not is_covered(grid, ["src/pcgeval/level", "src/pcgeval/levels/calls.py", "levels"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pcgeval.levels.grid", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("from pcgeval.levels import grid", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("from pcgeval.levels.grid import drop", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("def f():\n    from pcgeval.core import files", {"pcgeval", "pcgeval.core", "pcgeval.core.files"}),
        ("import importlib\nimportlib.import_module('pcgeval.levels')", {"pcgeval", "pcgeval.levels"}),
        ("from . import grid", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("from ..core.files import read_text", {"pcgeval", "pcgeval.core", "pcgeval.core.files"}),
        ("if TYPE_CHECKING:\n    import pcgeval.core.files", set()),
        ("import json, pcgevaluation", set()),
    ],
)
def test_the_import_walk_itself(source: str, expected: set[str]) -> None:
    assert imported_modules(source, MODULES, "pcgeval.levels.calls") == expected
