"""One hash over everything that decides a ranking, by parts, so that a difference names its part.

A part of files is their `tree_sha256`; any other part is the SHA-256 of canonical JSON, and so is the hash over the
parts by name. It is the same on every machine: times, links to DVC's cache and addresses of servers do not count.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from pcgeval.core.files import cached, sha256_json, tree_sha256
from pcgeval.formats.layout import LOCKS, PACKAGE_FILE, STATE, SUBMISSIONS, competition_files, recording_file, stage_dir
from pcgeval.formats.params import Params
from pcgeval.formats.results import RankingFile, ResultHash

# the stages that decide a ranking, and the packages that they load
STAGES = ("generate", "extract", "convert", "simulate", "classify", "diversity", "score", "rank")
PACKAGES = (
    *("core", "formats", "parallel", "submissions", "levels", "llm", "sandbox"),
    *("generation", "evaluator", "similarity", "scoring"),
)
_PARAMS = {"competition", "teams", "models", "limits", "physics", "similarity", "diversity", "scoring"}
_RECENT = 2.0  # seconds in which a clock may show two changes of a file as one
NOT_DECIDING: dict[str, Any] = {  # where and how fast something is computed
    "models": {"__all__": {"host", "base_url", "keep_alive", "stream", "concurrency"}},
    "similarity": {"batch", "device"},
}


def deciding_params(params: Params) -> dict[str, Any]:
    """Return the settings that decide a ranking, as JSON values by their sections in params.yaml."""
    return params.model_dump(mode="json", include=_PARAMS, exclude=NOT_DECIDING)


def result_hash(params: Params, ranking: RankingFile, root: Path = Path(), *, trust_times: bool = False) -> ResultHash:
    """Return the result hash of a ranking in a competition's folder; raise FileError if a file cannot be read.

    With `trust_times`, the files of a part are not read if size, times and inode of each are as at an earlier call.
    """
    content = ranking.model_dump(by_alias=True)
    parts = {
        part: _part_hash(root, paths, root / STATE / "hashes" / part if trust_times else None)
        for part, paths in _deciding_files(params).items()
    }
    parts["params"] = sha256_json(deciding_params(params))
    parts["ranking"] = sha256_json({key: value for key, value in content.items() if key != "result"})
    return ResultHash(sha256=sha256_json(parts), parts=dict(sorted(parts.items())))


def _deciding_files(params: Params) -> dict[str, list[Path]]:
    """Return the files and folders that decide a ranking, by the parts of the result hash."""
    pairs = list(product(params.models, params.teams))
    recorded = [(model, team) for model, team in pairs if params.models[model].backend == "recorded"]
    source = Path("src", "pcgeval")
    return {
        "classifier": [Path(params.similarity.model)],  # a classifier of the hub is named by params.yaml alone
        "submissions": [SUBMISSIONS / team for team in params.teams],
        "locks": [LOCKS / f"{team}.txt" for team in params.teams],
        "recordings": [recording_file(*pair) for pair in recorded],
        "trials": [stage_dir("raw", *pair) for pair in pairs],
        "measurements": [
            stage_dir(stage, *pair) for stage in ("stability", "similarity", "diversity") for pair in pairs
        ],
        "source": [
            PACKAGE_FILE,  # in place of the source where pcgeval is installed
            source / "__init__.py",
            source / "pipeline.py",
            *(source / package for package in PACKAGES),
            *(Path("stages", f"{stage}.py") for stage in STAGES),
        ],
    }


def _part_hash(root: Path, paths: Iterable[Path], state: Path | None) -> str:
    """Return the hash of a part of files; `state` is the file that keeps it with their sizes, times and inodes."""

    def names() -> Iterator[str]:
        return (name for path in paths for name in competition_files(root, path))

    def hashed() -> bytes:
        return tree_sha256(root, names()).encode("ascii")

    with suppress(OSError):  # `tree_sha256` names a file that cannot be read
        stats = [(name, (root / name).stat()) for name in sorted({*names()})] if state else []
        times = [at for _, stat in stats for at in (stat.st_mtime, stat.st_ctime)]
        if state and max(times, default=0.0) < time.time() - _RECENT:
            made_from = [(name, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino) for name, stat in stats]
            return cached(state, made_from, hashed).decode("ascii")
    return hashed().decode("ascii")


def result_doubts(params: Params, ranking: RankingFile, root: Path = Path()) -> list[str]:
    """Return the differences between a ranking's result hash and the present folder, as clauses.

    Raises:
        FileError: A file cannot be read.
    """
    if ranking.result is None:
        return ["it has no result hash: the stage rank did not write it"]
    now = result_hash(params, ranking, root, trust_times=True)
    others = [part for part in now.parts if part != "ranking" and now.parts[part] != ranking.result.parts.get(part)]
    if others:
        return [f"it comes from other {', '.join(others)}"]
    return [] if now == ranking.result else ["it was altered after the stage rank wrote it"]
