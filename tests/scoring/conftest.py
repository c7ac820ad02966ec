import shutil
from pathlib import Path

import pytest
from evaluated_round import write_round

from pcgeval.core.files import write_text

CODE_AND_RECORDING = (
    "pcgeval.json",
    "stages/rank.py",
    "src/pcgeval/generation/guest/b.py",
    "data/recordings/small/builders/calls.jsonl",
)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    """An evaluated round that tests only read."""
    root = tmp_path_factory.mktemp("round")
    for name in CODE_AND_RECORDING:
        write_text(root / name, "{}\n")
    write_round(root)
    return root


@pytest.fixture
def root(evaluated, tmp_path):
    """A copy of it that a test may change."""
    return Path(shutil.copytree(evaluated, tmp_path / "round"))
