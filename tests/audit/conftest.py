"""A miniature competition that the real DVC evaluated, and the small one of recorded replies; tests get copies."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from evaluated_competition import evaluate as evaluate_small
from mini_competition import FILES, copy_sharing, run, write
from once import made_once


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The competition after `dvc repro`, committed to git with a clean tree."""
    return made_once("evaluated", evaluate, tmp_path_factory, worker_id)


def evaluate(folder: Path) -> Path:
    for name, text in FILES.items():
        write(folder, name, text)
    run(folder, "git", "init", "--quiet")
    run(folder, "dvc", "init", "--quiet")
    write(folder, ".dvc/config", "[core]\n    analytics = false\n    check_update = false\n[cache]\n    type = copy\n")
    run(folder, "dvc", "repro", "--quiet")
    run(folder, "git", "add", "--all")
    run(folder, "git", "commit", "--quiet", "--message", "evaluated")
    return folder


@pytest.fixture
def workspace(evaluated: Path, tmp_path: Path) -> Path:
    """A copy of the evaluated competition to do harm to; what git and DVC stored there is shared, not for writing."""
    copy = copy_sharing(".git/objects", ".dvc/cache")
    return Path(shutil.copytree(evaluated, tmp_path / "workspace", symlinks=True, copy_function=copy))


MODULES = {"__init__.py", "params.py", "formulas.py"}


@pytest.fixture(scope="session")
def competition(competition: Path, tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The small competition with a few modules of its source, so that it is packed and unpacked in less time."""
    return made_once("lean", partial(with_few_modules, competition), tmp_path_factory, worker_id)


def with_few_modules(competition: Path, folder: Path) -> Path:
    shutil.copytree(competition, folder, dirs_exist_ok=True)
    for path in (folder / "src").rglob("*"):
        if path.is_file() and path.name not in MODULES:
            path.unlink()
    evaluate_small(folder, "rank")  # the result hash is of the source too
    return folder


@pytest.fixture(scope="session")
def bundle(competition: Path) -> bytes:
    """Its bundle."""
    from pcgeval.audit.bundle import make_bundle

    return make_bundle(competition)
