"""Commands and the real DVC in a folder and in this process, which take less time than the start of another one."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest


def run_in(folder: Path, command: Callable[[], int], **variables: str) -> tuple[int, str]:
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stdout(shown), redirect_stderr(shown):
        for name, value in variables.items():
            patch.setenv(name, value)
        return command(), shown.getvalue()


def with_this_python() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def run_dvc(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a DVC command in a folder; `stdout` is all that it printed and logged, without what its stages print."""
    from dvc.cli import main

    logger = logging.getLogger("dvc")
    handlers = logger.handlers

    def command() -> int:
        logger.handlers = [logging.StreamHandler()]  # to what standard error is now
        return main(words)

    try:
        code, printed = run_in(folder, command, PATH=with_this_python(), **variables)
    finally:
        logger.handlers = handlers
    return subprocess.CompletedProcess(words, code, printed)
