"""Fetch the font packages that `fonts.txt` and `second/fonts.txt` pin, check their SHA-256, unpack them below `.cache`.

Run once before `cd training && dvc repro`, on Debian 12 or in a container of it. Nothing is installed. A line names a
package of Debian, `name=version`, of the Python package index, `name==version`, or of npm, `@scope/name@version`.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from pcgeval.core.files import sha256_file
from settings import CACHE, HERE

FONT_FILES = ("*.ttf", "*.otf", "*.ttc")  # patterns of tar
LISTS = {HERE / "fonts.txt": CACHE / "fonts", HERE / "second" / "fonts.txt": CACHE / "second_fonts"}  # to its folder
CLIENTS = {
    "apt-get": ["apt-get", "download", "-qq"],
    "pip": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"],
    "npm": ["npm", "pack", "--silent"],
}


def parsed(package: str) -> tuple[str, str, str]:
    """Return the client of a package's registry, its name as a folder, and the pattern of its downloaded file."""
    if package.startswith("@"):
        name, _, version = package[1:].replace("/", "-").partition("@")
        return "npm", name, f"{name}-{version}.tgz"
    name = package.partition("=")[0]
    return ("pip", name, f"{name.replace('-', '_')}-*.whl") if "==" in package else ("apt-get", name, f"{name}_*.deb")


def download(packages: list[str], folder: Path) -> None:
    """Download the packages of each registry, all at once: its client takes seconds to start."""
    folder.mkdir(parents=True, exist_ok=True)
    for client, command in CLIENTS.items():
        wanted = [package for package in packages if parsed(package)[0] == client]
        if wanted and subprocess.run([*command, *wanted], cwd=folder, check=False).returncode:
            raise SystemExit(f"{client} lacks one of the packages. For Debian's, run `apt-get update` on Debian 12.")


def unpack(archive: Path, sha256: str, folder: Path) -> None:
    """Unpack the font files of one package into a folder that is there only when it is complete."""
    if sha256_file(archive) != sha256:
        raise SystemExit(f"{archive}: SHA-256 is not the one that was used. Delete it and run this again.")
    unpacked = archive.with_suffix(".part")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir(parents=True)
    if archive.suffix == ".deb":
        with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as files:
            # tar fails where a package lacks one of the kinds
            fonts = ["tar", "-x", "--wildcards", *FONT_FILES]
            subprocess.run(fonts, stdin=files.stdout, cwd=unpacked, stderr=subprocess.DEVNULL, check=False)
        if files.returncode:
            raise SystemExit(f"{archive}: is no Debian package. Delete it and run this again.")
    elif archive.suffix == ".whl":
        shutil.unpack_archive(archive, unpacked, "zip")
    else:
        shutil.unpack_archive(archive, unpacked, "gztar", filter="data")
    folder.parent.mkdir(exist_ok=True)
    unpacked.rename(folder)
    archive.unlink()


def main() -> None:
    """Fetch every package of the two lists that is not there yet."""
    downloads = CACHE / "packages"
    for listed, folder in LISTS.items():
        lines = (line.split() for line in listed.read_text("utf-8").splitlines())
        missing = {package: sha256 for package, sha256 in lines if not (folder / parsed(package)[1]).exists()}
        if wanted := [package for package in missing if not any(downloads.glob(parsed(package)[2]))]:
            download(wanted, downloads)
        for number, (package, sha256) in enumerate(missing.items(), start=1):
            print(f"{number}/{len(missing)} {package}")
            _, name, pattern = parsed(package)
            unpack(next(downloads.glob(pattern)), sha256, folder / name)


if __name__ == "__main__":
    main()
