"""One hash over everything that decides a ranking, by parts, so that a difference names its part.

A part of files is their `tree_sha256`; any other part is the SHA-256 of canonical JSON, and so is the hash over the
parts by name. It is the same on every machine: times, links to DVC's cache and addresses of servers do not count.
"""

import json
import os
import time
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from pcgeval.core.files import cached, file_hashes, file_states, sha256_json, sha256_text, to_json
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

    With `trust_times`, the files at a path are not read if size, times and inode of each are as at an earlier call.
    """
    content = ranking.model_dump(by_alias=True)
    parts = {
        part: sha256_json(
            sorted(
                (pair for path in paths for pair in _hashes(root, path, trust_times=trust_times)),
                key=lambda pair: os.fsencode(pair[0]),
            )
        )
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


def _hashes(root: Path, path: Path, *, trust_times: bool) -> list[list[str]]:
    """Return the name and the hash of each file at a path; with `trust_times`, a state file keeps them."""

    def hashed() -> bytes:
        return to_json(file_hashes(root, competition_files(root, path)), indent=None).encode()

    content = None
    if trust_times:
        with suppress(OSError):  # `file_hashes` names a file that cannot be read
            states = file_states([root / path])
            changed = max((max(state.modified_ns, state.changed_ns) for state in states.values()), default=0)
            if changed < (time.time() - _RECENT) * 10**9:
                content = cached(root / STATE / "hashes" / sha256_text(str(path)), sha256_json(states), hashed)
    hashes: list[list[str]] = json.loads(content or hashed())
    return hashes


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
