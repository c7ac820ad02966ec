"""Append to a program's log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def log(log_path: str | Path, message: object) -> None:
    """Append a line with the time to a log file."""
    with open(log_path, "a", encoding="utf-8") as file:  # noqa: PTH123 - programs pass texts too
        file.write(f"[{datetime.now():%Y-%m-%d %H:%M:%S}] {message}\n")  # noqa: DTZ005 - as the official package
