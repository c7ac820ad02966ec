"""The Python that programs of these tests run with."""

from pathlib import Path

import pytest

from pcgeval.generation.environments import interpreter_for


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a program that requires nothing: it has none of the packages that run these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PCGEVAL_CACHE", str(tmp_path_factory.mktemp("cache")))
        return interpreter_for(tmp_path_factory.mktemp("program"))
