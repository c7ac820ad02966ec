"""The length of the long tests: `make test-soak` and CI run them in full, `make test` a shorter form."""

import os
from collections.abc import Sequence
from typing import TypeVar

import pytest

SOAK = os.environ.get("PCGEVAL_SOAK") == "1"
_T = TypeVar("_T")


def shortened(cases: Sequence[_T], *places: int) -> list[_T]:
    """Return all cases of a long test, or in its short form those at some places."""
    return list(cases) if SOAK else [cases[place] for place in places]


soak_only = pytest.mark.skipif(not SOAK, reason="takes a minute or more; `make test-soak` runs it")
