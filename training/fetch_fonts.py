"""Fetch the Debian font packages that `fonts.txt` pins, check their SHA-256 and unpack them below `.cache/fonts`.

Run once before `cd training && dvc repro`, on Debian 12 or in a container of it. Nothing is installed.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from pcgeval.core.errors import PcgevalError
from pcgeval.core.files import sha256_file
from settings import CACHE, HERE

FONT_FILES = ("*.ttf", "*.otf", "*.ttc")  # patterns of tar


class FontError(PcgevalError):
    """A font package cannot be had, or is another one than was used."""


def name(package: str) -> str:
    """Return the name of a package `name=version`."""
    return package.split("=", maxsplit=1)[0]


def download(packages: list[str], folder: Path) -> None:
    """Download packages `name=version`, all at once: apt-get takes seconds to start."""
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["apt-get", "download", "-qq", *packages], cwd=folder, check=False).returncode:
        raise FontError("apt-get lacks one of these packages. Run `apt-get update` on Debian 12 (bookworm).")


def unpack(archive: Path, sha256: str, folder: Path) -> None:
    """Unpack the font files of one package into a folder that is there only when it is complete."""
    if sha256_file(archive) != sha256:
        raise FontError(f"{archive}: SHA-256 is not the one in fonts.txt. Delete it and fetch it from Debian 12.")
    unpacked = archive.with_suffix(".part")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir(parents=True)
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as files:
        # tar fails where a package lacks one of the kinds
        fonts = ["tar", "-x", "--wildcards", *FONT_FILES]
        subprocess.run(fonts, stdin=files.stdout, cwd=unpacked, stderr=subprocess.DEVNULL, check=False)
    if files.returncode:
        raise FontError(f"{archive}: is no Debian package. Delete it and run this again.")
    folder.parent.mkdir(exist_ok=True)
    unpacked.rename(folder)
    archive.unlink()


def main() -> None:
    """Fetch every package of fonts.txt that is not there yet."""
    lines = (line.split() for line in (HERE / "fonts.txt").read_text("utf-8").splitlines())
    missing = {package: sha256 for package, sha256 in lines if not (CACHE / "fonts" / name(package)).exists()}
    downloads = CACHE / "packages"
    there = {path.name.split("_", maxsplit=1)[0] for path in downloads.glob("*.deb")}
    if wanted := [package for package in missing if name(package) not in there]:
        download(wanted, downloads)
    for number, (package, sha256) in enumerate(missing.items(), start=1):
        print(f"{number}/{len(missing)} {package}")
        (archive,) = downloads.glob(f"{name(package)}_*.deb")
        unpack(archive, sha256, CACHE / "fonts" / name(package))


if __name__ == "__main__":
    try:
        main()
    except FontError as error:
        sys.exit(f"{error}")
