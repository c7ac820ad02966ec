"""What the tests ask of this machine: `PCGEVAL_SOAK=1` runs the long ones in full, and some need a sandbox."""

import os
from functools import cache

import pytest

SOAK = os.environ.get("PCGEVAL_SOAK") == "1"
soak_only = pytest.mark.skipif(not SOAK, reason="takes a minute or more; `make test-soak` runs it")


@cache
def why_no_sandbox() -> str | None:
    """Start a sandbox and return None, or else the reason why none starts, in one line.

    A machine that is only too busy to start one has one: the tests will tell.
    """
    from pcgeval.sandbox.sandbox import ResourceLimits, SandboxError, open_sandbox  # not all tests need it

    try:
        open_sandbox(ResourceLimits(), trust_programs=False)
    except SandboxError as error:
        if error.__cause__ is not None:
            return " ".join(str(error.__cause__).split())
    return None
