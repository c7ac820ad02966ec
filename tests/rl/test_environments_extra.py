"""The package `verifiers` is an extra: nothing but the environments needs it, and who lacks it is told."""

import subprocess
import sys
import tomllib

import pytest
from imports import MODULES, SOURCE
from packaging.requirements import Requirement

import pcgeval
from pcgeval.core.packages import EXTRAS
from pcgeval.rl import loading
from pcgeval.rl.loading import EnvironmentsError

ENVIRONMENTS = {"pcgeval.rl.level_environment", "pcgeval.rl.paper_environment", "pcgeval.rl.shell_tool"}


def test_only_the_environments_need_verifiers():
    # what runs inside the sandbox has stand-ins for packages
    names = sorted(name for name in MODULES if not name.endswith("__main__") and ".guest." not in name)
    code = f"""
import importlib, sys
sys.modules["verifiers"] = None
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name.partition(".")[0] == "verifiers":
            print(name)
        elif error.name.partition(".")[0] not in {set(EXTRAS)!r}:  # an environment for verifiers has not all of them
            raise
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=SOURCE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert set(done.stdout.split()) == ENVIRONMENTS


def test_who_lacks_verifiers_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentsError, match=r"pip install 'pcgeval\[verifiers\]'"):
        pcgeval.load_environment()


@pytest.mark.parametrize("name", ["pcgeval_levels", "pcgeval_papers"])
def test_each_environment_is_a_package(name):
    folder = SOURCE.parent / "environments" / name
    project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == name.replace("_", "-")
    (needed,) = map(Requirement, project["dependencies"])
    assert needed.extras == {"pcgeval_levels": {"levels", "verifiers"}, "pcgeval_papers": {"verifiers"}}[name]
    assert f"vf-eval {project['name']} " in (folder / "README.md").read_text("utf-8")
    text = (folder / name / "__init__.py").read_text("utf-8")
    assert any(f"from {module} import" in text for module in ENVIRONMENTS)
