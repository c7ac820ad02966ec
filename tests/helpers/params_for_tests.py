"""The settings of a small competition, as params.yaml would give them, and what lies in its folder."""

from pathlib import Path
from typing import Any

from pcgeval.core.params import Params, parse_params

SECTIONS = ("physics", "similarity", "diversity", "scoring", "rubric")


def small_params(
    letters: str, trials: int = 2, *, teams: tuple[str, ...] = ("team",), models: tuple[str, ...] = ("m",), **more: Any
) -> Params:
    """Return the settings of a competition of recorded models; `more` are sections of params.yaml."""
    return parse_params(
        {
            "competition": {"name": "Test", "edition": "1", "characters": letters, "trials": trials, "seed": 1},
            "teams": list(teams),
            "models": {model: {"backend": "recorded", "name": model} for model in models},
            "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
            **{section: {} for section in SECTIONS},
            **more,
        },
        "params.yaml",
    )


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder, by its path there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def file_states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the inode and the time of the last change of every file: a file that is written again gets others."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }
