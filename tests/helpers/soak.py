"""The length of the long tests: `make test-soak` and CI run them in full, `make test` a shorter form."""

import os

import pytest

SOAK = os.environ.get("PCGEVAL_SOAK") == "1"
soak_only = pytest.mark.skipif(not SOAK, reason="takes a minute or more; `make test-soak` runs it")
