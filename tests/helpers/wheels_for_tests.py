"""Wheels for a package index that is a folder."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


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


@contextmanager
def package_index(folder: Path) -> Iterator[None]:
    """Let uv know no other index than a folder with a wheel of `example`, and no cache from before."""
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    write_wheel(wheels, {"example.py": "WORD = 'please'\n"})
    values = {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(wheels)}
    values |= {name: str(folder / name) for name in ("PCGEVAL_CACHE", "UV_CACHE_DIR")}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield
