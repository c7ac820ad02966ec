import shutil

import pytest
from evaluated_round import write_round


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """An evaluated round that tests only read."""
    root = tmp_path_factory.mktemp("evaluated")
    write_round(root)
    return root


@pytest.fixture
def workspace(evaluated, tmp_path):
    """A copy of it that a test may break."""
    return shutil.copytree(evaluated, tmp_path / "workspace")
