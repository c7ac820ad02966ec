"""A folder that one process of pytest-xdist makes and all read."""

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def shared_folder(
    name: str, make: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Path:
    """Return a folder that the first process to need it makes."""
    if worker_id == "master":
        return make(tmp_path_factory.mktemp(name))
    folder = tmp_path_factory.getbasetemp().parent / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            make(folder.with_suffix(".part")).rename(folder)
    return folder
