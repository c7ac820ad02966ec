"""A bundle: one ZIP file with all that a ranking follows from, and `manifest.json` with the SHA-256 of each file.

Anybody can make a bundle, so `verify_bundle` reads it as hostile input. `compare_states` compares two evaluated states
of a competition: a revision of git, a folder, or a bundle.
"""

import io
import os
import zipfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from pcgeval.core.archives import unpack
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_bytes, sha256_file, to_json
from pcgeval.core.text import plain, printable_line, printable_name
from pcgeval.core.untrusted import UntrustedFileError, files_below, read_bytes
from pcgeval.formats.layout import (
    FAILED_CALLS,
    OFFICIAL_RESULTS,
    RANKING_JSON,
    RESULTS,
    STATE,
    SUBMISSIONS,
    competition_files,
    stage_dir,
)
from pcgeval.formats.params import PARAMS_FILE, Params, load_params
from pcgeval.formats.results import LetterRow, RankingFile, read_csv, result_doubts
from pcgeval.formats.stages import REMAKE, Sha256, StageFile, other_remedy
from pcgeval.formats.trials import read_record, record_path
from pcgeval.llm.call_log import known_calls, proofs
from pcgeval.proof.audit import Audit, audit
from pcgeval.proof.commitment import CommitmentError, git
from pcgeval.proof.parts import parts_for
from pcgeval.scoring.stages import CHARACTER_SCORES
from pcgeval.submissions.load import submission_sha256
from pcgeval.submissions.validate import name_fault

MANIFEST = "manifest.json"
MAX_BYTES = 4 * 2**30  # of all files
MAX_FILES = 10**6
MAX_STEPS = 150_000  # of the simulation of a level, 100 times those of the default settings: some 3 to 15 s
_REMEDY = "Take the bundle from its source again."

SCORES = frozenset({"normalised", "score", "letter"})  # the kinds of values that are exact numbers
_SHOWN_UNCHANGED = frozenset({"state", "result hash", "winners", "rank", "status", "normalised", "recognised", "score"})
_HASHED = {  # the kinds of values of which a ranking has no more than the hash, by the part of its result hash
    "locks": "packages",
    "recordings": "replies",
    "trials": "trials",
    "measurements": "measurements",
    "source": "code",
}


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


def is_bundle(path: Path) -> bool:
    """Tell whether a file is a bundle, by the name of its manifest."""
    try:
        with zipfile.ZipFile(path) as archive:
            return MANIFEST in archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return False


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


class CompareError(PcgevalError):
    """A state is missing, holds no results, or is damaged."""


class Label(NamedTuple):
    """The name of a value: its kind, such as `params` or `letter`, and its setting or letter, team and model."""

    kind: str
    name: str = ""
    team: str = ""
    model: str = ""


def compare_states(before: str, after: str | None, root: Path) -> list[tuple[Label, Any, Any]]:
    """Return all inputs and letters that differ between two states, and both rankings, with both values.

    A value is None in a state that has none. Exact numbers are texts, and files are their SHA-256.

    Args:
        before: A revision of git, the folder of an evaluated competition, or a bundle.
        after: Another one; None is the competition in `root`.
        root: The folder of a competition, which other folders and bundles are relative to.
    """
    one, other = _read_state(before, root), _read_state(after, root)
    values = [(label, one.get(label), other.get(label)) for label in {**other, **one}]
    return [value for value in values if value[1] != value[2] or value[0].kind in _SHOWN_UNCHANGED]


def _read_state(place: str | None, root: Path) -> dict[Label, Any]:
    folder, name = root / (place or ""), place or "the present folder"
    with TemporaryDirectory(prefix="pcgeval-compare-") as temporary:
        try:
            if folder.is_file():
                unpack_bundle(folder, Path(temporary, "bundle"))
                folder = Path(temporary, "bundle")
            elif place and not (folder / RANKING_JSON).is_file():
                folder = Path(temporary, "state")
                _export(place, root, folder)
            with other_remedy("Name another state.") if place else nullcontext():
                return {Label("state"): name, **dict(_compared_values(folder))}
        except PcgevalError as error:
            reason = printable_line(str(error).replace(f"{folder}/", ""), 1000)
            raise CompareError(f"{name}: {reason}") from error


def _export(revision: str, root: Path, folder: Path) -> None:
    archive = folder.with_suffix(".zip")
    try:
        git(root, "archive", f"--output={archive}", revision, "--", PARAMS_FILE, str(RESULTS), str(SUBMISSIONS))
    except CommitmentError as error:
        raise CompareError(
            f"is no bundle and no folder with {RANKING_JSON}, and git reads no such revision ({error}). "
            f"Name a revision with results, such as `git log --oneline {RANKING_JSON}` lists, a folder or a bundle."
        ) from error
    unpack(archive, folder, max_files=MAX_FILES, max_bytes=MAX_BYTES)


def _compared_values(folder: Path) -> Iterator[tuple[Label, Any]]:
    """Yield all that is compared of a state: its result, then its inputs, then the teams in order."""
    if not (folder / RANKING_JSON).is_file():
        raise CompareError(f"has no {RANKING_JSON}. Run `make final-eval` first, or name another state.")
    params, ranking = load_params(folder / PARAMS_FILE, allow_aliases=False), RankingFile.read(folder / RANKING_JSON)
    yield Label("result hash"), ranking.result and ranking.result.sha256
    yield Label("winners"), list(ranking.winners)
    for team in params.teams:
        submission = folder / SUBMISSIONS / team
        yield Label("submission", team), submission_sha256(submission) if submission.is_dir() else None
    for part, kind in _HASHED.items():
        yield Label(kind), ranking.result and ranking.result.parts.get(part)
    yield Label("classifier"), ranking.classifier
    yield Label("engine"), ranking.engine
    settings = params.model_dump(mode="json")
    for name, value in _dotted(settings.pop("models")):
        yield Label("model", name), value
    for name, value in _dotted(settings):
        yield Label("params", name), value
    for line in ranking.teams:
        yield Label("rank", team=line.team), line.rank
        yield Label("status", team=line.team), line.status
        yield Label("normalised", team=line.team), None if line.normalised is None else plain(line.normalised)
        yield Label("recognised", team=line.team), line.counted.recognised_words
        for model, result in line.models.items():
            yield Label("score", team=line.team, model=model), plain(result.score)
    for model in params.models:
        for row in read_csv(LetterRow, folder / OFFICIAL_RESULTS / model / CHARACTER_SCORES):
            yield Label("letter", row.letter, row.team, model), plain(row.score)


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
