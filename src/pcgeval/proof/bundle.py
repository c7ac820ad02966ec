"""A bundle: one ZIP file with all that a ranking follows from, and `manifest.json` with the SHA-256 of each file.

Anybody can make a bundle, so `verify_bundle` reads it as hostile input.
"""

import io
import os
import zipfile
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from pcgeval.core.archives import unpack
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, sha256_file, to_json
from pcgeval.core.text import printable_name
from pcgeval.core.untrusted import UntrustedFileError, files_below, read_bytes
from pcgeval.formats.layout import (
    FAILED_CALLS,
    RANKING_JSON,
    STATE,
    SUBMISSIONS,
    competition_files,
    stage_dir,
)
from pcgeval.formats.params import PARAMS_FILE, Params, load_params
from pcgeval.formats.results import RankingFile
from pcgeval.formats.stages import REMAKE, Sha256, StageFile, other_remedy
from pcgeval.formats.trials import read_record, record_path
from pcgeval.llm.call_log import known_calls, proofs
from pcgeval.proof.audit import Audit, audit
from pcgeval.proof.parts import parts_for
from pcgeval.scoring.result_hash import result_doubts
from pcgeval.submissions.validate import name_fault

MANIFEST = "manifest.json"
MAX_BYTES = 4 * 2**30  # of all files
MAX_FILES = 10**6
MAX_STEPS = 150_000  # of the simulation of a level, 100 times those of the default settings: some 3 to 15 s
_REMEDY = "Take the bundle from its source again."


class BundleError(PcgevalError):
    """A competition cannot be bundled, or a file is not a bundle or was changed."""


class _Manifest(StageFile):
    files: dict[str, Sha256]


def make_bundle(root: Path) -> bytes:
    """Return the bundle of an evaluated competition; the same files give the same bytes.

    Raises:
        BundleError: The ranking does not belong to the files.
        PcgevalError: A file is missing or faulty.
    """
    params = load_params(root / PARAMS_FILE, allow_aliases=False)
    for doubt in result_doubts(params, RankingFile.read(root / RANKING_JSON), root):
        raise BundleError(f"{RANKING_JSON}: {doubt}. Run `make final-eval` first.")
    places = [place for part in parts_for("bundle") for place in part.places(params)]
    contents: dict[str, bytes] = {}
    for name in sorted({name for place in places for name in competition_files(root, place)}, key=os.fsencode):
        if fault := name_fault(name):
            raise BundleError(f"{printable_name(name)}: {fault}.")
        is_ours = not name.startswith(f"{SUBMISSIONS}/")  # DVC may link its cache
        contents[name] = read_bytes(root / name, MAX_BYTES, follow_link=is_ours)
    if failed := _failed_calls(params, root):
        contents[str(FAILED_CALLS)] = failed
    hashes = {name: sha256_bytes(content) for name, content in contents.items()}
    contents[MANIFEST] = f"{to_json({'files': hashes})}\n".encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in contents.items():
            entry = zipfile.ZipInfo(name)  # of 1 January 1980
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _failed_calls(params: Params, root: Path) -> bytes:
    """Return the lines of the call log that prove the failed calls of the live models; a bundle has no other of it."""
    lines: set[str] = set()
    for model, settings in params.models.items():
        known = known_calls(settings, root)
        folders = {team: root / stage_dir("raw", model, team) for team in params.teams}
        paths = [record_path(folder, team, trial) for team, folder in folders.items() for trial in params.trials()]
        lines |= {call.line() for call in proofs(map(read_record, paths), known)} if known else set()
    return "".join(sorted(lines)).encode()


def unpack_bundle(path: Path, folder: Path) -> int:
    """Unpack a bundle, as hostile input, into a new folder; return the number of its files."""
    try:
        unpack(path, folder, max_files=MAX_FILES, max_bytes=MAX_BYTES)
        if not (folder / MANIFEST).is_file():
            raise BundleError(f"{MANIFEST}: is missing, so this is no bundle.")
        promised = _Manifest.read(folder / MANIFEST).files
    except PcgevalError as error:
        remedy = error.remedy if isinstance(error, UntrustedFileError) else REMAKE
        reason = str(error).removeprefix(f"{path}: ").replace(f"{folder}/", "").removesuffix(remedy).rstrip()
        raise BundleError(f"{path}: {reason} {_REMEDY}") from error
    hashes = {file.relative_to(folder).as_posix(): sha256_file(file) for file in files_below(folder)}
    del hashes[MANIFEST]
    for name in sorted(hashes.keys() | promised.keys()):
        if hashes.get(name) != promised.get(name):
            fault = "is missing" if name not in hashes else "was changed" if name in promised else "was added"
            raise BundleError(f"{path}: {printable_name(name)}: {fault}, by {MANIFEST}. {_REMEDY}")
    return len(hashes)


def verify_bundle(path: Path, *, trust: Collection[str] = ()) -> Audit:
    """Unpack a bundle as hostile input, and audit it with this release; the stages in `trust` are not run again."""
    with TemporaryDirectory(prefix="pcgeval-verify-") as folder:
        root = Path(folder).resolve() / "bundle"
        files = unpack_bundle(path, root)
        try:
            if (root / STATE).exists():  # a call log of its maker would prove nothing
                raise BundleError(f"{STATE}: is in no bundle of `pcgeval bundle`. {_REMEDY}")
            params = load_params(root / PARAMS_FILE, allow_aliases=False)
            letters = params.competition.characters
            trials = len(params.models) * len(params.teams) * params.competition.trials * len(letters)
            if trials > files:  # each has a record
                raise BundleError(f"{PARAMS_FILE} is of {trials} trials, for which there are only {files} files.")
            physics = params.physics
            steps = (physics.trials + physics.starts) * physics.seconds / physics.step
            if steps > MAX_STEPS and "simulate" not in trust:
                fault = f"physics asks for {steps:.0f} steps of simulation a level, more than {MAX_STEPS}"
                raise BundleError(
                    f"{PARAMS_FILE}: {fault}. Take the published figures with --trust simulate --trust classify."
                )
            with other_remedy(_REMEDY):
                return audit(root, trust=trust, is_bundle=True)
        except PcgevalError as error:
            raise BundleError(f"{path}: {str(error).replace(f'{root}/', '')}") from error
