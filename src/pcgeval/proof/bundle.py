"""A bundle: one ZIP file with all that a ranking follows from, and `manifest.json` with the SHA-256 of each file.

Anybody can make a bundle, and nothing in it says who did, so it is read as hostile input.
"""

import io
import os
import zipfile
from collections.abc import Collection
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from pcgeval.core.archives import unpack
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, sha256_file, to_json
from pcgeval.core.layout import EVIDENCE, GRADES, JUDGEMENTS, RANKING_JSON, STAGE_DIRS, SUBMISSIONS, stage_dir
from pcgeval.core.params import PARAMS_FILE, Params, load_untrusted_params
from pcgeval.core.stage_files import RankingFile, Sha256, StageFile
from pcgeval.core.untrusted import files_below, printable_name, read_bounded
from pcgeval.proof.audit import Audit, audit
from pcgeval.scoring.result_hash import files_at, result_doubts
from pcgeval.submissions.hand_in import name_fault

MANIFEST = "manifest.json"
MAX_BYTES = 4 * 2**30  # of all files
MAX_FILES = 10**6
_PLACES = (
    *("params.yaml", "dvc.yaml", "dvc.lock", ".dvcignore", "constraints.txt", "stages", "src/pcgeval"),
    *("data/recordings", "data/rubrics", "data/trials"),
    *("results/ranking.json", "results/ranking.csv", "results/metrics.json", "results/seal.json", "results/official"),
)


class BundleError(PcgevalError):
    """A competition cannot be bundled as it is; or a file is no bundle, or was changed."""


class _Manifest(StageFile):
    files: dict[str, Sha256]


def make_bundle(root: Path) -> bytes:
    """Return the bundle of an evaluated competition; the same files give the same bytes.

    Raises:
        BundleError: The ranking is not that of the files that are there.
        ParamsError: params.yaml is faulty.
        FileError: A file cannot be read.
    """
    params = load_untrusted_params(root / PARAMS_FILE)
    if not (root / RANKING_JSON).is_file():
        raise BundleError(f"{RANKING_JSON}: is missing. Run `make final-eval` first.")
    for doubt in result_doubts(params, RankingFile.read(root / RANKING_JSON), root):
        raise BundleError(f"{RANKING_JSON}: {doubt}. Run `make final-eval` first.")
    names = _bundled_files(root, params)
    for name in names:
        if fault := name_fault(name):
            raise BundleError(f"{printable_name(name)}: {fault}.")
    hashes: dict[str, str] = {}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            is_ours = not name.startswith(f"{SUBMISSIONS}/")  # DVC may link its cache
            content = read_bounded(root / name, MAX_BYTES, follow_link=is_ours)
            hashes[name] = sha256_bytes(content)
            _add(archive, name, content)
        _add(archive, MANIFEST, f"{to_json({'files': hashes})}\n".encode())
    return packed.getvalue()


def unpack_bundle(path: Path, folder: Path) -> dict[str, str]:
    """Unpack a bundle that may be anybody's into a new folder, and return the SHA-256 of each file by name.

    Raises:
        BundleError: It is no bundle, is damaged or too large, or its files are not those of its manifest.
    """
    try:
        unpack(path, folder, max_files=MAX_FILES, max_bytes=MAX_BYTES)
        listed = _Manifest.read(folder / MANIFEST).files
        names = (file.relative_to(folder).as_posix() for file in files_below(folder))
        hashes = {name: sha256_file(folder / name) for name in names if name != MANIFEST}
    except PcgevalError as error:
        reason = str(error).removeprefix(f"{path}: ").replace(f"{folder}/", "")
        raise BundleError(f"{path}: {reason} Take the bundle from its source again.") from error
    for name in sorted(hashes.keys() | listed.keys()):
        if hashes.get(name) != listed.get(name):
            fault = "is missing" if name not in hashes else "was changed" if name in listed else "was added"
            raise BundleError(f"{path}: {printable_name(name)}: {fault}, by {MANIFEST}. Take it from its source again.")
    return hashes


def verify_bundle(path: Path, *, trust: Collection[str] = ()) -> Audit:
    """Unpack a bundle, run its evaluation again with this release, and compare every file of it.

    Args:
        path: The bundle.
        trust: Stages whose output is copied instead of made again.

    Raises:
        BundleError: It is no bundle, or was changed after it was made.
        PcgevalError: Its params or its ranking cannot be read.
    """
    with TemporaryDirectory(prefix="pcgeval-verify-") as folder:
        root = Path(folder, "bundle")
        files = len(unpack_bundle(path, root))
        params = load_untrusted_params(root / PARAMS_FILE)
        trials = len(params.models) * len(params.teams) * params.competition.trials * len(params.competition.characters)
        if trials > files:  # each has a record
            raise BundleError(f"{path}: {PARAMS_FILE} is of {trials} trials, for which there are only {files} files.")
        return audit(root, trust=trust, is_bundle=True)


def _bundled_files(root: Path, params: Params) -> list[str]:
    pairs = list(product(params.models, params.teams))
    places = [Path(name) for name in _PLACES]
    places += [part / team for part in (SUBMISSIONS, EVIDENCE, JUDGEMENTS, GRADES) for team in params.teams]
    places += [stage_dir(stage, *pair) for stage in STAGE_DIRS if stage != "images" for pair in pairs]
    return sorted({name for place in places for name in files_at(root, place)}, key=os.fsencode)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name)  # of 1 January 1980
    entry.external_attr = 0o100644 << 16
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
