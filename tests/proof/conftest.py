"""The small competition's bundle, the competition to forge, and one to which honest things happen."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from handed_in_for_tests import package_index
from honest_competition import HonestCompetition, LevelServer, make_honest, opened
from tampered_competition import make_competition
from workspace import with_this_python

from pcgeval.proof.bundle import make_bundle


@pytest.fixture(scope="session")
def bundle(competition: Path) -> bytes:
    return make_bundle(competition)


@pytest.fixture(scope="session")
def tampered(shared_folder: Callable[..., Path]) -> Path:
    """The competition of prompts and a program, recorded and live, before anything is forged."""
    return shared_folder(make_competition)


@pytest.fixture(scope="session")
def honest(shared_folder: Callable[..., Path]) -> Path:
    return shared_folder(make_honest)


@pytest.fixture
def live(honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HonestCompetition]:
    """A copy of the competition, with its server, where `example` is the only package."""
    folder = tmp_path / "competition"
    shutil.copytree(honest, folder, symlinks=True)
    monkeypatch.setenv("PATH", with_this_python())
    with package_index(tmp_path), LevelServer() as server:
        yield opened(folder, server)
