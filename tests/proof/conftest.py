"""The small competition's bundle, and the competition to forge."""

from pathlib import Path

import pytest
from once import shared_folder
from tampered_competition import make_competition

from pcgeval.proof.bundle import make_bundle


@pytest.fixture(scope="session")
def bundle(competition: Path) -> bytes:
    """The bundle of the small competition."""
    return make_bundle(competition)


@pytest.fixture(scope="session")
def tampered(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The competition of prompts and a program, recorded and live, before anything is forged."""
    return shared_folder("tampered", make_competition, tmp_path_factory, worker_id)
