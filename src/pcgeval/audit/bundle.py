"""Make a bundle: one ZIP file with all that a ranking follows from, which `pcgeval verify` recomputes anywhere.

It holds the files of the competition's folder under their own paths, but for the pictures, which follow from the
levels, and the page. Beside them lie `manifest.json`, a statement of in-toto with the SHA-256 of each file and the
result that they gave; `ro-crate-metadata.json`, which tells catalogues of research data what is what; and
`manifest.dsse.json` if the manifest is signed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from pcgeval.audit.archive import pack
from pcgeval.audit.history import Git
from pcgeval.audit.manifest import (
    CRATE,
    ENVELOPE,
    MANIFEST,
    CommitState,
    bundled_files,
    crate_metadata,
    expected_result,
    missing_files,
    params_fault,
    statement,
)
from pcgeval.audit.signature import sign
from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import MAX_BYTES, sha256_bytes
from pcgeval.core.layout import RANKING_JSON, SUBMISSIONS
from pcgeval.core.params import Params, load_params
from pcgeval.core.stage_files import RankingFile
from pcgeval.core.untrusted import read_bounded


class BundleError(PcgevalError):
    """A competition cannot be bundled as it is."""


def make_bundle(root: Path, private_key: bytes | None = None) -> bytes:
    """Return the bundle of an evaluated competition; the same files and commit give the same bytes.

    Args:
        root: The competition's folder.
        private_key: An Ed25519 key in PEM to sign the manifest with.

    Raises:
        BundleError: The ranking is not that of the files that are there.
        ArchiveError: A file's name cannot be stored everywhere, or there are too many bytes.
        SignatureError: The key cannot be used.
        FileError: A file is missing or cannot be read.
    """
    params = load_params(root / "params.yaml")
    if fault := params_fault(read_bounded(root / "params.yaml", MAX_BYTES)):
        raise BundleError(f"params.yaml: {fault}")
    ranking = RankingFile.read(root / RANKING_JSON)
    if ranking.result != expected_result(root, params, ranking):
        raise BundleError(
            f"{RANKING_JSON}: its result hash is not that of the files that are there now. Run `make final-eval` first."
        )
    if missing := missing_files(root, params):
        raise BundleError(f"{missing[0]}: is missing, so the evaluation is not complete. Run `make final-eval` first.")
    names = bundled_files(root, params)
    return pack(_contents(root, names, params, ranking, _commit_state(root, names), private_key))


def _contents(
    root: Path,
    names: Iterable[str],
    params: Params,
    ranking: RankingFile,
    source: CommitState,
    private_key: bytes | None,
) -> Iterator[tuple[str, bytes]]:
    digests = {}
    for name in names:
        is_ours = not name.startswith(f"{SUBMISSIONS}/")  # DVC may link its cache; other links are a submission's own
        content = read_bounded(root / name, MAX_BYTES, follow_link=is_ours)
        digests[name] = sha256_bytes(content)
        yield name, content
    crate = crate_metadata(params, ranking, digests, source)
    digests[CRATE] = sha256_bytes(crate)
    manifest = statement(params, ranking, digests, source).to_bytes()
    yield from ((CRATE, crate), (MANIFEST, manifest))
    if private_key is not None:
        yield ENVELOPE, sign(manifest, private_key)


def _commit_state(root: Path, names: Iterable[str]) -> CommitState:
    state = Git(root).state()
    if state.commit is None:
        return CommitState()
    uncommitted = set(state.changed).intersection(names)
    return CommitState(commit=state.commit, date=state.date, uncommitted=tuple(sorted(uncommitted)))
