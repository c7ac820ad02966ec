"""Commands in a folder and in this process, which take less time than the start of another one."""

import io
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest


def run_in(folder: Path, command: Callable[[], int], shown: io.StringIO, errors: io.StringIO, **variables: str) -> int:
    """Run a command with some environment variables, and return its exit code."""
    with pytest.MonkeyPatch.context() as patch, chdir(folder), redirect_stdout(shown), redirect_stderr(errors):
        for name, value in variables.items():
            patch.setenv(name, value)
        return command()
