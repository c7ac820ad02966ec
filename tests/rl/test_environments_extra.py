"""The package `verifiers` is an extra, and each environment is a package of its own."""

import tomllib
from pathlib import Path

import pytest

import pcgeval
from pcgeval.rl import loading
from pcgeval.rl.loading import EnvironmentsError

ENVIRONMENTS = Path(__file__).parents[2] / "environments"


def test_who_lacks_verifiers_is_told_what_to_install(monkeypatch):
    monkeypatch.setattr(loading, "find_spec", lambda _: None)
    with pytest.raises(EnvironmentsError, match=r"pip install 'pcgeval\[verifiers\]'"):
        pcgeval.load_environment()


@pytest.mark.parametrize("name", ["pcgeval_levels", "pcgeval_papers"])
def test_each_environment_is_a_package(name):
    project = tomllib.loads((ENVIRONMENTS / name / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == name.replace("_", "-")
    assert f"vf-eval {project['name']} " in (ENVIRONMENTS / name / "README.md").read_text("utf-8")
