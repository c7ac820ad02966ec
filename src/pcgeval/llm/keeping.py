"""What every file of a model's replies needs: room for a reply before it is paid for, and text that a file can hold."""

import os
from pathlib import Path

from pcgeval.llm.protocol import LlmError

ROOM = 16 * 2**20  # bytes that must be free before a call is paid for: its reply has to be kept


def check_room(path: Path) -> None:
    """See to it that a reply can be kept in a file, whose folder is there, before it is paid for.

    Raises:
        LlmError: The disk is almost full.
    """
    disk = os.statvfs(path.parent)
    if (free := disk.f_bavail * disk.f_frsize) < ROOM:
        raise cannot_keep(path, f"only {free // 2**20} MB are free on its disk, {ROOM // 2**20} are needed")


def cannot_keep(path: Path, reason: str) -> LlmError:
    """Return the error that stops a run whose replies cannot be written."""
    return LlmError(f"{path}: a reply cannot be kept: {reason}. Make room on the disk, then run again to go on.")
