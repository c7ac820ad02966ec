"""A wait for what another process or a server does, with an end."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from slow_ollama import SlowOllama


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[Any] | None = None, *, seconds: float = 120
) -> None:
    """Wait until a condition holds.

    The test fails when `seconds` have passed, or when the process ends that was to bring the condition about; one that
    still runs is killed, and the failure shows its output.
    """
    latest = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            pytest.fail(f"The process ended meanwhile with exit code {process.returncode}:\n{_output(process)}")
        if time.monotonic() > latest:
            pytest.fail(f"Nothing came in {seconds:g} s" + (f":\n{_output(process)}" if process is not None else ""))
        time.sleep(0.005)


def wait_for_answers(server: SlowOllama, answers: int, process: subprocess.Popen[Any]) -> None:
    """Wait until a server has given so many answers, or the process that asks it has ended."""
    wait_until(lambda: server.answered >= answers or process.poll() is not None)


def _output(process: subprocess.Popen[Any]) -> object:
    process.kill()
    try:
        return process.communicate(timeout=10)[1]
    except subprocess.TimeoutExpired:  # a process that it started still holds its standard error
        return "nothing that could be read"
