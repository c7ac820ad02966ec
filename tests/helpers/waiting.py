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
    """Wait until a condition holds; fail after so many seconds, or if the process ends that was to bring it about."""
    latest = time.monotonic() + seconds
    while not condition():
        if process is not None and process.poll() is not None and not condition():
            pytest.fail(f"The process ended meanwhile with exit code {process.returncode}: {process.communicate()}")
        if time.monotonic() > latest:
            pytest.fail(f"Nothing came in {seconds:g} s")
        time.sleep(0.005)


def wait_for_answers(server: SlowOllama, answers: int, process: subprocess.Popen[Any]) -> None:
    """Wait until a server has given so many answers, or the process that asks it has ended."""
    wait_until(lambda: server.answered >= answers or process.poll() is not None)
