"""Wheels for a package index that is a folder."""

import zipfile
from pathlib import Path


def write_wheel(folder: Path, files: dict[str, str | bytes], version: str = "1.0", name: str = "example") -> None:
    about = f"{name}-{version}.dist-info"
    metadata = {
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in (files | metadata).items():
            archive.writestr(file, text)
        names = "".join(f"{file},,\n" for file in (*files, *metadata, f"{about}/RECORD"))
        archive.writestr(f"{about}/RECORD", names)
