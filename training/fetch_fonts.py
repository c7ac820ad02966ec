"""Fetch the Debian font packages that `fonts.txt` pins, check their SHA-256 and unpack them below `.cache/fonts`.

Run once before `dvc repro training/dvc.yaml`, on Debian 12 or in a container of it. Nothing is installed.
"""

import shutil
import subprocess
import sys

from pcgeval.errors import PcgevalError
from pcgeval.files import sha256_file
from settings import CACHE, HERE


class FontError(PcgevalError):
    """A font package cannot be had, or is another one than was used."""


def fetch(package: str, sha256: str) -> None:
    """Download a package `name=version` and unpack it, unless that was done before."""
    folder = CACHE / "fonts" / package.split("=", maxsplit=1)[0]
    if folder.exists():
        return
    downloads = CACHE / "packages"
    downloads.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["apt-get", "download", "-qq", package], cwd=downloads, check=False).returncode:
        raise FontError(f"{package}: apt-get has no such package. Run `apt-get update` on Debian 12 (bookworm).")
    (archive,) = downloads.glob(f"{package.split('=', maxsplit=1)[0]}_*.deb")
    if sha256_file(archive) != sha256:
        raise FontError(f"{archive}: SHA-256 is not the one in fonts.txt. Delete it and fetch it from Debian 12.")
    unpacked = folder.with_suffix(".part")
    shutil.rmtree(unpacked, ignore_errors=True)
    subprocess.run(["dpkg-deb", "-x", archive, unpacked], check=True)
    archive.unlink()
    unpacked.rename(folder)


def main() -> None:
    """Fetch every package of fonts.txt."""
    lines = [line.split() for line in (HERE / "fonts.txt").read_text("utf-8").splitlines()]
    for number, (package, sha256) in enumerate(lines, start=1):
        print(f"{number}/{len(lines)} {package}")
        fetch(package, sha256)


if __name__ == "__main__":
    try:
        main()
    except FontError as error:
        sys.exit(f"{error}")
