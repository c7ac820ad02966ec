"""The small competition's bundle, and the competition after a team changed its prompt."""

import shutil
from pathlib import Path

import pytest
from evaluated_competition import evaluate
from once import made_once
from tampered_competition import make_competition
from workspace import OTHER_PROMPT

from pcgeval.proof.bundle import make_bundle


@pytest.fixture(scope="session")
def bundle(competition: Path) -> bytes:
    """The bundle of the small competition."""
    return make_bundle(competition)


@pytest.fixture(scope="session")
def changed(competition: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small competition, evaluated after beta changed its prompt."""
    folder = Path(shutil.copytree(competition, tmp_path_factory.mktemp("changed") / "competition"))
    (folder / "data/submissions/beta/prompt.txt").write_text(OTHER_PROMPT)
    evaluate(folder)
    return folder


@pytest.fixture(scope="session")
def tampered(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The competition of prompts and a program, recorded and live, before anything is forged."""
    return made_once("tampered", make_competition, tmp_path_factory, worker_id)
