"""The settings of a small competition, as params.yaml would give them, and what lies in its folder."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pcgeval.formats.params import Params, parse_params

SECTIONS = ("physics", "similarity", "diversity", "scoring", "rubric")


def small_values(
    letters: str,
    trials: int = 2,
    *,
    seed: int = 1,
    teams: Iterable[str] | Mapping[str, Any] = ("team",),
    models: Mapping[str, Any] | Iterable[str] = ("m",),
    **more: Any,
) -> dict[str, Any]:
    """Return params.yaml of a small competition; models without settings are recorded, `more` are sections."""
    if not isinstance(models, Mapping):
        models = {model: {"backend": "recorded", "name": model} for model in models}
    return {
        "competition": {"name": "test", "edition": "1", "characters": letters, "trials": trials, "seed": seed},
        "teams": {team: teams[team] if isinstance(teams, Mapping) else {} for team in teams},
        "models": dict(models),
        "limits": {"tokens": 25_000, "seconds": 500, "prompt_words": 900},
        **{section: {} for section in SECTIONS},
        **more,
    }


def small_params(*arguments: Any, **more: Any) -> Params:
    return parse_params(small_values(*arguments, **more), "params.yaml")


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def file_states(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the inode and the time of the last change of every file: a file that is written again gets others."""
    states = {name: (folder / name).stat() for name in contents(folder)}
    return {name: (state.st_ino, state.st_mtime_ns) for name, state in states.items()}
