"""The servers of these tests, and for those marked `llm` a real language model: the smallest one, fetched once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from toy_model import HEAD

from pcgeval.llm.llamacpp import LlamaCpp
from pcgeval.llm.local_models import fetch
from pcgeval.llm.protocol import LlmError
from pcgeval.serve.server import LocalServer

SMOLLM = "smollm2:135m-instruct-q4_1"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LocalServer]:
    """A server whose two models are one file that cannot be loaded."""
    (tmp_path / "toy.gguf").write_bytes(HEAD)
    with LocalServer("127.0.0.1", 0, {"toy:small": tmp_path / "toy.gguf", "toy": tmp_path / "toy.gguf"}) as running:
        yield running


@pytest.fixture(scope="session")
def smollm_file() -> Path:
    pytest.importorskip("xllamacpp", reason="the extra local-llm is not installed")
    try:
        return fetch(SMOLLM)
    except LlmError as error:
        pytest.skip(f"no model to test with: {error}")


@pytest.fixture(scope="session")
def smollm(smollm_file: Path) -> LlamaCpp:
    # one thread: with two, llama.cpp crawls while another program holds a core
    return LlamaCpp(smollm_file, context=512, threads=1)


@pytest.fixture(scope="session")
def local_server(smollm_file: Path) -> Iterator[LocalServer]:
    with LocalServer("127.0.0.1", 0, {SMOLLM: smollm_file}, threads=1) as server:
        yield server
