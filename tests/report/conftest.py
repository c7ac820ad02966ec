import shutil

import pytest
from evaluated_round import PARAMS, write_round
from page_for_tests import read_report

from pcgeval.report.render import write_report


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """An evaluated round that tests only read."""
    root = tmp_path_factory.mktemp("evaluated")
    write_round(root)
    return root


@pytest.fixture
def workspace(evaluated, tmp_path, monkeypatch):
    """A copy of it that a test may break, which is the working folder."""
    copy = shutil.copytree(evaluated, tmp_path / "workspace")
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture(scope="session")
def index(evaluated, tmp_path_factory):
    return write_report(PARAMS, evaluated, tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="session")
def pages(index):
    return read_report(index)
