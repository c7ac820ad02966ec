"""For tests marked `llm` a real language model: the smallest one, fetched once."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from threaded_server import free_port

from pcgeval.core.console import EXIT_INTERRUPTED
from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.local_models import fetch
from pcgeval.llm.protocol import LlmError

SMOLLM = "smollm2:135m-instruct-q4_1"


@pytest.fixture(scope="session")
def smollm_file() -> Path:
    pytest.importorskip("xllamacpp", reason="the extra local-llm is not installed")
    try:
        return fetch(SMOLLM)
    except LlmError as error:
        pytest.skip(f"no model to test with: {error}")


@pytest.fixture(scope="session")
def smollm(smollm_file: Path) -> LlamaCpp:
    return LlamaCpp(smollm_file, context=512)


@pytest.fixture(scope="session")
def local_server(smollm_file: Path) -> Iterator[str]:  # noqa: ARG001 - served by its name
    """The address of `pcgeval models serve` with that model, up to `/v1`."""
    command = [sys.executable, "-m", "pcgeval", "models", "serve", SMOLLM, "--port", str(free_port())]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        address = re.search(r"http://\S+/v1", line)
        assert address, line
        yield address[0]
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == EXIT_INTERRUPTED
