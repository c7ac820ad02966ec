"""A miniature competition that the real DVC evaluated, and a small one of recorded replies.

Each is evaluated once for all processes of pytest-xdist; each test gets a copy of it.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from evaluated_competition import make_evaluated
from filelock import FileLock
from mini_competition import FILES, copy_sharing, run, write


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The competition after `dvc repro`, committed to git with a clean tree."""
    return made_once("evaluated", evaluate, tmp_path_factory, worker_id)


def made_once(
    name: str, make: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Path:
    """Return a folder that the first process makes that wants it."""
    if worker_id == "master":
        return make(tmp_path_factory.mktemp(name))
    folder = tmp_path_factory.getbasetemp().parent / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            make(folder.with_suffix(".part")).rename(folder)
    return folder


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


@pytest.fixture(scope="session")
def competition(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The small competition of recorded replies, evaluated by its stages; no test changes it."""
    return made_once("competition", make_evaluated, tmp_path_factory, worker_id)


@pytest.fixture(scope="session")
def bundle(competition: Path) -> bytes:
    """Its bundle."""
    from pcgeval.audit.bundle import make_bundle

    return make_bundle(competition)
