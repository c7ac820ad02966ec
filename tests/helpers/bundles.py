"""The files of a bundle, and bundles of changed files with the manifest that goes with them."""

import io
import json
import zipfile

from pcgeval.core.files import sha256_bytes
from pcgeval.proof.bundle import MANIFEST


def contents(bundle: bytes) -> dict[str, bytes]:
    """Return the files of a bundle but the manifest."""
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != MANIFEST}


def packed(files: dict[str, bytes], promised: dict[str, bytes] | None = None, manifest: bytes | None = None) -> bytes:
    """Pack files as a bundle does, with their manifest, that of the promised files, or any."""
    if manifest is None:
        hashes = {name: sha256_bytes(content) for name, content in (promised or files).items()}
        manifest = json.dumps({"files": hashes}).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in {**files, MANIFEST: manifest}.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
