"""The real DVC in this process: its start takes longer than most commands; its stages are processes as ever."""

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

from dvc.cli import main
from in_process import run_in


def with_this_python() -> str:
    """Return a PATH on which `python` is the one that runs the tests."""
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run_dvc(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a DVC command in a folder; `stdout` is all that it printed and logged, without what its stages print."""
    printed = io.StringIO()
    logger = logging.getLogger("dvc")
    handlers, logger.handlers = logger.handlers, [logging.StreamHandler(printed)]
    try:
        code = run_in(folder, lambda: main(words), printed, printed, PATH=with_this_python(), **variables)
    finally:
        logger.handlers = handlers
    return subprocess.CompletedProcess(words, code, printed.getvalue())
