"""The small competition's bundle, and the competition to forge."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tampered_competition import make_competition

from pcgeval.proof.bundle import make_bundle


@pytest.fixture(scope="session")
def bundle(competition: Path) -> bytes:
    return make_bundle(competition)


@pytest.fixture(scope="session")
def tampered(shared_folder: Callable[..., Path]) -> Path:
    """The competition of prompts and a program, recorded and live, before anything is forged."""
    return shared_folder(make_competition)
