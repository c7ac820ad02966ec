"""Wheels of a package `example`, for a package index that is a folder."""

import zipfile
from pathlib import Path


def write_wheel(folder: Path, files: dict[str, str], version: str = "1.0", requires: str = "") -> None:
    """Write a version of `example`, a wheel with some files, which may require another package."""
    about = f"example-{version}.dist-info"
    metadata = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: example\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"example-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in (files | metadata).items():
            archive.writestr(name, text)
        names = "".join(f"{name},,\n" for name in (*files, *metadata, f"{about}/RECORD"))
        archive.writestr(f"{about}/RECORD", names)
