"""The classifier that most tests of this folder use."""

from pathlib import Path

import pytest
from levels_for_tests import save_vit


@pytest.fixture(scope="session")
def tiny_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vit(tmp_path_factory.mktemp("classifier"))
