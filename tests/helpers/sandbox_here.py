"""Whether a sandbox for programs starts on this machine: the one place where the tests decide it."""

from functools import cache

from pcgeval.sandbox.sandbox import ResourceLimits, SandboxError, open_sandbox


@cache
def why_no_sandbox() -> str | None:
    """Start a sandbox and return None, or else the reason why none starts, in one line.

    A machine that is only too busy to start one has one: the tests will tell.
    """
    try:
        open_sandbox(ResourceLimits(), trust_programs=False)
    except SandboxError as error:
        if error.__cause__ is not None:
            return " ".join(str(error.__cause__).split())
    return None
