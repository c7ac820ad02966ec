"""The package `verifiers` is an extra: nothing but the environments needs it, and who lacks it is told."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from imports import MODULES, SOURCE
from packaging.requirements import Requirement

import pcgeval
from pcgeval.core.packages import EXTRAS
from pcgeval.rl import loading
from pcgeval.rl.loading import EnvironmentsError

ENVIRONMENTS = {"pcgeval.rl.level_environment", "pcgeval.rl.paper_environment", "pcgeval.rl.shell_tool"}


def imported(path: Path) -> set[str]:
    """Return the first parts of the names of all modules that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    others = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    called = {ast.literal_eval(node.args[0]) for node in nodes if is_import_call(node)}
    return {name.partition(".")[0] for name in plain | others | called}


def is_import_call(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("import_module", "__import__"))
        and isinstance(node.args[0], ast.Constant)
    )


def test_only_the_environments_import_verifiers():
    assert {name for name, path in MODULES.items() if "verifiers" in imported(path)} == ENVIRONMENTS


def test_the_walk_sees_every_way_to_import(tmp_path):
    for source in ("import verifiers.v1 as vf", "from verifiers import v1", "import_module('verifiers.v1')"):
        (tmp_path / "module.py").write_text(f"def f():\n    {source}\n")
        assert "verifiers" in imported(tmp_path / "module.py")


def test_the_core_runs_where_verifiers_cannot_be_imported():
    core = sorted(name for name in MODULES if name not in ENVIRONMENTS and not name.endswith("__main__"))
    core = [name for name in core if ".guest." not in name]  # runs inside the sandbox, with stand-ins for packages
    others = EXTRAS.keys() - {"verifiers"}  # an environment for verifiers has not all of them
    code = f"""
import importlib, sys
sys.modules["verifiers"] = None
for name in {core!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] not in {others!r}:
            raise
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_who_lacks_verifiers_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentsError, match=r"pip install 'pcgeval\[verifiers\]'"):
        pcgeval.load_environment()


@pytest.mark.parametrize("name", ["pcgeval_levels", "pcgeval_papers"])
def test_each_environment_is_a_package_of_its_own(name):
    folder = SOURCE.parent / "environments" / name
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == name.replace("_", "-")
    (needed,) = map(Requirement, project["dependencies"])
    extras = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert "verifiers" in needed.extras <= extras.keys()
    assert f"vf-eval {project['name']} " in (folder / "README.md").read_text("utf-8")
    module = ast.parse((folder / name / "__init__.py").read_text("utf-8"))
    (imports,) = (node for node in module.body if isinstance(node, ast.ImportFrom))
    assert imports.module in ENVIRONMENTS
