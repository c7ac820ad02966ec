"""Replace python-dotenv where a program uses it without naming it in a requirements.txt."""  # noqa: INP001

from __future__ import annotations

import os
from pathlib import Path


def find_dotenv(filename: str = ".env", *_: object, **__: object) -> str:
    """Return the path of the .env file in the current folder, or an empty text."""
    return str(Path(filename).absolute()) if Path(filename).is_file() else ""


def dotenv_values(dotenv_path: str | os.PathLike[str] | None = None, *_: object, **__: object) -> dict[str, str]:
    """Return the settings of a .env file: lines of NAME=VALUE; `#` starts a comment."""
    path = Path(dotenv_path or ".env")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    pairs = (line.strip().removeprefix("export ").partition("=") for line in lines if not line.lstrip().startswith("#"))
    return {name.strip(): value.strip().strip("'\"") for name, equals, value in pairs if equals}


def load_dotenv(dotenv_path: str | os.PathLike[str] | None = None, *_: object, **__: object) -> bool:
    """Add the settings of a .env file to the environment; variables that are set already stay."""
    values = dotenv_values(dotenv_path)
    for name, value in values.items():
        os.environ.setdefault(name, value)
    return bool(values)
