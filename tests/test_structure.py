"""Imports run downward only, so that a package can be understood, tested and listed as a dep without those above it."""

import pytest
from module_imports import MODULES, imported_modules, imports_of

# from the ground up; a module imports from its own package and from lower lines
LAYERS = (
    ("core",),
    ("levels", "submissions"),
    ("llm", "evaluator", "similarity", "scoring", "checks"),
    ("serve", "sandbox", "rubric"),
    ("generation", "judge"),
    ("report", "audit", "rl"),
    ("cli",),
    ("__main__", "the public interface"),
)
HEIGHTS = {part: height for height, parts in enumerate(LAYERS) for part in parts}


def part_of(module: str) -> str:
    """Return the package or top-level module below pcgeval that a module belongs to."""
    return module.split(".")[1] if "." in module else "the public interface"


@pytest.mark.parametrize("module", MODULES)
def test_every_module_has_a_layer(module: str) -> None:
    assert part_of(module) in HEIGHTS, f"{module}: add {part_of(module)!r} to LAYERS where it belongs"


@pytest.mark.parametrize("module", MODULES)
def test_imports_run_downward_only(module: str) -> None:
    part = part_of(module)
    # importing anything runs pcgeval/__init__.py, which imports nothing by itself
    imported = {part_of(each) for each in imports_of(MODULES[module]) - {"pcgeval"}} - {part}
    upward = sorted(each for each in imported if HEIGHTS[each] >= HEIGHTS[part])
    assert not upward, f"{module} imports {', '.join(upward)}, which is not below {part}"


def test_the_public_interface_imports_nothing_until_it_is_asked() -> None:
    assert imports_of(MODULES["pcgeval"]) == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pcgeval.levels.grid", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("from pcgeval.levels import grid", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("from pcgeval.levels.grid import drop", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("def f():\n    from pcgeval.core import files", {"pcgeval", "pcgeval.core", "pcgeval.core.files"}),
        (
            "import importlib\nimportlib.import_module('pcgeval.core.files')",
            {"pcgeval", "pcgeval.core", "pcgeval.core.files"},
        ),
        ("from . import grid", {"pcgeval", "pcgeval.levels", "pcgeval.levels.grid"}),
        ("from ..core.files import read_text", {"pcgeval", "pcgeval.core", "pcgeval.core.files"}),
        ("if TYPE_CHECKING:\n    import pcgeval.core.files", set()),
        ("import json, pcgevaluation", set()),
    ],
)
def test_the_import_walk_itself(source: str, expected: set[str]) -> None:
    assert imported_modules(source, "pcgeval.levels.calls") == expected
